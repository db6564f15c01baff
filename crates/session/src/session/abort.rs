//! What an ABORT TASK means for the data of its task (RFC 7143 §11.5.1).
//!
//! No Data-Out of a task follows its ABORT TASK: for a target that has given the task up, it would
//! name a task that does not exist. The rest of a first burst, which has to be sent whole
//! (RFC 7143 §13.14), goes before the request. Data that R2Ts ask for stops where it is: the duty to
//! serve each of them belongs to the functions that concern many tasks (RFC 7143 §4.2.3.3), and the
//! request says for a single one that nobody wants it any more. It goes on when the target will not
//! abort the task.

use std::time::Instant;

use iscsi_pdu::{Cid, Itt};

use super::Session;
use crate::connection::{Connection, Urgent};
use crate::error::{SessionError, TaskError};
use crate::task::write::WriteTransfer;
use crate::task::{Management, Task, TaskKind};
use crate::timer::Timer;

impl Session {
    /// Whether a request has to wait until the first burst of the task that it aborts is in wire
    /// order.
    pub(crate) fn waits_for_burst(&self, connection: &Connection, urgent: Urgent) -> bool {
        let Urgent::Task(request) = urgent else { return false };
        let aborted = self.aborted_by(request);
        aborted.is_some_and(|itt| connection.unsolicited.contains(&itt))
    }

    /// A request that waits for the rest of a first burst has its time from each step of that.
    pub(crate) fn renew_abort_of(&mut self, at: usize, itt: Itt, now: Instant) {
        let Some(connection) = self.connections.get(at) else { return };
        let aborting = |urgent: &Urgent| match urgent {
            Urgent::Task(request) => Some(*request).filter(|r| self.aborted_by(*r) == Some(itt)),
            Urgent::PingReply { .. } | Urgent::Acknowledgement { .. } => None,
        };
        let deadline = now + self.config.timeouts.task_management;
        for request in connection.urgent.iter().filter_map(aborting).collect::<Vec<_>>() {
            self.tasks.set_deadline(request, Some(deadline));
        }
    }

    fn aborted_by(&self, request: Itt) -> Option<Itt> {
        match &self.tasks.get(request)?.kind {
            TaskKind::Management(management) => management.aborts(),
            TaskKind::Scsi(_) | TaskKind::Text(_) | TaskKind::Ping(_) | TaskKind::Logout(_) => None,
        }
    }

    /// Serves no R2T of a task any more, now that its ABORT TASK is in wire order.
    pub(crate) fn hold_data_of(&mut self, itt: Itt) {
        let Some(write) = self.write_of(itt) else { return };
        write.hold();
        for connection in &mut self.connections {
            connection.solicited.retain(|queued| *queued != itt);
        }
    }

    /// Goes on with the data of a task, unless another ABORT TASK of it is not answered yet.
    fn resume_data_of(&mut self, itt: Itt) {
        if self.tasks.iter().any(|(request, _)| self.aborted_by(request) == Some(itt)) {
            return;
        }
        let Some(r2ts) = self.write_of(itt).map(WriteTransfer::resume) else { return };
        let allegiance = self.tasks.get(itt).and_then(|task| task.allegiance);
        if let Some(connection) = allegiance.and_then(|cid| self.connection_mut(cid)) {
            connection.solicited.extend(std::iter::repeat_n(itt, r2ts));
        }
    }

    fn write_of(&mut self, itt: Itt) -> Option<&mut WriteTransfer> {
        self.tasks.get_mut(itt)?.as_scsi_mut()?.write.as_mut()
    }

    /// Keeps a task management request that the target refuses because it has too many immediate ones
    /// at hand (RFC 7143 §4.2.2.1); `false` if it has no other of this connection, so that there is
    /// nothing to wait for. Its time begins anew when it is sent again.
    pub(crate) fn defer_management(&mut self, cid: Cid, itt: Itt) -> bool {
        let Some(connection) = self.connection(cid) else { return false };
        let at_hand = |(other, task): (Itt, &Task)| {
            other != itt
                && task.allegiance == Some(cid)
                && matches!(task.kind, TaskKind::Management(_))
                && !connection.deferred.contains(&other)
                && !connection.urgent.contains(&Urgent::Task(other))
        };
        if !self.tasks.iter().any(at_hand) {
            return false;
        }
        self.tasks.set_deadline(itt, None);
        if let Some(connection) = self.connection_mut(cid) {
            connection.deferred.push_back(itt);
        }
        true
    }

    /// A task management request has come to its end, so the target may have room for another one.
    pub(crate) fn send_deferred(&mut self, cid: Cid, now: Instant) {
        let Some(connection) = self.connection_mut(cid) else { return };
        let Some(itt) = connection.deferred.pop_front() else { return };
        connection.urgent.push_back(Urgent::Task(itt));
        let deadline = now + self.config.timeouts.task_management;
        self.tasks.set_deadline(itt, Some(deadline));
    }

    /// The target did not do what a function asked for, or refused the request. A task that was to be
    /// aborted may still end by itself. A caller that gave it up gets its status, within the usual
    /// time limit; one that waited too long, or got damaged data, must not wait for ever, and neither
    /// must the commands behind a gap that is not filled.
    pub(crate) fn function_failed(
        &mut self,
        management: &Management,
        now: Instant,
    ) -> Result<(), SessionError> {
        let Some(itt) = management.aborts() else { return Ok(()) };
        self.resume_data_of(itt);
        if !management.internal {
            return Ok(());
        }
        if management.gap.is_some_and(|gap| !self.window.exp_cmd_sn().is_after(gap)) {
            return Err(SessionError::TimedOut(Timer::TaskManagement));
        }
        let Some(task) = self.tasks.get_mut(itt).and_then(|task| task.as_scsi_mut()) else {
            return Ok(());
        };
        if task.aborting == Some(TaskError::Aborted) {
            task.aborting = None;
            let deadline = self.config.timeouts.command.map(|timeout| now + timeout);
            self.tasks.set_deadline(itt, deadline);
            return Ok(());
        }
        Err(SessionError::TimedOut(Timer::Command))
    }
}
