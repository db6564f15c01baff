//! Detects commands that a unit has ended without a status (SAM-5 §5.14, §5.6.2).
//!
//! If TAS is zero in the Control mode page, a reset or an abort by another initiator ends commands without a
//! response. The unit reports that with a unit attention, to the next command only. If the session ignored
//! the unit attention, a cleared command would wait for its time limit, which is ten minutes for a flush. A
//! reset by this session is reported to other initiators only. It ends the commands that were sent before it,
//! and perhaps commands that were sent after it over another connection and arrived first.
//!
//! Design: `docs/design/slow-targets.md`.

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::scsi::{Lun, Sense, SenseKey};
use iscsi_pdu::{Cid, CmdSn, Itt};

use super::Session;
use crate::task::{Management, Task};

impl Session {
    /// Checks the sense data of a command that has ended. If the unit may have cleared commands, the commands
    /// for that unit with a lower CmdSN get the time limit of a task management response: a status may be in
    /// flight, or the command may not be cleared at all. After that time they are aborted as timed out, and
    /// the response to the ABORT TASK shows whether they have ended.
    pub(crate) fn on_cleared_commands(&mut self, answered: Itt, sense: &Bytes, now: Instant) {
        let Ok(sense) = Sense::decode(sense) else { return };
        let is_attention = sense.key == SenseKey::UnitAttention && !sense.deferred;
        if !is_attention || !sense.additional.clears_commands() {
            return;
        }
        let Some(task) = self.tasks.get(answered) else { return };
        let (Some(number), Some(lun)) = (task.cmd_sn(), task.as_scsi().map(|scsi| scsi.lun)) else {
            return;
        };
        let may_be_cleared = |task: &Task, of: Lun| {
            of == lun && task.cmd_sn().is_some_and(|sn| sn.is_before(number))
        };
        self.expect_soon(may_be_cleared, now);
    }

    /// Handles a function that ends all commands with a lower CmdSN, after the target has executed it. The
    /// target may also have ended later commands: those that were sent over another connection and arrived
    /// before the function.
    pub(crate) fn watch_overtakers(
        &mut self,
        management: &Management,
        (cid, issued_at): (Cid, CmdSn),
        now: Instant,
    ) {
        let may_be_cleared = |task: &Task, of: Lun| {
            let is_elsewhere = task.allegiance().is_some_and(|other| other != cid);
            let is_later = task.cmd_sn().is_some_and(|sn| !sn.is_before(issued_at));
            management.ends_all_of(of) && is_elsewhere && is_later
        };
        self.expect_soon(may_be_cleared, now);
    }

    /// Sets the time limit of a task management response for commands that may be cleared; when it ends, they
    /// are aborted.
    fn expect_soon(&mut self, may_be_cleared: impl Fn(&Task, Lun) -> bool, now: Instant) {
        let deadline = now + self.config.timeouts.task_management;
        let concerned = self.tasks.iter().filter_map(|(itt, task)| {
            let scsi = task.as_scsi()?;
            let is_there = task.is_sent() && scsi.aborting.is_none();
            (is_there && may_be_cleared(task, scsi.lun)).then_some(itt)
        });
        let concerned: Vec<Itt> = concerned.collect();
        for itt in concerned {
            let Some(task) = self.tasks.get_mut(itt) else { continue };
            let is_later_due = task.deadline().is_none_or(|due| deadline < due);
            if let Some(scsi) = task.as_scsi_mut() {
                scsi.may_be_cleared = true;
            }
            if is_later_due {
                self.tasks.set_deadline(itt, Some(deadline));
            }
        }
    }
}
