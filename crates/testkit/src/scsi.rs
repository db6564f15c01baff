//! The SCSI side of the target: what a command moves, and what it answers.

mod capacity;
mod inquiry;
mod lun;
mod mode;
mod provisioning;
mod sense;
mod transfer;
mod unit;
mod vital;

use bytes::Bytes;

use crate::disk::RamDisk;

pub use lun::LunForm;
pub use sense::Sense;
pub use unit::Unit;

/// SCSI status codes the target gives (SAM-5 §5.3).
pub mod status {
    /// The command did what it should.
    pub const GOOD: u8 = 0x00;
    /// Sense data say what went wrong.
    pub const CHECK_CONDITION: u8 = 0x02;
    /// The unit cannot take a command now.
    pub const BUSY: u8 = 0x08;
    /// Another initiator holds a reservation.
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    /// Too many commands are queued.
    pub const TASK_SET_FULL: u8 = 0x28;
    /// Another initiator aborted the task.
    pub const TASK_ABORTED: u8 = 0x40;
}

/// Operation codes (SPC-4, SBC-3).
pub(crate) mod operation {
    pub(crate) const TEST_UNIT_READY: u8 = 0x00;
    pub(crate) const REQUEST_SENSE: u8 = 0x03;
    pub(crate) const INQUIRY: u8 = 0x12;
    pub(crate) const MODE_SENSE_6: u8 = 0x1a;
    pub(crate) const READ_CAPACITY_10: u8 = 0x25;
    pub(crate) const READ_10: u8 = 0x28;
    pub(crate) const WRITE_10: u8 = 0x2a;
    pub(crate) const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub(crate) const WRITE_SAME_10: u8 = 0x41;
    pub(crate) const UNMAP: u8 = 0x42;
    pub(crate) const MODE_SENSE_10: u8 = 0x5a;
    pub(crate) const READ_16: u8 = 0x88;
    pub(crate) const WRITE_16: u8 = 0x8a;
    pub(crate) const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub(crate) const WRITE_SAME_16: u8 = 0x93;
    pub(crate) const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub(crate) const REPORT_LUNS: u8 = 0xa0;
}

/// What a command moves.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing; its status is GOOD.
    Done,
    /// Data to the initiator.
    Send(Source),
    /// Data from the initiator, this many bytes by the CDB.
    Take(Sink, u64),
}

/// Where read data come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Bytes(Bytes),
    Disk { disk: RamDisk, offset: u64, length: u64 },
}

/// Where write data go.
#[derive(Debug)]
pub(crate) enum Sink {
    Disk { disk: RamDisk, offset: u64 },
    Parameters(Vec<u8>),
    Discard,
}

impl Source {
    /// How many bytes there are.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Disk { length, .. } => *length,
        }
    }

    /// A piece of the data.
    pub(crate) fn read(&self, from: u32, length: u32) -> Bytes {
        let (start, end) = (from as usize, from as usize + length as usize);
        match self {
            Self::Bytes(bytes) => bytes.slice(start.min(bytes.len())..end.min(bytes.len())),
            Self::Disk { disk, offset, .. } => disk.read(offset + u64::from(from), length as usize),
        }
    }
}

impl Sink {
    /// Takes a piece of the data.
    pub(crate) fn write(&mut self, at: u32, data: &[u8]) {
        match self {
            Self::Disk { disk, offset } => disk.write(*offset + u64::from(at), data),
            Self::Parameters(bytes) => {
                let end = at as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(data);
            }
            Self::Discard => {}
        }
    }

    /// The parameter list that came, empty for a disk.
    pub(crate) fn parameters(&self) -> &[u8] {
        match self {
            Self::Parameters(bytes) => bytes,
            Self::Disk { .. } | Self::Discard => &[],
        }
    }
}

/// Starts a command for a unit that exists.
pub(crate) fn begin(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    if unit.shape.refused.contains(&cdb[0]) {
        return Err(Sense::INVALID_OPCODE);
    }
    match cdb[0] {
        operation::TEST_UNIT_READY => Ok(Work::Done),
        operation::REQUEST_SENSE => Ok(answer(Sense::NONE.fixed().to_vec(), u64::from(cdb[4]))),
        operation::INQUIRY => inquiry::inquiry(unit, cdb),
        operation::MODE_SENSE_6 | operation::MODE_SENSE_10 => mode::mode_sense(unit, cdb),
        operation::READ_CAPACITY_10 => Ok(capacity::capacity_10(unit)),
        operation::SERVICE_ACTION_IN_16 => capacity::service_action_in(unit, cdb),
        operation::READ_10 | operation::READ_16 => transfer::read(unit, cdb),
        operation::WRITE_10 | operation::WRITE_16 => transfer::write(unit, cdb),
        operation::SYNCHRONIZE_CACHE_10 | operation::SYNCHRONIZE_CACHE_16 => {
            transfer::synchronize(unit, cdb)
        }
        operation::UNMAP => provisioning::begin_unmap(unit, cdb),
        operation::WRITE_SAME_10 | operation::WRITE_SAME_16 => {
            provisioning::begin_write_same(unit, cdb)
        }
        _ => Err(Sense::INVALID_OPCODE),
    }
}

/// Ends a command whose parameter list has come.
pub(crate) fn finish(unit: &Unit, cdb: [u8; 16], parameters: &[u8]) -> Result<(), Sense> {
    match cdb[0] {
        operation::UNMAP => provisioning::unmap(unit, parameters),
        operation::WRITE_SAME_10 | operation::WRITE_SAME_16 => {
            provisioning::write_same(unit, cdb, parameters)
        }
        _ => Ok(()),
    }
}

/// Starts a command for a LUN that does not exist.
pub(crate) fn begin_absent(cdb: [u8; 16]) -> Result<Work, Sense> {
    match cdb[0] {
        operation::INQUIRY => Ok(inquiry::absent(cdb)),
        operation::REQUEST_SENSE => {
            Ok(answer(Sense::INVALID_LUN.fixed().to_vec(), u64::from(cdb[4])))
        }
        _ => Err(Sense::INVALID_LUN),
    }
}

/// The list of units, which any LUN answers (SPC-4 §6.33).
pub(crate) fn report_luns(luns: impl Iterator<Item = u16>, form: LunForm, cdb: [u8; 16]) -> Work {
    let entries: Vec<u8> = luns.flat_map(|lun| form.encode(lun).to_be_bytes()).collect();
    let mut list = crate::convert::len32(entries.len()).to_be_bytes().to_vec();
    list.extend([0; 4]);
    list.extend(entries);
    answer(list, u64::from(be32(&cdb[6..])))
}

/// Whether the command is served although a unit attention is pending (SPC-4 §5.9).
pub(crate) const fn ignores_unit_attention(operation: u8) -> bool {
    matches!(operation, operation::INQUIRY | operation::REPORT_LUNS | operation::REQUEST_SENSE)
}

/// Read data cut at the allocation length of the CDB.
fn answer(mut data: Vec<u8>, allocation: u64) -> Work {
    data.truncate(crate::convert::index(allocation));
    Work::Send(Source::Bytes(Bytes::from(data)))
}

/// Up to eight bytes from the front of `bytes`, big-endian.
fn be(bytes: &[u8], width: usize) -> u64 {
    bytes.iter().take(width).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn be32(bytes: &[u8]) -> u32 {
    crate::convert::clamp32(be(bytes, 4))
}
