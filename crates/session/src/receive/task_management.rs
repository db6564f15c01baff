//! Task Management Function Responses (RFC 7143 §11.6).

use std::time::Instant;

use iscsi_pdu::{
    Cid, CmdSn, FunctionResponse, Itt, TargetOpcode, TaskFunction, TaskManagementResponse,
};

use crate::error::{SessionError, TaskError};
use crate::output::Output;
use crate::session::Session;
use crate::task::{Management, Task, TaskKind};

impl Session {
    pub(super) fn receive_task_management(
        &mut self,
        cid: Cid,
        response: &TaskManagementResponse,
        now: Instant,
    ) -> Result<(), SessionError> {
        if !self.take_answer(cid, response.itt, response.stat_sn)? {
            return Ok(());
        }
        let is_management = |kind: &TaskKind| matches!(kind, TaskKind::Management(_));
        let opcode = TargetOpcode::TaskManagementResponse;
        let Some(task) = self.take_task(cid, response.itt, opcode, is_management)? else {
            return Ok(());
        };
        self.send_deferred(cid, now);
        let issued_at = task.cmd_sn().unwrap_or_default();
        let TaskKind::Management(management) = task.kind else { return Ok(()) };
        let code = response.response;
        let has_arrived = |task: &Task| {
            if task.uses_cmd_sn() {
                task.cmd_sn().is_some_and(|sn| sn.is_before(response.exp_cmd_sn))
            } else {
                task.allegiance() == Some(cid)
            }
        };
        let referenced = management.referenced.and_then(|itt| self.tasks.get(itt));
        if ends_tasks(management.function, code, referenced.is_none_or(has_arrived)) {
            self.conclude_managed(&management, issued_at, has_arrived);
            self.watch_overtakers(&management, (cid, issued_at), now);
        } else {
            self.function_failed(&management, now)?;
        }
        if !management.internal {
            self.outputs.push(Output::Managed { itt: response.itt, result: Ok(code) });
        }
        Ok(())
    }

    /// Ends the tasks that the function concerned, if they were sent before the function and had arrived when
    /// the target responded to it. The function consumes no CmdSN, so the next command has the CmdSN of the
    /// function. A command that was sent earlier over another connection may arrive after the function, and
    /// so may commands that wait for that command in the command order. Targets execute these commands,
    /// although the function should end every command with a lower CmdSN (RFC 7143 §11.5.1).
    fn conclude_managed(
        &mut self,
        management: &Management,
        issued_at: CmdSn,
        has_arrived: impl Fn(&Task) -> bool,
    ) {
        let concerned = |(itt, task): (Itt, &Task)| {
            let scsi = task.as_scsi()?;
            let was_before =
                task.cmd_sn().is_some_and(|sn| sn.is_before(issued_at)) && task.is_sent();
            let meant = management.aborts() == Some(itt)
                || management.ends_all_of(scsi.lun) && was_before && has_arrived(task);
            meant.then(|| (itt, scsi.aborting.as_deref().cloned().unwrap_or(TaskError::Aborted)))
        };
        for (itt, why) in self.tasks.iter().filter_map(concerned).collect::<Vec<_>>() {
            self.end_given_up(itt, why);
        }
    }
}

/// Returns whether the target has given up the tasks that the function concerns. A task that "does not exist"
/// has ended, and its response came before this one or was lost (RFC 7143 §11.6.1). A task that waits for an
/// earlier CmdSN is an exception: some targets do not find this task, and execute it when its turn comes.
fn ends_tasks(function: TaskFunction, code: FunctionResponse, has_arrived: bool) -> bool {
    let gone = function == TaskFunction::AbortTask && code == FunctionResponse::TASK_DOES_NOT_EXIST;
    code == FunctionResponse::COMPLETE || gone && has_arrived
}
