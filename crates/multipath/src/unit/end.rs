//! Evaluates the end of a command: what it shows about the unit.

use iscsi_pdu::scsi::{AdditionalSense, Sense, SenseKey, Status};
use iscsi_session::TaskError;

use super::Unit;
use crate::commands::CommandNumber;
use crate::ids::PathId;

/// Facts about a command that the evaluation of its end depends on.
#[derive(Clone, Copy, Debug)]
pub struct CommandFacts {
    /// Number of the command on its path.
    pub number: CommandNumber,
    /// Whether the command is SYNCHRONIZE CACHE.
    pub synchronizes_cache: bool,
    /// Whether the command ended with the report that another initiator has ended the registration of the
    /// session.
    pub is_preempted: bool,
}

/// End of a command.
#[derive(Clone, Copy, Debug)]
pub enum CommandEnd<'a> {
    /// A status, with these sense data.
    Status(Status, &'a [u8]),
    /// No status, or one that must be ignored.
    Error(&'a TaskError),
}

/// Actions for the caller after the end of a command. Execute them without holding a lock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use]
pub struct Effects {
    /// Whether the unit may be another one, or must not be accessed any more. Withdraw the commands of the
    /// path that have not been sent.
    pub may_be_another_unit: bool,
    /// A unit attention, for the subscribers to changes of the unit.
    pub attention: Option<AdditionalSense>,
    /// Whether a flush has failed on the medium, so that other disks of the unit have lost writes as well.
    pub has_failed_flush: bool,
}

/// Conclusion from the end of a command about the identity of the unit.
enum Meaning {
    Nothing,
    /// A reason to revalidate the path.
    Reason,
    /// The initiator has given the command up. The missing status might have reported a reason to revalidate
    /// the path.
    GivenUp,
}

impl Unit {
    /// Records the end of a command. If its status is missing, the unit may have reported a reset with it,
    /// which the unit does not repeat.
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
        // Ends the command last, so that a flush that waits for it also sees its report.
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
            // Another initiator has aborted the command. TASK ABORTED may have replaced a report.
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

    /// Records what the sense data report about earlier writes, and about the unit itself.
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
            // A read of blocks that could not be written returns other data from here on, so this counts as a
            // change of the unit.
            self.identity.add_attention();
        }
        if attention == Some(AdditionalSense::NOT_READY_TO_READY_CHANGE) {
            self.identity.on_ready_change();
        }
    }

    fn on_task_error(&mut self, path: PathId, why: &TaskError) -> Meaning {
        match why {
            // The command had a status without a report, or was never sent.
            TaskError::DataMissing { .. }
            | TaskError::Rejected { .. }
            | TaskError::ConnectionLost { sent: false, .. }
            | TaskError::Session { sent: false, .. }
            | TaskError::Withdrawn
            | TaskError::Closed => Meaning::Nothing,
            // The missing status may hide a report of a reset. A flush over the same session that already has
            // the status GOOD waits until earlier commands, such as this one, have ended. The reason to
            // revalidate keeps that GOOD from being trusted, even if the session has ended and no
            // revalidation can be sent.
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
            // No reason to revalidate. TimedOut: a unit attention would have arrived earlier.
            // DataDigest: the command has moved data, so it did not end with a unit attention.
            TaskError::TimedOut | TaskError::DataDigest | _ => {
                self.on_hidden_report(path);
                Meaning::Nothing
            }
        }
    }

    /// Records that a report of the unit may not have arrived. The unit does not repeat it.
    pub(super) fn on_hidden_report(&mut self, path: PathId) {
        self.durability.on_uncertain_end(path);
        self.identity.add_attention();
    }
}

/// Returns whether a deferred error with this key reports that an acknowledged command failed (SPC-4 §4.5.5).
const fn is_failure(key: SenseKey) -> bool {
    !matches!(key, SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::UnitAttention)
}

/// Returns whether a flush that ended with this sense key may have lost data: the unit need not try again to
/// write the cached data.
pub const fn is_write_failure(key: SenseKey) -> bool {
    matches!(
        key,
        SenseKey::MediumError
            | SenseKey::HardwareError
            | SenseKey::DataProtect
            | SenseKey::VolumeOverflow
    )
}

/// Returns whether the LUN may lead to another unit after this report, or to a unit with other blocks: the
/// target has restarted or changed its LUN assignments, or the unit reports a change, or that it has become
/// ready.
pub const fn may_be_another_unit(reported: AdditionalSense) -> bool {
    reported.asc == AdditionalSense::POWER_ON_OR_RESET.asc
        || matches!(
            reported,
            AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
                | AdditionalSense::NOT_READY_TO_READY_CHANGE
                | AdditionalSense::MODE_PARAMETERS_CHANGED
                | AdditionalSense::CAPACITY_DATA_HAS_CHANGED
                | AdditionalSense::INQUIRY_DATA_HAS_CHANGED
                | AdditionalSense::DEVICE_IDENTIFIER_CHANGED
                | AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED
        )
}
