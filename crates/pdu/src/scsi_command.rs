//! SCSI Command (RFC 7143 §11.3) and its Additional Header Segments (§11.2.2).

use bytes::{BufMut, Bytes, BytesMut};

use crate::bhs::{Bhs, Header};
use crate::common_fields::{FINAL, flag};
use crate::error::DecodeError;
use crate::opcode::InitiatorOpcode;
use crate::scsi::{Cdb, Lun};
use crate::serial::{CmdSn, StatSn};
use crate::tag::Itt;

const PDU: &str = "SCSI Command";

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTRIBUTE: u8 = 0x07;

const PRIORITY: usize = 2;
const EXPECTED_LENGTH: usize = 20;
const CDB: usize = 32;

/// Mask of the code in AHSType; the other bits are reserved.
const AHS_CODE: u8 = 0x3f;
/// AHSType: the rest of a CDB that does not fit the BHS.
const EXTENDED_CDB: u8 = 1;
/// AHSType: the expected length of the read half of a bidirectional command.
const READ_LENGTH: u8 = 2;

/// A SCSI command (RFC 7143 §11.3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiCommand {
    /// I: consumes no CmdSN.
    pub immediate: bool,
    /// F: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// R: data is expected from the target.
    pub read: bool,
    /// W: data goes to the target.
    pub write: bool,
    /// The task attribute.
    pub attribute: TaskAttribute,
    /// Command priority, 0 to 15; 0 below iSCSIProtocolLevel 2 (RFC 7144).
    pub priority: u8,
    /// The logical unit.
    pub lun: Lun,
    /// Initiator task tag of the command.
    pub itt: Itt,
    /// Number of bytes to transfer; for a bidirectional command, number of bytes to write.
    pub expected_data_transfer_length: u32,
    /// CmdSN: consumed unless the request is immediate.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
    /// The command descriptor block; the bytes after the first 16 are sent in an Additional Header Segment.
    pub cdb: Cdb,
    /// Number of bytes to read, for a bidirectional command.
    pub bidirectional_read_length: Option<u32>,
}

/// The task attribute of a SCSI command (RFC 7143 §11.3.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum TaskAttribute {
    /// No attribute; the target uses its default.
    Untagged = 0,
    /// The command may be executed in any order with other simple tasks.
    #[default]
    Simple = 1,
    /// The command is executed after all older tasks, and before all younger ones.
    Ordered = 2,
    /// The command is executed before all others.
    HeadOfQueue = 3,
    /// The command is part of an auto contingent allegiance.
    Aca = 4,
}

impl TaskAttribute {
    fn decode(flags: u8) -> Result<Self, DecodeError> {
        Ok(match flags & ATTRIBUTE {
            0 => Self::Untagged,
            1 => Self::Simple,
            2 => Self::Ordered,
            3 => Self::HeadOfQueue,
            4 => Self::Aca,
            value => {
                return Err(DecodeError::Field { pdu: PDU, field: "ATTR", value: value.into() });
            }
        })
    }
}

