//! SCSI Responses (RFC 7143 §11.4).

use bytes::Bytes;
use iscsi_pdu::{Cid, Itt, ScsiResponse, ServiceResponse, sense_of};

use crate::error::{ProtocolError, SessionError, TaskError};
use crate::output::Output;
use crate::session::Session;
use crate::task::TaskKind;
use crate::task::scsi::{Conclusion, ScsiTask};

impl Session {
    pub(super) fn receive_scsi_response(
        &mut self,
        cid: Cid,
        response: &ScsiResponse,
        data: &Bytes,
    ) -> Result<(), SessionError> {
        if !self.take_answer(cid, response.itt, response.stat_sn)? {
            return Ok(());
        }
        let completed = response.response == ServiceResponse::COMPLETED_AT_TARGET;
        let Some((task, withdrawn)) = self.conclude_scsi(cid, response.itt, "SCSI Response")?
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

    /// Takes the command out that a status concludes, and what it still had to send.
    pub(super) fn conclude_scsi(
        &mut self,
        cid: Cid,
        itt: Itt,
        pdu: &'static str,
    ) -> Result<Option<(ScsiTask, bool)>, ProtocolError> {
        let is_scsi = |kind: &TaskKind| matches!(kind, TaskKind::Scsi(_));
        let Some(task) = self.take_task(cid, itt, pdu, is_scsi)? else { return Ok(None) };
        let owed =
            task.as_scsi().and_then(|scsi| scsi.write.as_ref()).is_some_and(|w| w.owes_data());
        let mut withdrawn = owed;
        for connection in &mut self.connections {
            withdrawn |= connection.forget(itt);
        }
        match task.kind {
            TaskKind::Scsi(scsi) => Ok(Some((*scsi, withdrawn))),
            TaskKind::Management(_)
            | TaskKind::Text(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => Ok(None),
        }
    }
}
