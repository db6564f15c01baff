//! Data-In, with and without status (RFC 7143 §11.7).

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::{Cid, DataIn, Residual, TargetOpcode, TargetPdu};

use crate::connection::inbox::Received;
use crate::error::{SessionError, TaskError};
use crate::output::Output;
use crate::session::Session;
use crate::task::scsi::{Conclusion, ScsiTask};

impl Session {
    /// Counts the data of a Data-In, which is stored already. The data is counted even if the status of the PDU
    /// is ignored.
    pub(super) fn count_data(&mut self, received: &Received) {
        let TargetPdu::DataIn(data_in) = &received.pdu else { return };
        if received.discarded {
            return;
        }
        if let Some(task) = self.tasks.get_mut(data_in.itt).and_then(|task| task.as_scsi_mut()) {
            task.landed(data_in, received.data_len);
        }
        self.stats.data_in_bytes += received.data_len as u64;
    }

    pub(super) fn receive_data_in(
        &mut self,
        cid: Cid,
        data_in: &DataIn,
    ) -> Result<(), SessionError> {
        let Some(status) = &data_in.status else { return Ok(()) };
        if !self.take_answer(cid, data_in.itt, status.stat_sn)? {
            return Ok(());
        }
        let Some((task, withdrawn)) = self.conclude_scsi(cid, data_in.itt, TargetOpcode::DataIn)?
        else {
            return Ok(());
        };
        let exp_data_sn = task.next_data_sn();
        let result = task.conclude(Conclusion {
            status: status.status,
            status_qualifier: 0,
            sense: Bytes::new(),
            residual: status.residual,
            bidirectional_residual: Residual::None,
            exp_data_sn,
            withdrawn,
        });
        self.outputs.push(Output::Completed { itt: data_in.itt, result });
        Ok(())
    }

    /// Drops a Data-In whose data was discarded. If it carries a status, its StatSN is counted. The status
    /// also ends a task whose data arrived damaged, and that still waits for the response to its ABORT TASK.
    pub(super) fn receive_late_data(
        &mut self,
        cid: Cid,
        pdu: &TargetPdu,
    ) -> Result<(), SessionError> {
        let TargetPdu::DataIn(data_in) = pdu else { return Ok(()) };
        let Some(status) = &data_in.status else { return Ok(()) };
        if self.take_answer(cid, data_in.itt, status.stat_sn)?
            && self.tasks.get(data_in.itt).is_some()
        {
            self.end_task(data_in.itt, TaskError::DataDigest);
        }
        Ok(())
    }

    /// Aborts the task of a damaged Data-In, because the bytes in its buffer are not reliable.
    pub(super) fn data_in_damaged(&mut self, _cid: Cid, data_in: &DataIn, now: Instant) {
        self.abort_for(data_in.itt, TaskError::DataDigest, now);
        if let Some(task) = self.tasks.get_mut(data_in.itt).and_then(|task| task.as_scsi_mut()) {
            task.aborting = Some(Box::new(TaskError::DataDigest));
        }
    }
}

impl ScsiTask {
    /// Counts the DataSN of a Data-In, and records its range as received, when its data is stored.
    fn landed(&mut self, data_in: &DataIn, len: usize) {
        self.count_sn();
        if let Some(read) = &mut self.read {
            read.landed(data_in, len);
        }
    }

    /// Returns whether data of the task arrived damaged, so that the task fails whatever its status is.
    pub(crate) fn is_damaged(&self) -> bool {
        self.aborting.as_deref() == Some(&TaskError::DataDigest)
    }
}
