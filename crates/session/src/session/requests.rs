//! Requests of the caller to a session.

use std::time::{Duration, Instant};

use bytes::Bytes;
use iscsi_pdu::keys::{ALL_TARGETS, Key, TextBuilder};
use iscsi_pdu::{Cid, IscsiName, Itt, TaskFunction};

use super::Session;
use crate::config::SessionKind;
use crate::error::{SubmitError, TaskError};
use crate::task::command::Command;
use crate::task::payload::Payload;
use crate::task::read_buffer::ReadBuffer;
use crate::task::scsi::ScsiTask;
use crate::task::text::TextTask;
use crate::task::{Management, Ping, Task, TaskKind};

impl Session {
    /// Submits a SCSI command; the login need not be complete. The command ends in one
    /// [`Output::Completed`](crate::Output::Completed) with the tag that this method returns.
    ///
    /// # Errors
    /// When the session is closing, the configured number of tasks is outstanding, a transfer is longer than
    /// 2^32-1 bytes, or this is a discovery session.
    pub fn submit(&mut self, command: Command, now: Instant) -> Result<Itt, SubmitError> {
        self.check_normal()?;
        let write = command.write.as_ref().map_or(0, Payload::len);
        let read = command.read.as_ref().map_or(0, ReadBuffer::len);
        if u32::try_from(write.max(read)).is_err() {
            return Err(SubmitError::TooLong);
        }
        let timeout = command.timeout.or_else(|| self.config.timeouts.of(&command.cdb));
        let immediate = command.immediate;
        let kind = TaskKind::Scsi(ScsiTask::new(command));
        self.enlist(kind, timeout, immediate, now)
    }

    /// Requests the targets of the portal, or in a normal session the addresses of the session's own target
    /// (RFC 7143 appendix C). The exchange ends in one [`Output::Discovered`](crate::Output::Discovered).
    ///
    /// # Errors
    /// When the session is closing or the configured number of tasks is outstanding.
    pub fn send_targets(&mut self, now: Instant) -> Result<Itt, SubmitError> {
        let which = if self.config.kind == SessionKind::Discovery { ALL_TARGETS } else { "" };
        self.exchange_targets(which, now)
    }

    /// Requests the addresses of one target by name (RFC 7143 appendix C).
    ///
    /// # Errors
    /// When the session is closing or the configured number of tasks is outstanding; in a normal session also
    /// for a name of another target than the session's own.
    pub fn send_target(&mut self, name: &IscsiName, now: Instant) -> Result<Itt, SubmitError> {
        match &self.config.kind {
            SessionKind::Normal { target_name } if target_name != name => {
                Err(SubmitError::WrongSession)
            }
            // Send the name in its original spelling, because the target may compare bytes.
            SessionKind::Normal { target_name } => {
                self.exchange_targets(&target_name.to_string(), now)
            }
            SessionKind::Discovery => self.exchange_targets(name.as_str(), now),
        }
    }

    fn exchange_targets(&mut self, which: &str, now: Instant) -> Result<Itt, SubmitError> {
        self.check_open()?;
        let mut text = TextBuilder::new();
        text.pair(Key::SendTargets.name(), which);
        let kind = TaskKind::Text(Box::new(TextTask::new(text.finish(), false)));
        self.enlist(kind, self.config.timeouts.command, true, now)
    }

    /// Sends a NOP-Out that requests a response. The ping ends in one
    /// [`Output::Ponged`](crate::Output::Ponged).
    ///
    /// # Errors
    /// When the session is closing, the configured number of tasks is outstanding, or this is a discovery
    /// session.
    pub fn ping(&mut self, now: Instant) -> Result<Itt, SubmitError> {
        self.ping_with(Bytes::new(), now)
    }

    /// Sends a ping with data, which the target returns (RFC 7143 §11.18). The data is cut to the length of
    /// one PDU to the target (MaxRecvDataSegmentLength). The returned data is not compared.
    ///
    /// # Errors
    /// When the session is closing, the configured number of tasks is outstanding, or this is a discovery
    /// session.
    pub fn ping_with(&mut self, data: Bytes, now: Instant) -> Result<Itt, SubmitError> {
        self.check_normal()?;
        let kind = TaskKind::Ping(Ping { sent_at: None, internal: false, data });
        self.enlist(kind, Some(self.config.timeouts.nop_response), true, now)
    }

    /// Aborts a command. A command that is not yet in wire order ends immediately and leaves no gap in CmdSN.
    /// Otherwise an ABORT TASK is sent, and the command ends when the target has responded to the ABORT TASK,
    /// or with its status if the status comes first. The tag of a command that has ended is ignored.
    ///
    /// Returns whether the target may have received the command; `false` if no part of the command was
    /// returned by `poll_transmit`.
    #[doc(alias = "cancel")]
    pub fn abort(&mut self, itt: Itt, now: Instant) -> bool {
        let was_sent = self.tasks.get(itt).is_some_and(Task::is_sent);
        self.abort_for(itt, TaskError::Aborted, now);
        self.follow_up(now);
        was_sent
    }

