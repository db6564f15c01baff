//! Command Descriptor Block: a SCSI command and its fields (SPC-4 §4.3).
//!
//! The constructors cover the commands that a user of a disk sends; for any other block use [`Cdb::new`].

use super::{FormatError, Operation, PortGroupsHeader, operation};
use std::fmt;
use std::ops::Range;

/// Command Descriptor Block: a SCSI command and its fields (SPC-4 §4.3).
///
/// Blocks of up to 16 bytes, which are nearly all, are stored without an allocation.
#[derive(Clone, Eq, PartialEq)]
pub struct Cdb(Form);

#[derive(Clone, Eq, PartialEq)]
enum Form {
    /// Invariant: `len` is 1 to 16 and the bytes after it are zero.
    Short { bytes: [u8; Cdb::SHORT_LEN], len: u8 },
    /// Invariant: 17 to 260 bytes.
    Long(Box<[u8]>),
}

/// The formats of sense data (SPC-4 §4.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SenseFormat {
    /// Fixed fields; values of 64 bits may not fit.
    Fixed,
    /// A list of descriptors.
    Descriptor,
}

/// The options of WRITE SAME (SBC-3).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct WriteSameFlags {
    /// UNMAP: the device may deallocate the blocks if a read of them then returns the data to write.
    pub unmap: bool,
    /// NDOB: the command has no data, and the blocks become zeros. Only WRITE SAME (16) has this bit; WRITE
    /// SAME (10) is created without it.
    pub ndob: bool,
    /// ANCHOR: deallocated blocks keep their space, so that a later write cannot fail for lack of space.
    pub anchor: bool,
}

impl WriteSameFlags {
    fn bits(self) -> u8 {
        (u8::from(self.anchor) << 4) | (u8::from(self.unmap) << 3)
    }
}

/// FUA in byte 1 of READ and WRITE (10, 12 and 16).
const FORCE_UNIT_ACCESS: u8 = 0x08;

/// NDOB in byte 1 of WRITE SAME (16).
const NO_DATA_OUT_BUFFER: u8 = 0x01;

/// Mask of the service action in byte 1, for operation codes that several commands share.
const SERVICE_ACTION: u8 = 0x1f;

impl Cdb {
    /// The most bytes that fit into the CDB field of a SCSI Command PDU. Longer blocks need an additional
    /// header segment (RFC 7143 §11.3.5).
    pub const SHORT_LEN: usize = 16;

    /// The greatest length of a block: a variable length CDB of 252 additional bytes (SPC-4 §4.3.3).
    pub const MAX_LEN: usize = 260;

    /// The greatest number of blocks in a READ (10) or WRITE (10) (SBC-3).
    pub const MAX_BLOCKS_10: u16 = u16::MAX;

