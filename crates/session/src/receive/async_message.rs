//! Asynchronous Messages (RFC 7143 §11.9).

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::{AsyncEvent, AsyncMessage, Cid, Itt};

use crate::connection::transmitter::Urgent;
use crate::error::{SessionError, TaskError};
use crate::output::Notice;
use crate::session::Session;
use crate::task::{Task, TaskKind};

impl Session {
    pub(super) fn receive_async_message(
        &mut self,
        cid: Cid,
        message: &AsyncMessage,
        data: &Bytes,
        now: Instant,
    ) -> Result<(), SessionError> {
        if !self.take_stat_sn(cid, message.stat_sn)? {
            return Ok(());
        }
        self.notice_async(message, data);
        match message.event {
            AsyncEvent::LogoutRequest { .. } => self.logout_requested(now),
            AsyncEvent::ConnectionDropped { cid: dropped, time2wait, time2retain } => {
                let why = SessionError::DroppedByTarget { time2wait, time2retain };
                self.fail_connection(dropped, why, now);
            }
            AsyncEvent::SessionDropped { time2wait, time2retain } => {
                return Err(SessionError::DroppedByTarget { time2wait, time2retain });
            }
            AsyncEvent::NegotiationRequest { .. } => self.answer_negotiation_request(cid),
            AsyncEvent::TaskTermination => self.tasks_terminated(cid, message)?,
            AsyncEvent::ScsiAsyncEvent | AsyncEvent::Vendor { .. } | AsyncEvent::Other(_) => {}
        }
        Ok(())
    }

    fn notice_async(&mut self, message: &AsyncMessage, data: &Bytes) {
        let sense = match message.event {
            AsyncEvent::ScsiAsyncEvent => iscsi_pdu::sense_of(data),
            AsyncEvent::LogoutRequest { .. }
            | AsyncEvent::ConnectionDropped { .. }
            | AsyncEvent::SessionDropped { .. }
            | AsyncEvent::NegotiationRequest { .. }
            | AsyncEvent::TaskTermination
            | AsyncEvent::Vendor { .. }
            | AsyncEvent::Other(_) => Bytes::new(),
        };
        let notice = Notice::AsyncMessage { lun: message.lun, event: message.event, sense };
        self.outputs.notice(notice);
    }

    /// Sends a logout immediately because the target requested it, without waiting for tasks or for the
    /// command window.
    pub(super) fn logout_requested(&mut self, now: Instant) {
        if !self.state.close_for(SessionError::LogoutRequested) {
            return;
        }
        let text = |(itt, task): (Itt, &Task)| {
            (!task.is_sent() && matches!(task.kind, TaskKind::Text(_))).then_some(itt)
        };
        let text: Vec<_> = self.tasks.iter().filter_map(text).collect();
        for itt in self.commands.take_all().into_iter().chain(text) {
            let why = TaskError::Session { cause: SessionError::LogoutRequested, sent: false };
            self.end_task(itt, why);
        }
        self.follow_up(now);
    }

    /// Handles the event that the target ended every task of a logical unit: no more data is sent for these
    /// tasks, and a NOP-Out acknowledges the message (RFC 7143 §4.2.3.4).
    fn tasks_terminated(&mut self, cid: Cid, message: &AsyncMessage) -> Result<(), SessionError> {
        let concerned = |task: &Task| {
            task.is_sent() && task.as_scsi().is_some_and(|scsi| scsi.lun == message.lun)
        };
        let ended: Vec<_> =
            self.tasks.iter().filter(|(_, task)| concerned(task)).map(|(itt, _)| itt).collect();
        for itt in ended {
            self.end_given_up(itt, TaskError::Aborted);
        }
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transmitter.reply(Urgent::Acknowledgement { lun: message.lun })?;
        }
        Ok(())
    }
}
