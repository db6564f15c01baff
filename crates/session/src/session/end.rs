//! Ends tasks and sessions, each exactly once.

use iscsi_pdu::Itt;

use super::Session;
use crate::error::{SessionError, TaskError};
use crate::output::Output;
use crate::reopening::Reopening;
use crate::task::{Task, TaskKind};

impl Session {
    /// Ends a task that has received no response; a response that arrives later is dropped.
    pub(crate) fn end_task(&mut self, itt: Itt, why: TaskError) {
        self.connections.forget(itt);
        if let Some(task) = self.tasks.remove_aborted(itt) {
            self.forget_aborts_of(itt);
            self.report(itt, task, why);
        }
    }

    /// Ends a task that the target has given up together with others. If the connection of the task has
    /// failed, the task waits for the clean-up, which checks whether it leaves a gap in CmdSN.
    pub(crate) fn end_given_up(&mut self, itt: Itt, why: TaskError) {
        let allegiance = self.tasks.get(itt).and_then(Task::allegiance);
        if !allegiance.is_some_and(|cid| self.is_failed(cid)) {
            self.end_task(itt, why);
        } else if let Some(scsi) = self.tasks.get_mut(itt).and_then(Task::as_scsi_mut) {
            scsi.aborting = Some(Box::new(why));
        }
    }

    /// Reports to the caller that the task failed.
    fn report(&mut self, itt: Itt, task: Task, why: TaskError) {
        self.stats.tasks_ended += 1;
        let output = match task.kind {
            TaskKind::Scsi(_) => Output::Completed { itt, result: Err(why) },
            TaskKind::Management(management) if !management.internal => {
                Output::Managed { itt, result: Err(why) }
            }
            TaskKind::Text(text) if !text.internal => Output::Discovered { itt, result: Err(why) },
            TaskKind::Ping(ping) if !ping.internal => Output::Ponged { itt, result: Err(why) },
            TaskKind::Management(_)
            | TaskKind::Text(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => return,
        };
        self.outputs.push(output);
    }

    /// Ends the session with an error. Its connections are reset, so that no buffered byte reaches the
    /// target.
    pub(crate) fn fail(&mut self, cause: SessionError) {
        let cause = self.state.cause_of_failure(cause);
        tracing::debug!(%cause, "the session fails");
        self.finish(Err(cause), true);
    }

    /// Ends the session after a logout, whatever the result of the logout is.
    pub(crate) fn logged_out(&mut self) {
        let result = self.state.result_of_logout();
        self.finish(result, false);
    }

    fn finish(&mut self, result: Result<(), SessionError>, abortive: bool) {
        let cause = result.as_ref().err();
        let agreed = self.negotiated().map(Reopening::agreed);
        if !self.state.end(cause, agreed) {
            return;
        }
        self.commands.take_all();
        for connection in self.connections.take_all().into_iter().filter(|c| !c.is_failed()) {
            self.outputs.push(Output::Disconnect { cid: connection.cid(), abortive });
        }
        for itt in self.tasks.iter().map(|(itt, _)| itt).collect::<Vec<_>>() {
            let Some(task) = self.tasks.remove(itt) else { continue };
            let why = cause.map_or(TaskError::Closed, |cause| TaskError::Session {
                cause: cause.clone(),
                sent: task.is_sent(),
            });
            self.report(itt, task, why);
        }
        self.outputs.push(Output::Ended(result));
    }
}
