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
    /// Whether the unit may have ended the command without a status. Then the command has the time limit of a
    /// task management response.
    pub(crate) may_be_cleared: bool,
    /// Boxed, so that the task of a read takes half as many cache lines.
    pub(crate) write: Option<Box<WriteTransfer>>,
    pub(crate) read: Option<ReadTransfer>,
    /// The next DataSN or R2TSN: Data-Ins and R2Ts share one counter (RFC 7143 §4.2.2.4).
    next_sn: u32,
    /// Why the task is being aborted, if it is. Boxed, because this is rare and every command has a task.
    pub(crate) aborting: Option<Box<TaskError>>,
}

/// The fields of a SCSI Response, or of a Data-In with status.
#[derive(Debug)]
pub(crate) struct Conclusion {
    pub(crate) status: Status,
    pub(crate) status_qualifier: u16,
    pub(crate) sense: Bytes,
    pub(crate) residual: Residual,
    pub(crate) bidirectional_residual: Residual,
    /// Number of Data-In and R2T PDUs that the target counted; zero from targets that do not count.
    pub(crate) exp_data_sn: DataSn,
    /// Whether write data was withdrawn from the outbox, so that the target cannot have received all of it.
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

    /// Returns the number of bytes to move, in both directions together.
    pub(crate) fn data_len(&self) -> usize {
        let written = self.write.as_deref().map_or(0, WriteTransfer::len);
        written.saturating_add(self.read.as_ref().map_or(0, ReadTransfer::len))
    }

    /// Marks all data as not sent and not received, because the command starts over.
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

    /// Returns the next DataSN or R2TSN.
    pub(crate) const fn next_data_sn(&self) -> DataSn {
        DataSn::new(self.next_sn)
    }

    pub(crate) const fn next_r2t_sn(&self) -> R2tSn {
        R2tSn::new(self.next_sn)
    }

    pub(crate) const fn count_sn(&mut self) {
        self.next_sn = self.next_sn.wrapping_add(1);
    }

    /// Returns the completion of the command. Returns an error if the status means success, but data of the
    /// command are missing or damaged.
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

    /// Returns how many of the read bytes that the target reports must have arrived for a success. Parameter
    /// data contain their own length, so they end where the target ends them, with or without a residual
    /// (SPC-4 §4.2.5.6).
    fn required(&self, accounted: usize) -> usize {
        match &self.read {
            Some(read) if self.cdb.reads_parameter_data() => accounted.min(read.contiguous()),
            _ => accounted,
        }
    }

    /// Checks that all read data have arrived. Some targets leave ExpDataSN at zero, so the bytes are counted
    /// too.
    fn check_read(&self, expected: usize, exp_data_sn: DataSn) -> Result<(), TaskError> {
        let Some(read) = &self.read else { return Ok(()) };
        let transferred = read.contiguous();
        if transferred < expected || exp_data_sn.is_after(self.next_data_sn()) {
            return Err(TaskError::DataMissing { expected, transferred });
        }
        Ok(())
    }
}

/// Returns how many of `len` bytes were transferred, by the residual that the target reports.
fn after(len: usize, residual: Residual) -> usize {
    match residual {
        Residual::Underflow(left) => len.saturating_sub(left as usize),
        Residual::None | Residual::Overflow(_) => len,
    }
}
