//! Ready To Transfer (RFC 7143 §11.8). It carries the next StatSN and consumes none.

use iscsi_pdu::{Cid, R2t, TargetOpcode};

use crate::error::{ProtocolError, SessionError};
use crate::session::Session;
use crate::task::write::Accepted;

impl Session {
    pub(super) fn receive_r2t(&mut self, cid: Cid, r2t: &R2t) -> Result<(), SessionError> {
        let itt = r2t.itt;
        // The status may have arrived before the R2T, or the task was aborted: then the R2T is ignored.
        if self.tasks.has_ended(itt) {
            return Ok(());
        }
        let error = ProtocolError::Task { pdu: TargetOpcode::R2t.name(), itt };
        let Some(connection) = self.connections.get_mut(cid) else {
            return Ok(());
        };
        let Some(task) = self.tasks.get_mut(itt).filter(|task| task.allegiance() == Some(cid))
        else {
            return Err(error.into());
        };
        // The tag identifies the task. The LUN field repeats the LUN of the command, or is zero from some
        // targets, so it is not checked.
        let Some(task) = task.as_scsi_mut() else { return Err(error.into()) };
        let expected = task.next_r2t_sn();
        let (Some(write), Some(agreed)) = (&mut task.write, connection.agreed()) else {
            return Err(error.into());
        };
        if write.solicit(r2t, expected, agreed)? == Accepted::Queued {
            if !write.is_held() {
                connection.transmitter.serve_r2ts(itt, 1);
            }
            task.count_sn();
            self.stats.r2ts += 1;
        }
        Ok(())
    }
}
