//! NOP-In: pings of the target, and responses to the initiator's pings (RFC 7143 §11.19).

use std::time::Instant;

use iscsi_pdu::{Cid, Itt, NopIn, TargetOpcode};

use crate::connection::transmitter::Urgent;
use crate::error::{ProtocolError, SessionError};
use crate::output::Output;
use crate::session::Session;
use crate::task::TaskKind;

impl Session {
    pub(super) fn receive_nop_in(
        &mut self,
        cid: Cid,
        nop: &NopIn,
        now: Instant,
    ) -> Result<(), SessionError> {
        if let Some(itt) = nop.itt {
            return self.receive_pong(cid, itt, nop, now);
        }
        let Some(connection) = self.connections.get_mut(cid) else { return Ok(()) };
        connection.stat_sn.show(nop.stat_sn, now)?;
        if let Some(ttt) = nop.ttt {
            connection.transmitter.reply(Urgent::PingReply { ttt, lun: nop.lun })?;
        }
        Ok(())
    }

    fn receive_pong(
        &mut self,
        cid: Cid,
        itt: Itt,
        nop: &NopIn,
        now: Instant,
    ) -> Result<(), SessionError> {
        if nop.ttt.is_some() {
            // A NOP-In that responds to a ping must not itself request a response (RFC 7143 §11.19.1).
            return Err(ProtocolError::Task { pdu: TargetOpcode::NopIn.name(), itt }.into());
        }
        if !self.take_answer(cid, itt, nop.stat_sn)? {
            return Ok(());
        }
        let is_ping = |kind: &TaskKind| matches!(kind, TaskKind::Ping(_));
        let Some(task) = self.take_task(cid, itt, TargetOpcode::NopIn, is_ping)? else {
            return Ok(());
        };
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.liveness.forget(itt);
        }
        if let TaskKind::Ping(ping) = task.kind
            && !ping.internal
        {
            let sent_at = ping.sent_at.unwrap_or(now);
            self.outputs.push(Output::Ponged { itt, result: Ok(now.duration_since(sent_at)) });
        }
        Ok(())
    }
}