impl ScsiCommand {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Header {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::ScsiCommand as u8, self.immediate);
        bhs.put_flags(self.flags());
        bhs.put_u8(PRIORITY, self.priority << 4);
        bhs.put_lun(self.lun);
        bhs.put_itt(Some(self.itt));
        bhs.put_u32(EXPECTED_LENGTH, self.expected_data_transfer_length);
        bhs.put_request_numbers(self.cmd_sn, self.exp_stat_sn);
        let cdb = self.cdb.as_bytes();
        let (short, rest) = cdb.split_at_checked(Cdb::SHORT_LEN).unwrap_or((cdb, &[]));
        bhs.put(CDB, short);
        let ahs = encode_ahs(rest, self.bidirectional_read_length);
        bhs.set_ahs_len(ahs.len());
        Header { bhs, ahs }
    }

    fn flags(&self) -> u8 {
        flag(self.is_final, FINAL)
            | flag(self.read, READ)
            | flag(self.write, WRITE)
            | self.attribute as u8
    }

    /// Reads a header with its Additional Header Segments.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one, the task attribute is unknown, F and W are
    /// both missing, or an Additional Header Segment is malformed.
    pub fn decode(header: &Header) -> Result<Self, DecodeError> {
        let bhs = &header.bhs;
        if !bhs.has_flag(FINAL | WRITE) {
            let value = bhs.flags().into();
            return Err(DecodeError::Field { pdu: PDU, field: "flags without F and W", value });
        }
        let segments = Segments::decode(&header.ahs)?;
        Ok(Self {
            immediate: bhs.immediate(),
            is_final: bhs.has_flag(FINAL),
            read: bhs.has_flag(READ),
            write: bhs.has_flag(WRITE),
            attribute: TaskAttribute::decode(bhs.flags())?,
            priority: bhs.u8_at(PRIORITY) >> 4,
            lun: bhs.lun(),
            itt: bhs.task_itt(PDU)?,
            expected_data_transfer_length: bhs.u32_at(EXPECTED_LENGTH),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
            cdb: segments.cdb(bhs.array_at(CDB))?,
            bidirectional_read_length: segments.read_length,
        })
    }
}

fn encode_ahs(extended_cdb: &[u8], read_length: Option<u32>) -> Bytes {
    let mut ahs = BytesMut::new();
    if !extended_cdb.is_empty() {
        // AHSLength counts the bytes after the type; the first of them is reserved. A CDB has at most 260
        // bytes, so the length always fits.
        ahs.put_u16(u16::try_from(extended_cdb.len() + 1).unwrap_or(u16::MAX));
        ahs.put_slice(&[EXTENDED_CDB, 0]);
        ahs.put_slice(extended_cdb);
        ahs.resize(ahs.len().next_multiple_of(4), 0);
    }
    if let Some(length) = read_length {
        ahs.put_u16(5);
        ahs.put_slice(&[READ_LENGTH, 0]);
        ahs.put_u32(length);
    }
    ahs.freeze()
}

/// The Additional Header Segments of a command.
#[derive(Debug, Default)]
struct Segments<'a> {
    extended_cdb: Option<&'a [u8]>,
    read_length: Option<u32>,
}

impl<'a> Segments<'a> {
    /// Reads the segments, and skips segments of other types.
    fn decode(mut ahs: &'a [u8]) -> Result<Self, DecodeError> {
        let mut segments = Self::default();
        while let Some((&[high, low, kind], rest)) = ahs.split_first_chunk::<3>() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let content = rest.get(..len).ok_or(DecodeError::Ahs("it is cut short"))?;
            segments.take(kind & AHS_CODE, content)?;
            let padded = (3 + len).next_multiple_of(4);
            ahs = ahs.get(padded..).unwrap_or_default();
        }
        if ahs.is_empty() { Ok(segments) } else { Err(DecodeError::Ahs("it is cut short")) }
    }

    /// Stores the bytes of one segment, without the first one, which is reserved.
    fn take(&mut self, code: u8, content: &'a [u8]) -> Result<(), DecodeError> {
        let value = content.get(1..).unwrap_or_default();
        let is_repeated = match code {
            EXTENDED_CDB => self.extended_cdb.replace(non_empty(value)?).is_some(),
            READ_LENGTH => self.read_length.replace(length(value)?).is_some(),
            _ => false,
        };
        if is_repeated { Err(DecodeError::Ahs("it comes twice")) } else { Ok(()) }
    }

    /// Returns the whole CDB; `field` is its part in the BHS.
    fn cdb(&self, field: [u8; Cdb::SHORT_LEN]) -> Result<Cdb, DecodeError> {
        match self.extended_cdb {
            None => Ok(Cdb::from_field(&field)),
            Some(rest) => Cdb::new(&[&field[..], rest].concat())
                .map_err(|_| DecodeError::Ahs("the extended CDB is longer than 260 bytes")),
        }
    }
}

