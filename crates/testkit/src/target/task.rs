//! A SCSI command from its arrival to its status.

use std::time::Duration;

use super::write::WriteTransfer;
use crate::conn_id::ConnId;
use crate::pdu::Pdu;
use crate::scsi::{Sense, Unit, status};

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) connection: ConnId,
    pub(crate) itt: u32,
    pub(crate) lun: u64,
    pub(crate) cdb: [u8; 16],
    pub(crate) edtl: u32,
    pub(crate) immediate: bool,
    /// Whether the task attribute is SIMPLE, so that the unit may reorder the command (SAM-5 §8.6).
    pub(crate) simple: bool,
    /// Number of bytes that the command moves, by its CDB.
    pub(crate) length: u64,
    pub(crate) write: Option<WriteTransfer>,
    pub(crate) outcome: Outcome,
    pub(crate) delays: Delays,
    /// The unit that executes the command, if another unit has replaced it meanwhile.
    pub(crate) unit: Option<Box<Unit>>,
}

/// Delays of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delays {
    /// Delay of the command's read data and status.
    pub(crate) answer: Duration,
    /// Delay of the command's execution after its data have arrived.
    pub(crate) execution: Duration,
}

impl Task {
    pub(crate) fn new(connection: ConnId, pdu: &Pdu) -> Self {
        Self {
            connection,
            itt: pdu.itt(),
            lun: pdu.lun(),
            cdb: pdu.cdb(),
            edtl: pdu.edtl(),
            immediate: pdu.immediate(),
            simple: pdu.has_simple_attribute(),
            length: 0,
            write: None,
            outcome: Outcome::GOOD,
            delays: Delays::default(),
            unit: None,
        }
    }

    /// Returns the residual flag and count of the response (RFC 7143 §11.4.5).
    pub(crate) fn residual(&self) -> (u8, u32) {
        residual(self.edtl, self.length)
    }
}

/// Returns the flag and the count of an overflow or underflow, for a command that moves `length` bytes with
/// the expected length `edtl`.
pub(crate) fn residual(edtl: u32, length: u64) -> (u8, u32) {
    let edtl = u64::from(edtl);
    if length > edtl {
        (0x04, crate::convert::clamp32(length - edtl))
    } else if length < edtl {
        (0x02, crate::convert::clamp32(edtl - length))
    } else {
        (0, 0)
    }
}

/// Status and sense data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// SCSI status.
    pub status: u8,
    /// Sense data, if the status has any.
    pub sense: Option<Sense>,
}

impl Outcome {
    /// The command succeeded.
    pub const GOOD: Self = Self { status: status::GOOD, sense: None };

    /// Creates CHECK CONDITION with sense data.
    #[must_use]
    pub const fn check(sense: Sense) -> Self {
        Self { status: status::CHECK_CONDITION, sense: Some(sense) }
    }

    /// Creates a status without sense data.
    #[must_use]
    pub const fn status(status: u8) -> Self {
        Self { status, sense: None }
    }
}
