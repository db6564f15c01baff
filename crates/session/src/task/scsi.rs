//! A SCSI command in flight.

use bytes::{Bytes, BytesMut};
use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_pdu::{DataSn, R2tSn, Residual, TaskAttribute};

use super::command::{Command, Completion, is_success};
use super::read::ReadTransfer;
use super::write::WriteTransfer;
use crate::error::TaskError;

/// A SCSI command and its transfers.
#[derive(Debug)]
pub(crate) struct ScsiTask {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    pub(crate) attribute: TaskAttribute,
    pub(crate) immediate: bool,
    /// Whether the unit may have ended the command without a status, so that it has the time limit of a task
    /// management response.
    pub(crate) may_be_cleared: bool,
    /// Boxed, so that the task of a read takes half as many cache lines.
    pub(crate) write: Option<Box<WriteTransfer>>,
    pub(crate) read: Option<ReadTransfer>,
    /// The number of the next Data-In or R2T: they share one count (RFC 7143 §4.2.2.4).
    next_sn: u32,
    /// Why the task is being aborted, if it is. Boxed, since this is rare and every command has a task.
    pub(crate) aborting: Option<Box<TaskError>>,
}

/// The content of a response PDU or of a Data-In with status.
#[derive(Debug)]
pub(crate) struct Conclusion {
    pub(crate) status: Status,
    pub(crate) status_qualifier: u16,
    pub(crate) sense: Bytes,
    pub(crate) residual: Residual,
    pub(crate) bidirectional_residual: Residual,
    /// Data-In and R2T PDUs the target counted; zero from targets that do not count.
    pub(crate) exp_data_sn: DataSn,
    /// Whether write data was taken back from the outbox, so that the target cannot have received it.
    pub(crate) withdrawn: bool,
}

impl ScsiTask {
    pub(crate) fn new(command: Command) -> Self {
        Self {
            lun: command.lun,
            cdb: command.cdb,
            attribute: command.attribute,
            immediate: command.immediate,
            may_be_cleared: false,
            write: command.write.map(|payload| Box::new(WriteTransfer::new(payload))),
            read: command.read.map(ReadTransfer::new),
            next_sn: 0,
            aborting: None,
        }
    }

    /// The data to move, both ways together, bytes.
    pub(crate) fn data_len(&self) -> usize {
        let written = self.write.as_deref().map_or(0, WriteTransfer::len);
        written.saturating_add(self.read.as_ref().map_or(0, ReadTransfer::len))
    }

    /// Forgets what has been sent and received of it.
    pub(crate) fn start_over(&mut self) {
        self.next_sn = 0;
        self.may_be_cleared = false;
        if let Some(write) = &mut self.write {
            write.start_over();
        }
        if let Some(read) = &mut self.read {
            read.start_over();
        }
    }

    /// The DataSN or R2TSN that comes next.
    pub(crate) const fn next_data_sn(&self) -> DataSn {
        DataSn::new(self.next_sn)
    }

    pub(crate) const fn next_r2t_sn(&self) -> R2tSn {
        R2tSn::new(self.next_sn)
    }

    pub(crate) const fn count_sn(&mut self) {
        self.next_sn = self.next_sn.wrapping_add(1);
    }

    /// Checks the end of the command: a status that means success counts only if the bytes that it covers were
    /// transferred.
    pub(crate) fn conclude(self, end: Conclusion) -> Result<Completion, TaskError> {
        let bidirectional = self.write.is_some() && self.read.is_some();
        let read_residual = if bidirectional { end.bidirectional_residual } else { end.residual };
        let write_len = self.write.as_deref().map_or(0, WriteTransfer::len);
        let read_len = self.read.as_ref().map_or(0, ReadTransfer::len);
        let written = if self.write.is_some() { after(write_len, end.residual) } else { 0 };
        let wanted = self.required(after(read_len, read_residual));
        if is_success(end.status, &end.sense) {
            if self.is_damaged() {
                return Err(TaskError::DataDigest);
            }
            self.check_write(written, end.withdrawn)?;
            self.check_read(wanted, end.exp_data_sn)?;
        }
        let landed = self.read.as_ref().map_or(0, ReadTransfer::contiguous).min(wanted);
        Ok(Completion {
            status: end.status,
            status_qualifier: end.status_qualifier,
            sense: end.sense,
            residual: end.residual,
            bidirectional_residual: end.bidirectional_residual,
            data: self.read.map_or_else(BytesMut::new, |read| read.into_buffer(landed)),
        })
    }

    fn check_write(&self, expected: usize, withdrawn: bool) -> Result<(), TaskError> {
        let Some(write) = &self.write else { return Ok(()) };
        let transferred = write.contiguous();
        if transferred < expected || (withdrawn && expected == write.len()) {
            return Err(TaskError::DataMissing { expected, transferred });
        }
        Ok(())
    }

    /// Returns how many of the read bytes that the target accounts for are necessary for a good status. Parameter
    /// data contain their own length, so they end where the target ends them, with a residual or without (SPC-4
    /// §4.2.5.6).
    fn required(&self, accounted: usize) -> usize {
        match &self.read {
            Some(read) if self.cdb.reads_parameter_data() => accounted.min(read.contiguous()),
            _ => accounted,
        }
    }

    /// Checks that all read data have arrived. Some targets leave ExpDataSN at zero, so the bytes are counted as
    /// well.
    fn check_read(&self, expected: usize, exp_data_sn: DataSn) -> Result<(), TaskError> {
        let Some(read) = &self.read else { return Ok(()) };
        let transferred = read.contiguous();
        if transferred < expected || exp_data_sn.is_after(self.next_data_sn()) {
            return Err(TaskError::DataMissing { expected, transferred });
        }
        Ok(())
    }
}

/// Returns the bytes that were transferred of `len`, as the target reports them.
fn after(len: usize, residual: Residual) -> usize {
    match residual {
        Residual::Underflow(left) => len.saturating_sub(left as usize),
        Residual::None | Residual::Overflow(_) => len,
    }
}
