//! SCSI commands of the caller, and their completions.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_pdu::scsi::{Cdb, Lun, Sense, SenseKey, Status};
use iscsi_pdu::{Residual, TaskAttribute};

use super::payload::Payload;
use super::read_buffer::ReadBuffer;

/// A SCSI command (RFC 7143 §11.3).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Command {
    /// The logical unit that executes the command.
    pub lun: Lun,
    /// The command descriptor block, 1 to 260 bytes.
    pub cdb: Cdb,
    /// The task attribute; Simple by default.
    pub attribute: TaskAttribute,
    /// Whether the command is immediate, that is, sent outside the command window; not meant for ordinary
    /// I/O.
    pub immediate: bool,
    /// Data to the target, at most 2^32-1 bytes; `None` for a command that does not write.
    pub write: Option<Payload>,
    /// Buffer for data from the target: its length is the expected length, at most 2^32-1 bytes. `None` for a
    /// command that does not read.
    pub read: Option<ReadBuffer>,
    /// Time limit of this command; `None` means the time limit in the session's configuration.
    pub timeout: Option<Duration>,
}

impl Command {
    /// Creates a command without data.
    pub const fn new(lun: Lun, cdb: Cdb) -> Self {
        Self {
            lun,
            cdb,
            attribute: TaskAttribute::Simple,
            immediate: false,
            write: None,
            read: None,
            timeout: None,
        }
    }

    /// Adds data to be sent to the target.
    #[must_use]
    pub fn with_write(mut self, payload: impl Into<Payload>) -> Self {
        self.write = Some(payload.into());
        self
    }

    /// Adds a buffer in which data from the target is stored.
    #[must_use]
    pub fn with_read(mut self, buffer: impl Into<ReadBuffer>) -> Self {
        self.read = Some(buffer.into());
        self
    }

    /// Sets the time limit of this command.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// The response of the target to a SCSI command, whatever its status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The SCSI status, as the target sent it.
    pub status: Status,
    /// Status Qualifier; zero below iSCSIProtocolLevel 2 (RFC 7144).
    pub status_qualifier: u16,
    /// Sense data; empty unless the status comes with sense data.
    pub sense: Bytes,
    /// Number of bytes left over or missing in the transfer.
    pub residual: Residual,
    /// Number of bytes left over or missing in the read half of a bidirectional command.
    pub bidirectional_residual: Residual,
    /// The read buffer, cut to the number of bytes that the target reports as sent. Parameter data
    /// ([`Cdb::reads_parameter_data`]) is cut to the bytes that arrived. Empty for commands that do not read.
    pub data: BytesMut,
}

impl Completion {
    /// Returns whether the unit has executed the command: the status is GOOD or CONDITION MET (SAM-5 §5.3),
    /// or CHECK CONDITION with the sense key RECOVERED ERROR for this command, which reports success after a
    /// recovery (SPC-4 §4.5.6).
    pub fn is_success(&self) -> bool {
        is_success(self.status, &self.sense)
    }
}

/// Returns whether a status and its sense data mean success; see [`Completion::is_success`].
pub(super) fn is_success(status: Status, sense: &[u8]) -> bool {
    match status {
        Status::GOOD | Status::CONDITION_MET => true,
        Status::CHECK_CONDITION => Sense::decode(sense)
            .is_ok_and(|sense| sense.key == SenseKey::RecoveredError && !sense.deferred),
        _ => false,
    }
}
