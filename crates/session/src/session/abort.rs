//! Handles the data of a task that has an ABORT TASK (RFC 7143 §11.5.1).
//!
//! A write that is [given up](Session::give_up) first sends its data, as long as the target requests them.
//! Then it ends by itself, or is aborted. This order matters because LIO 6.1 waits for the data of a write
//! even after its ABORT TASK: after three seconds it closes the connection, and hangs while it does so.
//!
//! No Data-Out of a task follows its ABORT TASK: if the target has given up the task, the Data-Out would name
//! a task that does not exist. The rest of a first burst must be sent completely (RFC 7143 §13.14), so it is
//! sent before the ABORT TASK. Data that R2Ts request is stopped immediately: only after functions for many
//! tasks must R2Ts still be served (RFC 7143 §4.2.3.3). If the target refuses to abort the task, the data
//! continues.
//!
//! Design: `docs/design/aborts.md`.

use std::time::Instant;

use iscsi_pdu::Itt;

use super::Session;
use crate::error::{SessionError, TaskError};
use crate::task::write::WriteTransfer;
use crate::task::{Management, Task};

impl Session {
    /// Stops serving the R2Ts of a task, because its ABORT TASK is in wire order.
    pub(crate) fn hold_data_of(&mut self, itt: Itt) {
        let Some(write) = self.tasks.write_of(itt) else { return };
        write.hold();
        for connection in self.connections.iter_mut() {
            connection.transmitter.withdraw_r2ts(itt);
        }
    }

    /// Removes the ABORT TASK requests that wait for the data of a task. The task has ended, and was removed
    /// from the set.
    pub(crate) fn forget_aborts_of(&mut self, itt: Itt) {
        while let Some(request) = self.needless_abort_of(itt) {
            self.connections.forget(request);
            self.tasks.remove(request);
        }
    }

    /// Returns an ABORT TASK that waits for the data of the task, and that has not been sent.
    fn needless_abort_of(&self, itt: Itt) -> Option<Itt> {
        let transmitters = self.connections.iter().map(|connection| &connection.transmitter);
        let mut requests =
            transmitters.flat_map(|transmitter| transmitter.requests_to_abort(itt, &self.tasks));
        requests.find(|request| self.tasks.is_needless(*request))
    }

    /// Continues the data of a task, unless another ABORT TASK of the task is outstanding.
    fn resume_data_of(&mut self, itt: Itt) {
        if self.tasks.iter().any(|(request, _)| self.tasks.aborted_by(request) == Some(itt)) {
            return;
        }
        let Some(r2ts) = self.tasks.write_of(itt).map(WriteTransfer::resume) else { return };
        let allegiance = self.tasks.get(itt).and_then(Task::allegiance);
        if let Some(connection) = allegiance.and_then(|cid| self.connections.get_mut(cid)) {
            connection.transmitter.serve_r2ts(itt, r2ts);
        }
    }

    /// Handles a function that the target did not execute, or a request that it refused. The task that was to
    /// be aborted may still end by itself. If the caller aborted it, the caller receives its status, within
    /// the usual time limit. If the task has timed out or received damaged data, the session fails, because
    /// the caller must not wait for ever. The session also fails if a gap in CmdSN is not filled, because the
    /// gap blocks the commands after it.
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
            return Err(SessionError::AbortRefused);
        }
        let Some(task) = self.tasks.get_mut(itt).and_then(|task| task.as_scsi_mut()) else {
            return Ok(());
        };
        if task.aborting.as_deref() == Some(&TaskError::Aborted) {
            task.aborting = None;
            let deadline = self.config.timeouts.of(&task.cdb).map(|timeout| now + timeout);
            self.tasks.set_deadline(itt, deadline);
            return Ok(());
        }
        Err(SessionError::AbortRefused)
    }
}