fn non_empty(rest: &[u8]) -> Result<&[u8], DecodeError> {
    if rest.is_empty() { Err(DecodeError::Ahs("the extended CDB is empty")) } else { Ok(rest) }
}

fn length(value: &[u8]) -> Result<u32, DecodeError> {
    let bytes = value.try_into().map_err(|_| DecodeError::Ahs("a length is 4 bytes"))?;
    Ok(u32::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(cdb: &[u8]) -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: true,
            write: false,
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::ZERO,
            itt: Itt::new(7).unwrap(),
            expected_data_transfer_length: 512,
            cmd_sn: CmdSn::new(1),
            exp_stat_sn: StatSn::new(2),
            cdb: Cdb::new(cdb).unwrap(),
            bidirectional_read_length: None,
        }
    }

    #[test]
    fn wr_22_lay_03_long_cdb_goes_to_an_ahs() {
        let header = command(&[0x7f; 32]).encode();
        assert_eq!(header.bhs.ahs_len(), 20);
        // AHSLength = CDB length - 15.
        assert_eq!(header.ahs[..4], [0, 17, 1, 0]);
        assert_eq!(ScsiCommand::decode(&header), Ok(command(&[0x7f; 32])));
        let odd = command(&[0x7f; 17]).encode();
        assert_eq!((odd.ahs.len(), &odd.ahs[..4]), (8, &[0, 2, 1, 0][..]));
        assert_eq!(ScsiCommand::decode(&odd), Ok(command(&[0x7f; 17])));
    }

    #[test]
    fn wr_22_lay_03_bidirectional_length() {
        let command = ScsiCommand {
            write: true,
            bidirectional_read_length: Some(0x0102_0304),
            ..command(&[0x53; 10])
        };
        let header = command.encode();
        assert_eq!(header.ahs[..], [0, 5, 2, 0, 1, 2, 3, 4]);
        assert_eq!(header.bhs.as_bytes()[1], 0xe1);
        assert_eq!(ScsiCommand::decode(&header), Ok(command));
    }

    #[test]
    fn malformed_segments_are_errors() {
        for ahs in
            [&[0][..], &[0, 9, 1, 0], &[0, 1, 1, 0], &[0, 4, 2, 0, 1, 2, 3, 0], &[0, 0, 2, 0]]
        {
            let header = Header { ahs: Bytes::copy_from_slice(ahs), ..command(&[0; 6]).encode() };
            assert!(ScsiCommand::decode(&header).is_err(), "{ahs:?}");
        }
    }

    #[test]
    fn segments_of_other_types_and_reserved_bits_are_ignored() {
        let decode = |ahs: &'static [u8]| {
            let ahs = Bytes::from_static(ahs);
            ScsiCommand::decode(&Header { ahs, ..command(&[0; 6]).encode() }).unwrap()
        };
        assert_eq!(decode(&[0, 1, 0x3f, 0]), command(&[0; 6]));
        let read = decode(&[0, 5, 0xc2, 0xff, 0, 0, 0, 9]);
        assert_eq!(read.bidirectional_read_length, Some(9));
    }

    #[test]
    fn a_segment_comes_once() {
        let twice = [[0, 5, 2, 0, 0, 0, 0, 9]; 2].concat();
        let header = Header { ahs: Bytes::from(twice), ..command(&[0; 6]).encode() };
        assert_eq!(ScsiCommand::decode(&header), Err(DecodeError::Ahs("it comes twice")));
    }

    #[test]
    fn a_command_without_f_and_w_is_an_error() {
        let mut header = command(&[0; 6]).encode();
        header.bhs.put_flags(READ);
        assert!(ScsiCommand::decode(&header).is_err());
        header.bhs.put_flags(WRITE);
        assert!(ScsiCommand::decode(&header).is_ok());
    }

    #[test]
    fn unknown_attributes_are_errors() {
        let mut header = command(&[0; 6]).encode();
        header.bhs.put_u8(1, 0x85);
        assert!(ScsiCommand::decode(&header).is_err());
    }
}
