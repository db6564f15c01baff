//! Conclusions about the unit from the end of a command.

use iscsi_pdu::scsi::{AdditionalSense, Sense, SenseKey, Status};
use iscsi_session::TaskError;

use super::Unit;
use super::sense::{is_failure, is_write_failure, may_be_another_unit};
use crate::commands::CommandNumber;
use crate::ids::PathId;

/// Facts about a command that are needed to judge its end.
#[derive(Clone, Copy, Debug)]
pub struct CommandFacts {
    /// Number of the command on its path.
    pub number: CommandNumber,
    /// Whether the command is SYNCHRONIZE CACHE.
    pub synchronizes_cache: bool,
    /// Whether the command was answered with the report that another initiator has ended the registration of
    /// the session.
    pub is_preempted: bool,
}

/// End of a command.
#[derive(Clone, Copy, Debug)]
pub enum CommandEnd<'a> {
    /// A status, with these sense data.
    Status(Status, &'a [u8]),
    /// No status, or one that does not count.
    Error(&'a TaskError),
}

/// Actions that follow from the end of a command, once no lock is held.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use]
pub struct Effects {
    /// Whether the unit may be another one, or may not be accessed any more. Commands of the path that have not
    /// been sent are taken back.
    pub may_be_another_unit: bool,
    /// A unit attention, for the subscribers to changes of the unit.
    pub attention: Option<AdditionalSense>,
    /// Whether a flush has failed on the medium, so that other disks of the unit have lost writes as well.
    pub has_failed_flush: bool,
}

/// Meaning of an end for the identity of the unit.
enum Meaning {
    Nothing,
    /// A reason to ask which unit it is.
    Reason,
    /// The initiator has given the command up, so its status may have been a reason.
    GivenUp,
}

impl Unit {
    /// Records the end of a command. If its status is missing, it may have been the report of a reset, which
    /// the unit does not repeat.
    pub fn end_command(
        &mut self,
        path: PathId,
        command: CommandFacts,
        end: CommandEnd<'_>,
    ) -> Effects {
        let mut effects = Effects::default();
        let meaning = match end {
            CommandEnd::Status(status, sense) => {
                self.on_status(path, command, (status, sense), &mut effects)
            }
            CommandEnd::Error(why) => self.on_task_error(path, why),
        };
        match meaning {
            Meaning::Nothing => {}
            Meaning::Reason => self.identity.add_reason(path),
            Meaning::GivenUp => self.identity.add_given_up(path),
        }
        effects.may_be_another_unit = !matches!(meaning, Meaning::Nothing);
        // This comes last, so that a flush that waits for the command knows what the command has reported.
        self.forget(path, command.number);
        effects
    }

    fn on_status(
        &mut self,
        path: PathId,
        command: CommandFacts,
        (status, sense): (Status, &[u8]),
        effects: &mut Effects,
    ) -> Meaning {
        let sense = match status {
            Status::CHECK_CONDITION => Sense::decode(sense).ok(),
            // Another initiator has aborted the command. TASK ABORTED replaces the status that may have
            // reported something.
            Status::TASK_ABORTED => None,
            _ => return Meaning::Nothing,
        };
        let Some(sense) = sense else {
            self.on_hidden_report(path);
            return Meaning::Reason;
        };
        self.on_sense(path, &sense, command.synchronizes_cache, effects);
        let is_reason = command.is_preempted || may_be_another_unit(sense.additional);
        if is_reason { Meaning::Reason } else { Meaning::Nothing }
    }

    /// Records what the sense data report of earlier writes, and of the unit itself.
    fn on_sense(
        &mut self,
        path: PathId,
        sense: &Sense,
        synchronizes_cache: bool,
        effects: &mut Effects,
    ) {
        let attention = (sense.key == SenseKey::UnitAttention).then_some(sense.additional);
        if attention.is_some() || sense.deferred {
            tracing::debug!(%sense, "the unit has something to tell");
            self.identity.add_attention();
        }
        effects.attention = attention;
        if attention.is_some_and(AdditionalSense::is_reset) {
            self.durability.on_reset(path);
        } else if attention == Some(AdditionalSense::MODE_PARAMETERS_CHANGED) {
            self.durability.on_cache();
        } else if sense.deferred && is_failure(sense.key) {
            self.durability.on_lost_writes();
        } else if !sense.deferred && synchronizes_cache && is_write_failure(sense.key) {
            self.durability.on_lost_writes();
            effects.has_failed_flush = true;
            // Blocks that could not be written read differently from here on.
            self.identity.add_attention();
        }
        if attention == Some(AdditionalSense::NOT_READY_TO_READY_CHANGE) {
            self.identity.on_ready_change();
        }
    }

    fn on_task_error(&mut self, path: PathId, why: &TaskError) -> Meaning {
        match why {
            // The command had a status that reports nothing, or was never sent.
            TaskError::DataMissing { .. }
            | TaskError::Rejected { .. }
            | TaskError::ConnectionLost { sent: false, .. }
            | TaskError::Session { sent: false, .. }
            | TaskError::Withdrawn
            | TaskError::Closed => Meaning::Nothing,
            // After the end of the session nothing can be asked over it. A flush that was answered may wait for
            // what was reported before.
            TaskError::Session { .. }
            | TaskError::ConnectionLost { .. }
            | TaskError::TargetFailure(_) => {
                self.on_hidden_report(path);
                Meaning::Reason
            }
            TaskError::Aborted => {
                self.on_hidden_report(path);
                Meaning::GivenUp
            }
            // The command has moved data, or had no status for longer than a unit attention takes.
            TaskError::TimedOut | TaskError::DataDigest | _ => {
                self.on_hidden_report(path);
                Meaning::Nothing
            }
        }
    }

    /// Records that the unit may have reported something that did not arrive. The unit does not repeat it.
    pub(super) fn on_hidden_report(&mut self, path: PathId) {
        self.durability.on_uncertain_end(path);
        self.identity.add_attention();
    }
}
