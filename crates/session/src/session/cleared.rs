//! Commands that a unit has ended without a status (SAM-5 §5.14, §5.6.2).
//!
//! Where TAS is zero in the Control mode page, a reset or an abort by another initiator ends commands without a response.
//! The unit reports it by a unit attention, to the next command only. Without a look at it a cleared command waits for its
//! time limit, ten minutes in the case of a flush.

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::Itt;
use iscsi_pdu::scsi::{Sense, SenseKey};

use super::Session;

impl Session {
    /// A command has ended with this sense data. If the unit may have cleared commands, those for it that were numbered
    /// before have as long as a task management response may take: a status may be on its way, or the command may not be
    /// cleared at all. Then they are aborted as timed out, and the answer to the ABORT TASK says whether they are gone.
    pub(crate) fn hear_of_cleared(&mut self, answered: Itt, sense: &Bytes, now: Instant) {
        let Ok(sense) = Sense::decode(sense) else { return };
        let is_attention = sense.key == SenseKey::UnitAttention && !sense.deferred;
        if !is_attention || !sense.additional.clears_commands() {
            return;
        }
        let Some(task) = self.tasks.get(answered) else { return };
        let (Some(number), Some(lun)) = (task.cmd_sn(), task.as_scsi().map(|scsi| scsi.lun)) else {
            return;
        };
        let deadline = now + self.config.timeouts.task_management;
        let earlier: Vec<Itt> = self
            .tasks
            .iter()
            .filter_map(|(itt, task)| {
                let scsi = task.as_scsi()?;
                let is_earlier = task.is_sent() && task.cmd_sn()?.is_before(number);
                let is_later_due = task.deadline().is_none_or(|due| deadline < due);
                (scsi.lun == lun && scsi.aborting.is_none() && is_earlier && is_later_due)
                    .then_some(itt)
            })
            .collect();
        earlier.into_iter().for_each(|itt| self.tasks.set_deadline(itt, Some(deadline)));
    }
}
