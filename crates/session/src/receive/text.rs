//! Text Responses (RFC 7143 §11.11).

use bytes::Bytes;
use iscsi_pdu::{Cid, TargetOpcode, TextResponse};

use crate::error::{ProtocolError, SessionError};
use crate::output::Output;
use crate::session::Session;
use crate::task::TaskKind;
use crate::task::text::TextStep;

impl Session {
    pub(super) fn receive_text(
        &mut self,
        cid: Cid,
        response: &TextResponse,
        data: &Bytes,
    ) -> Result<(), SessionError> {
        if !self.take_answer(cid, response.itt, response.stat_sn)? {
            return Ok(());
        }
        let itt = response.itt;
        let error = ProtocolError::Task { pdu: TargetOpcode::TextResponse.name(), itt };
        let task = self.tasks.get_mut(itt).filter(|task| task.allegiance() == Some(cid));
        let Some(TaskKind::Text(text)) = task.map(|task| &mut task.kind) else {
            return if self.tasks.was_aborted(itt) { Ok(()) } else { Err(error.into()) };
        };
        let internal = text.internal;
        match text.answered(response, data)? {
            // Tag and connection of the exchange stay the same (RFC 7143 §4.2.5.1).
            TextStep::Continue => {
                if let Some(connection) = self.connections.get_mut(cid) {
                    connection.transmitter.request(itt);
                }
            }
            TextStep::Done(answer) => {
                self.tasks.remove(itt);
                self.stats.tasks_ended += 1;
                if !internal {
                    self.outputs.push(Output::Discovered { itt, result: Ok(answer) });
                }
            }
        }
        Ok(())
    }
}