    /// Creates a block from 1 to 260 bytes, which are not checked.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] for an empty block, [`FormatError::TooLong`] above 260 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, FormatError> {
        match bytes.len() {
            0 => Err(FormatError::TooShort { format: "CDB", len: 0, needed: 1 }),
            1..=Self::SHORT_LEN => Ok(Self::short(bytes)),
            17..=Self::MAX_LEN => Ok(Self(Form::Long(bytes.into()))),
            len => Err(FormatError::TooLong { format: "CDB", len, limit: Self::MAX_LEN }),
        }
    }

    /// Creates a block from the CDB field of a SCSI Command PDU, whose 16 bytes may end in padding (RFC 7143
    /// §11.3.5). The operation code determines the length; if it does not, the block has all 16 bytes.
    pub fn from_field(field: &[u8; Self::SHORT_LEN]) -> Self {
        let len = operation::cdb_len(field[0]).unwrap_or(Self::SHORT_LEN);
        Self::short(field.get(..len).unwrap_or(field))
    }

    /// Creates a short block. Invariant: `source` has at most 16 bytes; `zip` would truncate a longer one
    /// without a panic.
    pub(super) fn short(source: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT_LEN];
        let mut len = 0;
        for (to, from) in bytes.iter_mut().zip(source) {
            *to = *from;
            len += 1;
        }
        Self(Form::Short { bytes, len })
    }

    /// Returns the block as it is sent, 1 to 260 bytes, without padding.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Short { bytes, len } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Form::Long(bytes) => bytes,
        }
    }

    /// Returns the operation code: byte 0.
    pub fn operation_code(&self) -> u8 {
        match &self.0 {
            Form::Short { bytes, .. } => bytes[0],
            Form::Long(bytes) => bytes.first().copied().unwrap_or_default(),
        }
    }

    /// Returns whether the command is executed while a unit attention is pending, without reporting it (SAM-5
    /// §5.14): INQUIRY, REQUEST SENSE, REPORT LUNS.
    pub fn ignores_unit_attention(&self) -> bool {
        use operation::{INQUIRY, REPORT_LUNS, REQUEST_SENSE};
        matches!(self.operation_code(), INQUIRY | REPORT_LUNS | REQUEST_SENSE)
    }

    /// Returns whether the command writes the data of a volatile cache to the medium: SYNCHRONIZE CACHE (10)
    /// and (16) (SBC-3).
    pub fn synchronizes_cache(&self) -> bool {
        use operation::{SYNCHRONIZE_CACHE_10, SYNCHRONIZE_CACHE_16};
        matches!(self.operation_code(), SYNCHRONIZE_CACHE_10 | SYNCHRONIZE_CACHE_16)
    }

    /// Returns whether the command reads or changes blocks of the medium, or flushes them: READ, WRITE, WRITE
    /// SAME, UNMAP and SYNCHRONIZE CACHE, of 10, 12 and 16 bytes (SBC-3).
    pub fn accesses_blocks(&self) -> bool {
        operation::accesses_blocks(self.operation_code())
    }

    /// Returns whether the command reads parameter data, which contain their own length: a device sends what
    /// it has, up to the allocation length (SPC-4 §4.2.5.6). Blocks of the medium, and data of unknown
    /// commands, do not contain their length.
    pub fn reads_parameter_data(&self) -> bool {
        let Operation { code, action } = self.operation();
        operation::reads_parameter_data(code, action)
    }

    /// Returns the operation of the command.
    pub fn operation(&self) -> Operation {
        let second = match &self.0 {
            // Byte 1 is zero in a block of one byte.
            Form::Short { bytes, .. } => bytes[1],
            Form::Long(bytes) => bytes.get(1).copied().unwrap_or_default(),
        };
        Operation { code: self.operation_code(), action: second & SERVICE_ACTION }
    }

    /// Returns the range of blocks of a READ, WRITE or WRITE SAME with 10 or 16 bytes; `None` for any other
    /// command (SBC-3).
    pub fn block_range(&self) -> Option<Range<u64>> {
        let Form::Short { bytes, .. } = &self.0 else { return None };
        let [_, _, a, b, c, d, e, f, g, h, i, j, k, l, ..] = *bytes;
        let (lba, blocks) = match operation::block_address_len(bytes[0])? {
            4 => (u32::from_be_bytes([a, b, c, d]).into(), u16::from_be_bytes([f, g]).into()),
            _ => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes([i, j, k, l])),
        };
        Some(lba..lba.saturating_add(u64::from(blocks)))
    }

    /// Returns the command's name in the standard, such as "READ (16)"; "unknown command" if the operation
    /// code, or the service action of a shared operation code, is not in the table.
    pub fn operation_name(&self) -> &'static str {
        self.operation().name()
    }

    /// Creates READ (10) of `blocks` blocks from `lba` on (SBC-3). Zero blocks are legal and read nothing.
    pub fn read_10(lba: u32, blocks: u16) -> Self {
        Self::of_10(operation::READ_10, 0, lba, blocks)
    }

    /// Creates READ (16) of `blocks` blocks from `lba` on (SBC-3).
    pub fn read_16(lba: u64, blocks: u32) -> Self {
        Self::of_16(operation::READ_16, 0, lba, blocks)
    }

    /// Creates WRITE (10) of `blocks` blocks from `lba` on (SBC-3).
    pub fn write_10(lba: u32, blocks: u16) -> Self {
        Self::of_10(operation::WRITE_10, 0, lba, blocks)
    }

    /// Creates WRITE (16) of `blocks` blocks from `lba` on (SBC-3).
    pub fn write_16(lba: u64, blocks: u32) -> Self {
        Self::of_16(operation::WRITE_16, 0, lba, blocks)
    }

    /// Sets FUA in a READ or WRITE: the data is on the medium before the status is sent. Use this only if
    /// MODE SENSE reports DPOFUA. Other commands are returned unchanged.
    #[must_use]
    pub fn with_fua(mut self) -> Self {
        if let Form::Short { bytes, .. } = &mut self.0
            && operation::has_force_unit_access(bytes[0])
        {
            bytes[1] |= FORCE_UNIT_ACCESS;
        }
        self
    }

    /// Returns the ten-byte form of READ (16), WRITE (16), SYNCHRONIZE CACHE (16) or WRITE SAME (16), if the
    /// fields fit: an address below 2^32, at most 65535 blocks, no NDOB. `None` otherwise.
    pub fn in_10_bytes(&self) -> Option<Self> {
        let long: [u8; Self::SHORT_LEN] = self.as_bytes().try_into().ok()?;
        let [code, flags, 0, 0, 0, 0, e, f, g, h, 0, 0, o, p, group, control] = long else {
            return None;
        };
        let short = operation::form_of_10(code)?;
        let needs_no_data = code == operation::WRITE_SAME_16 && flags & NO_DATA_OUT_BUFFER != 0;
        (!needs_no_data).then(|| Self::short(&[short, flags, e, f, g, h, group, o, p, control]))
    }

    /// Creates SYNCHRONIZE CACHE (10), which writes cached blocks to the medium (SBC-3). Zero `blocks` means
    /// all from `lba` to the end, so (0, 0) is the whole medium.
    pub fn synchronize_cache_10(lba: u32, blocks: u16) -> Self {
        Self::of_10(operation::SYNCHRONIZE_CACHE_10, 0, lba, blocks)
    }

    /// Creates SYNCHRONIZE CACHE (16), which writes cached blocks to the medium, with a 64-bit address
    /// (SBC-3). Zero `blocks` means all from `lba` to the end.
    pub fn synchronize_cache_16(lba: u64, blocks: u32) -> Self {
        Self::of_16(operation::SYNCHRONIZE_CACHE_16, 0, lba, blocks)
    }

    /// Creates WRITE SAME (10), which writes the data of one block to `blocks` blocks (SBC-3). Zero `blocks`
    /// means all to the end of the medium; the device refuses zero if VPD page B0 sets WSNZ.
    pub fn write_same_10(lba: u32, blocks: u16, flags: WriteSameFlags) -> Self {
        Self::of_10(operation::WRITE_SAME_10, flags.bits(), lba, blocks)
    }

    /// Creates WRITE SAME (16), which writes the data of one block, or zeros, to `blocks` blocks, with a
    /// 64-bit address (SBC-3). Zero `blocks` means all to the end of the medium; the device refuses zero if
    /// VPD page B0 sets WSNZ.
    pub fn write_same_16(lba: u64, blocks: u32, flags: WriteSameFlags) -> Self {
        let ndob = if flags.ndob { NO_DATA_OUT_BUFFER } else { 0 };
        Self::of_16(operation::WRITE_SAME_16, flags.bits() | ndob, lba, blocks)
    }

    /// Creates UNMAP, which deallocates the extents of an [`UnmapList`](super::UnmapList) with this length in
    /// bytes (SBC-3).
    pub fn unmap(parameter_list_length: u16) -> Self {
        let [h, l] = parameter_list_length.to_be_bytes();
        Self::short(&[operation::UNMAP, 0, 0, 0, 0, 0, 0, h, l, 0])
    }

    /// Creates GET LBA STATUS, which reports the blocks from `lba` on that are mapped (SBC-3). The allocation
    /// length, in bytes, must be at least 24 for one descriptor.
    pub fn get_lba_status(lba: u64, allocation_length: u32) -> Self {
        Self::service_action_in_16(operation::GET_LBA_STATUS, lba, allocation_length)
    }

    /// Creates TEST UNIT READY, which has no data and returns only its status (SPC-4).
    pub fn test_unit_ready() -> Self {
        Self::short(&[operation::TEST_UNIT_READY, 0, 0, 0, 0, 0])
    }

    /// Creates INQUIRY for the standard data (SPC-4). The allocation length should be at least 36 bytes.
    pub fn inquiry(allocation_length: u16) -> Self {
        let [h, l] = allocation_length.to_be_bytes();
        Self::short(&[operation::INQUIRY, 0, 0, h, l, 0])
    }

    /// Creates INQUIRY for a vital product data page (SPC-4).
    pub fn inquiry_vpd(page: u8, allocation_length: u16) -> Self {
        let [h, l] = allocation_length.to_be_bytes();
        Self::short(&[operation::INQUIRY, 0x01, page, h, l, 0])
    }

    /// Creates READ CAPACITY (10), which returns eight bytes and is for units of up to 2^32 blocks (SBC-3).
    pub fn read_capacity_10() -> Self {
        Self::of_10(operation::READ_CAPACITY_10, 0, 0, 0)
    }

    /// Creates READ CAPACITY (16), which returns capacity and provisioning in 32 bytes (SBC-3).
    pub fn read_capacity_16(allocation_length: u32) -> Self {
        Self::service_action_in_16(operation::READ_CAPACITY_16, 0, allocation_length)
    }

    /// Creates REPORT LUNS (SPC-4). `select_report` 0 requests the units of this port, 1 the well known
    /// units, 2 both. The allocation length, in bytes, must be at least 16.
    pub fn report_luns(select_report: u8, allocation_length: u32) -> Self {
        let [a, b, c, d] = allocation_length.to_be_bytes();
        Self::short(&[operation::REPORT_LUNS, 0, select_report, 0, 0, 0, a, b, c, d, 0, 0])
    }

    /// Creates REPORT TARGET PORT GROUPS, which reports the ports of the unit and their states (SPC-4 §6.37).
    /// The allocation length, in bytes, must be at least 8.
    pub fn report_target_port_groups(header: PortGroupsHeader, allocation_length: u32) -> Self {
        let [a, b, c, d] = allocation_length.to_be_bytes();
        let action = operation::REPORT_TARGET_PORT_GROUPS | header.bits();
        Self::short(&[operation::MAINTENANCE_IN, action, 0, 0, 0, 0, a, b, c, d, 0, 0])
    }

    /// Creates SET TARGET PORT GROUPS, which requests the states in a
    /// [`SetTargetPortGroups`](super::SetTargetPortGroups) with this length in bytes (SPC-4 §6.45).
    pub fn set_target_port_groups(parameter_list_length: u32) -> Self {
        let [a, b, c, d] = parameter_list_length.to_be_bytes();
        let action = operation::SET_TARGET_PORT_GROUPS;
        Self::short(&[operation::MAINTENANCE_OUT, action, 0, 0, 0, 0, a, b, c, d, 0, 0])
    }

    /// Creates MODE SENSE (6) for the current values of a page, without block descriptors (SPC-4). Page 3Fh
    /// requests all pages.
    pub fn mode_sense_6(page: u8, allocation_length: u8) -> Self {
        let page = page & PAGE_CODE;
        Self::short(&[operation::MODE_SENSE_6, NO_BLOCK_DESCRIPTORS, page, 0, allocation_length, 0])
    }

    /// Creates MODE SENSE (10) for the current values of a page, without block descriptors (SPC-4). It
    /// returns more data than MODE SENSE (6). Page 3Fh requests all pages.
    pub fn mode_sense_10(page: u8, allocation_length: u16) -> Self {
        let [h, l] = allocation_length.to_be_bytes();
        let page = page & PAGE_CODE;
        Self::short(&[operation::MODE_SENSE_10, NO_BLOCK_DESCRIPTORS, page, 0, 0, 0, 0, h, l, 0])
    }

    /// Creates REQUEST SENSE (SPC-4). The allocation length should be 252 bytes.
    pub fn request_sense(format: SenseFormat, allocation_length: u8) -> Self {
        let desc = match format {
            SenseFormat::Fixed => 0,
            SenseFormat::Descriptor => 1,
        };
        Self::short(&[operation::REQUEST_SENSE, desc, 0, 0, allocation_length, 0])
    }

    /// Creates a block of ten bytes with address and length at the same offsets as READ (10).
    fn of_10(code: u8, flags: u8, lba: u32, blocks: u16) -> Self {
        let [a, b, c, d] = lba.to_be_bytes();
        let [h, l] = blocks.to_be_bytes();
        Self::short(&[code, flags, a, b, c, d, 0, h, l, 0])
    }

    /// Creates a block of sixteen bytes with address and length at the same offsets as READ (16).
    fn of_16(code: u8, flags: u8, lba: u64, blocks: u32) -> Self {
        let [a, b, c, d, e, f, g, h] = lba.to_be_bytes();
        let [m, n, o, p] = blocks.to_be_bytes();
        Self::short(&[code, flags, a, b, c, d, e, f, g, h, m, n, o, p, 0, 0])
    }

    fn service_action_in_16(action: u8, lba: u64, allocation_length: u32) -> Self {
        Self::of_16(operation::SERVICE_ACTION_IN_16, action, lba, allocation_length)
    }
}

/// DBD of MODE SENSE: block descriptors are omitted, because READ CAPACITY reports the same values.
const NO_BLOCK_DESCRIPTORS: u8 = 0x08;
/// Mask of the page code of MODE SENSE. If the two bits above it are zero, current values are requested.
const PAGE_CODE: u8 = 0x3f;

impl fmt::Debug for Cdb {
    /// Writes the bytes in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cdb(")?;
        for (at, byte) in self.as_bytes().iter().enumerate() {
            write!(f, "{}{byte:02x}", if at == 0 { "" } else { " " })?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Cdb {
    /// Writes the command's name, or its operation code if it has none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation_name() {
            operation::UNKNOWN => write!(f, "command {:#04x}", self.operation_code()),
            name => f.pad(name),
        }
    }
}
