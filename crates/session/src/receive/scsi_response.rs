//! SCSI Responses (RFC 7143 §11.4).

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::scsi::Status;
use iscsi_pdu::{Cid, Itt, ScsiResponse, ServiceResponse, TargetOpcode, sense_of};

use crate::error::{ProtocolError, SessionError, TaskError};
use crate::output::Output;
use crate::session::Session;
use crate::task::TaskKind;
use crate::task::scsi::{Conclusion, ScsiTask};
use crate::task::write::WriteTransfer;

impl Session {
    pub(super) fn receive_scsi_response(
        &mut self,
        cid: Cid,
        response: &ScsiResponse,
        data: &Bytes,
        now: Instant,
    ) -> Result<(), SessionError> {
        if !self.take_answer(cid, response.itt, response.stat_sn)? {
            return Ok(());
        }
        let completed = response.response == ServiceResponse::COMPLETED_AT_TARGET;
        if completed && response.status == Status::CHECK_CONDITION {
            self.on_cleared_commands(response.itt, &sense_of(data), now);
        }
        let Some((task, withdrawn)) =
            self.conclude_scsi(cid, response.itt, TargetOpcode::ScsiResponse)?
        else {
            return Ok(());
        };
        let result = if completed {
            task.conclude(Conclusion {
                status: response.status,
                status_qualifier: response.status_qualifier,
                sense: sense_of(data),
                residual: response.residual,
                bidirectional_residual: response.bidirectional_residual,
                exp_data_sn: response.exp_data_sn,
                withdrawn,
            })
        } else {
            Err(TaskError::TargetFailure(response.response))
        };
        self.outputs.push(Output::Completed { itt: response.itt, result });
        Ok(())
    }

    /// Removes the command that a status ends, and discards what the command still had to send.
    pub(super) fn conclude_scsi(
        &mut self,
        cid: Cid,
        itt: Itt,
        response: TargetOpcode,
    ) -> Result<Option<(ScsiTask, bool)>, ProtocolError> {
        let is_scsi = |kind: &TaskKind| matches!(kind, TaskKind::Scsi(_));
        let Some(task) = self.take_task(cid, itt, response, is_scsi)? else { return Ok(None) };
        // A command that only reads has nothing more to send after its command PDU.
        let has_data_due = task.write().map(WriteTransfer::has_data_due);
        let withdrawn = has_data_due.is_some_and(|is_due| self.connections.forget(itt) || is_due);
        self.forget_aborts_of(itt);
        match task.kind {
            TaskKind::Scsi(scsi) => Ok(Some((scsi, withdrawn))),
            TaskKind::Management(_)
            | TaskKind::Text(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => Ok(None),
        }
    }
}
