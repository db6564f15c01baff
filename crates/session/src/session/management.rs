//! Task management requests of the caller and of the session, and requests that the target refused because it
//! had too many (RFC 7143 §11.5).

use std::time::Instant;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{Cid, CmdSn, Itt, TaskFunction};

use super::Session;
use crate::error::{SessionError, SubmitError};
use crate::task::{Management, Task, TaskKind};
use crate::timer::Timer;

impl Session {
    /// Sends a task management request (RFC 7143 §11.5). `referenced` is the task to abort and is only used
    /// for ABORT TASK. The request ends in one [`Output::Managed`](crate::Output::Managed). If the response
    /// is "function complete", every task that the function concerns ends as aborted.
    ///
    /// # Errors
    /// When the session is closing, the configured number of tasks is outstanding, or this is a discovery
    /// session.
    pub fn manage(
        &mut self,
        function: TaskFunction,
        lun: Lun,
        referenced: Option<Itt>,
        now: Instant,
    ) -> Result<Itt, SubmitError> {
        self.check_normal()?;
        let management = self.management(function, lun, referenced, false);
        let timeout = Some(self.config.timeouts.task_management);
        self.enlist(TaskKind::Management(management), timeout, true, now)
    }

    pub(super) fn management(
        &self,
        function: TaskFunction,
        lun: Lun,
        referenced: Option<Itt>,
        internal: bool,
    ) -> Management {
        let abort = matches!(function, TaskFunction::AbortTask | TaskFunction::QueryTask);
        let referenced = referenced.filter(|_| abort);
        let whole_target =
            matches!(function, TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset);
        let task_lun = referenced.and_then(|itt| Some(self.tasks.get(itt)?.as_scsi()?.lun));
        let lun = if whole_target { Lun::ZERO } else { task_lun.unwrap_or(lun) };
        Management { function, lun, referenced, internal, gap: None, after_data: false }
    }

    /// Fills the gap in CmdSN that a request may have left: an ABORT TASK does that for a task that the
    /// target has never received (RFC 7143 §11.5.1).
    pub(crate) fn fill_gap(&mut self, itt: Itt, lun: Lun, gap: CmdSn, now: Instant) {
        let management = Management {
            function: TaskFunction::AbortTask,
            lun,
            referenced: Some(itt),
            internal: true,
            gap: Some(gap),
            after_data: false,
        };
        self.manage_internally(management, now);
    }

    pub(super) fn manage_internally(&mut self, management: Management, now: Instant) {
        let deadline = now + self.config.timeouts.task_management;
        let request = Task::new(TaskKind::Management(management), Some(deadline));
        match self.tasks.insert_beyond_limit(request) {
            Some(request) => self.push_urgent(request),
            // All tags are in use: a target that leaves this many requests without a response does not let
            // tasks end.
            None => self.fail(SessionError::TimedOut(Timer::TaskManagement)),
        }
    }

    /// Keeps a task management request that the target refused because it has too many immediate ones (RFC
    /// 7143 §4.2.2.1), until another task management request of the connection has ended. Returns `false` if
    /// no other one is outstanding on the connection. The time limit starts again when the request is sent
    /// again.
    pub(crate) fn defer_management(&mut self, cid: Cid, itt: Itt) -> bool {
        let Some(connection) = self.connections.get(cid) else { return false };
        let is_outstanding = |(other, task): (Itt, &Task)| {
            other != itt
                && task.allegiance() == Some(cid)
                && matches!(task.kind, TaskKind::Management(_))
                && !connection.transmitter.has_request(other)
        };
        if !self.tasks.iter().any(is_outstanding) {
            return false;
        }
        self.tasks.set_deadline(itt, None);
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transmitter.defer(itt);
        }
        true
    }

    /// Queues the oldest deferred request again, because another one has ended.
    pub(crate) fn send_deferred(&mut self, cid: Cid, now: Instant) {
        let Some(connection) = self.connections.get_mut(cid) else { return };
        let Some(itt) = connection.transmitter.resume_deferred() else { return };
        let deadline = now + self.config.timeouts.task_management;
        self.tasks.set_deadline(itt, Some(deadline));
    }
}