    /// Aborts a command like [`abort`](Self::abort), but sends the ABORT TASK of a write only after all of
    /// its data, as long as the target continues to request the data. The command may then end by itself.
    /// This is for targets that wait for the data of a write even after an ABORT TASK, and then close the
    /// connection or fail. A target that requests no data within the time limit of task management receives
    /// the ABORT TASK.
    pub fn give_up(&mut self, itt: Itt, now: Instant) -> bool {
        let was_sent = self.tasks.get(itt).is_some_and(Task::is_sent);
        self.abort_after(itt, TaskError::Aborted, true, now);
        self.follow_up(now);
        was_sent
    }

    /// Withdraws a command that is not in wire order yet: it ends with [`TaskError::Withdrawn`], and leaves
    /// no gap in CmdSN. A command that is in wire order is not changed.
    pub fn withdraw(&mut self, itt: Itt, now: Instant) {
        let waits = |task: &Task| !task.is_sent() && task.cmd_sn().is_none();
        if self.tasks.get(itt).is_some_and(waits) {
            self.abort_for(itt, TaskError::Withdrawn, now);
            self.follow_up(now);
        }
    }

    /// Ends the session in order: it accepts no new requests, and when the last task has ended, a logout
    /// closes the session (RFC 7143 §11.14).
    pub fn logout(&mut self, now: Instant) {
        if self.state.is_free() {
            self.logged_out();
        }
        self.state.close();
        self.follow_up(now);
    }

    const fn check_open(&self) -> Result<(), SubmitError> {
        if self.state.takes_requests() { Ok(()) } else { Err(SubmitError::Closed) }
    }

    /// Refuses requests in a discovery session, which may send only text requests and a logout (RFC 7143 §4.3).
    pub(super) fn check_normal(&self) -> Result<(), SubmitError> {
        self.check_open()?;
        match self.config.kind {
            SessionKind::Normal { .. } => Ok(()),
            SessionKind::Discovery => Err(SubmitError::WrongSession),
        }
    }

    pub(super) fn enlist(
        &mut self,
        kind: TaskKind,
        timeout: Option<Duration>,
        immediate: bool,
        now: Instant,
    ) -> Result<Itt, SubmitError> {
        let task = Task::new(kind, timeout.map(|timeout| now + timeout));
        let itt = self.tasks.insert(task).ok_or(SubmitError::Full)?;
        if immediate {
            self.push_urgent(itt);
        } else {
            self.commands.push(itt);
        }
        Ok(itt)
    }

    /// Aborts a command; `why` is the error that the caller of the command receives.
    pub(crate) fn abort_for(&mut self, itt: Itt, why: TaskError, now: Instant) {
        self.abort_after(itt, why, false, now);
    }

    /// Aborts a command. If `after_data`, the ABORT TASK of a write follows all of its data. Otherwise it is
    /// sent immediately, or after a first burst that has begun.
    fn abort_after(&mut self, itt: Itt, why: TaskError, after_data: bool, now: Instant) {
        let Some(task) = self.tasks.get_mut(itt) else { return };
        let sent = task.is_sent();
        let Some(scsi) = task.as_scsi_mut() else { return };
        if scsi.aborting.is_some() {
            return;
        }
        let lun = scsi.lun;
        if !sent {
            let gap = task.cmd_sn();
            self.commands.withdraw(itt);
            self.end_task(itt, why);
            if let Some(gap) = gap {
                self.fill_gap(itt, lun, gap, now);
            }
            return;
        }
        scsi.aborting = Some(Box::new(why));
        self.tasks.set_deadline(itt, None);
        let management = self.management(TaskFunction::AbortTask, lun, Some(itt), true);
        self.manage_internally(Management { after_data, ..management }, now);
    }

    /// Answers the target's request for a negotiation on a connection with an empty text request. If a text
    /// exchange is pending on the connection, that exchange is the answer, and no request is sent (RFC 7143
    /// §11.9.1).
    pub(crate) fn answer_negotiation_request(&mut self, cid: Cid) {
        let Some(connection) = self.connections.get(cid) else { return };
        let is_there = |(itt, task): (Itt, &Task)| {
            matches!(task.kind, TaskKind::Text(_))
                && (task.allegiance() == Some(cid) || connection.transmitter.has_request(itt))
        };
        if self.tasks.iter().any(is_there) {
            return;
        }
        let task = Task::new(TaskKind::Text(Box::new(TextTask::new(Bytes::new(), true))), None);
        if let Some(itt) = self.tasks.insert_beyond_limit(task) {
            self.push_urgent_on(cid, itt);
        }
    }
}
