//! What all handles of one logical unit know together.

use std::sync::Arc;

use iscsi_pdu::scsi::{AdditionalSense, Cdb, Sense, SenseKey, Status};
use iscsi_session::{Completion, TaskError};
use tokio::sync::OnceCell;

use crate::completion::sense_of;
use crate::error::Error;
use crate::state::across_sessions::AcrossSessions;
use crate::state::capacity::Capacity;
use crate::state::doubts::Doubts;
use crate::state::fencing::Membership;
use crate::state::outstanding::{CommandNumber, Outstanding};
use crate::state::profile::Profile;
use crate::state::size::SizeQuestion;
use crate::state::unflushed::Unflushed;

/// What is known of a logical unit within a session.
#[derive(Debug)]
pub(crate) struct UnitState {
    pub(crate) across: Arc<AcrossSessions>,
    pub(crate) unflushed: Unflushed,
    pub(crate) outstanding: Outstanding,
    pub(crate) doubts: Doubts,
    pub(crate) membership: Membership,
    pub(crate) profile: OnceCell<Arc<Profile>>,
}

impl Default for UnitState {
    fn default() -> Self {
        let across = Arc::<AcrossSessions>::default();
        Self {
            profile: OnceCell::default(),
            unflushed: Unflushed::following(&across),
            outstanding: Outstanding::default(),
            doubts: Doubts::following(&across),
            membership: Membership::default(),
            across,
        }
    }
}

impl UnitState {
    /// Takes in what the unit tells of earlier writes, and of itself. Says whether it may be another
    /// unit by that.
    fn hear(&self, sense: Option<Sense>, synchronizes_cache: bool) -> bool {
        let Some(sense) = sense else { return false };
        let is_attention = sense.key == SenseKey::UnitAttention;
        if is_attention || sense.deferred {
            tracing::debug!(%sense, "the unit has something to tell");
            self.across.attentions.add();
        }
        if is_attention {
            self.across.changes.hear(sense.additional);
        }
        if is_attention && sense.additional.is_reset() {
            self.unflushed.reset();
        } else if is_attention && sense.additional == AdditionalSense::MODE_PARAMETERS_CHANGED {
            self.unflushed.found_cache();
        } else if sense.deferred && is_failure(sense.key) {
            self.unflushed.lost();
        } else if !sense.deferred && synchronizes_cache && is_write_failure(sense.key) {
            self.unflushed.flush_failed();
            // What could not be written reads as something else from now on.
            self.across.attentions.add();
        }
        if is_attention && sense.additional == AdditionalSense::NOT_READY_TO_READY_CHANGE {
            self.hear_of_medium();
        }
        // What waits is taken back, and then ends by the verdict.
        let is_preempted = is_attention && self.membership.on_unit_attention(sense.additional);
        is_preempted || may_be_another_unit(sense.additional)
    }

    /// The medium may be another one. Before anything is known of the unit, it is the one that will be known.
    fn hear_of_medium(&self) {
        let was_known = self.profile.get().is_some_and(|known| known.removable);
        self.across.medium.may_have_changed(was_known);
    }

    /// The unit may have told something that nobody heard, and does not tell it again.
    fn may_have_told(&self) {
        self.unflushed.may_be_reset();
        self.across.attentions.add();
    }

    /// The session leads to another unit, for good.
    pub(crate) fn found_another(&self, verdict: &Error) {
        self.doubts.found_another(verdict);
        self.across.attentions.add();
    }

    /// A unit that was found to be that of before has told its capacity.
    pub(crate) fn learn_size(&self, question: SizeQuestion, found: &Capacity) {
        let Some(known) = self.profile.get() else { return };
        if let Some((before, now)) = self.across.size.learn(question, &known.capacity, found) {
            tracing::info!(before, now, "the unit has another capacity, bytes");
            self.across.attentions.add();
            self.across.changes.resized(before, now);
        }
    }

    /// Whether something was known of the unit, and has to be asked again before it counts.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubts.is_any() && self.is_known()
    }

    /// Whether something is known of the unit by which it can be known again.
    pub(crate) fn is_known(&self) -> bool {
        self.profile.initialized()
    }

    /// Takes over what the unit has told while it was asked who it is: it does not tell it again.
    pub(crate) fn heed(&self, asked: &Self) {
        if asked.doubts.is_any() {
            self.doubts.raise();
        }
        if asked.unflushed.has_lost() {
            self.unflushed.lost();
        }
        if asked.across.medium.is_told() {
            self.hear_of_medium();
        }
        if asked.across.attentions.count() > 0 {
            self.across.attentions.add();
        }
    }

    /// What is known of the same unit within a further session, where it has this profile: what it is,
    /// and what is being written. Resets are reported to each session for itself. So many doubts that
    /// hold for all sessions had been raised before the unit is asked there.
    pub(crate) fn shared_with_another_session(&self, profile: &Profile, doubts: u64) -> Self {
        // It may have been switched on since the unit was asked first.
        if profile.write_cache != Some(false) {
            self.unflushed.found_cache();
        }
        Self {
            profile: self.profile.clone(),
            unflushed: self.unflushed.follow(),
            outstanding: Outstanding::default(),
            doubts: Doubts::following_since(&self.across, doubts),
            membership: self.membership.follow(),
            across: Arc::clone(&self.across),
        }
    }
}

/// A command under way, until its status is known or it is known that none will come. Dropped without
/// a word, it was never sent, or went with its session.
#[derive(Debug)]
pub(crate) struct Listener {
    unit: Arc<UnitState>,
    number: CommandNumber,
    synchronizes_cache: bool,
}

impl Listener {
    /// A command with this number is sent.
    pub(crate) fn new(unit: &Arc<UnitState>, number: CommandNumber, cdb: &Cdb) -> Self {
        let synchronizes_cache = cdb.synchronizes_cache();
        Self { unit: Arc::clone(unit), number, synchronizes_cache }
    }

    /// The command has ended. A status that does not come may have told of a reset, which the unit does
    /// not tell again. Says whether the unit may be another one from now on.
    ///
    /// What was never sent has received no report. What was aborted in order may have: a unit attention is cleared when it is
    /// reported with CHECK CONDITION (SAM-5 §5.14), and some targets, such as tgt, clear it and then take the status back with
    /// the task. Where the target sends each status that it has, the status comes before the answer to the abort (RFC 7143
    /// §11.6), the task ends with it, and all is known. No question to the unit can tell the two apart afterwards, so nothing
    /// is aborted where its end can be waited for: in a request of several commands of which one fails
    /// (`handles/disk/join.rs`), in a copy that is cancelled.
    pub(crate) fn ended(&self, result: &Result<Completion, TaskError>) -> bool {
        let doubts = &self.unit.doubts;
        match result {
            Ok(completion) if self.unit.hear(sense_of(completion), self.synchronizes_cache) => {
                doubts.raise();
            }
            Ok(completion) if hides_what_was_told(completion) => {
                self.unit.may_have_told();
                doubts.give_up();
            }
            // It had a status that tells of nothing, or was never sent.
            Ok(_)
            | Err(
                TaskError::DataMissing { .. }
                | TaskError::Rejected { .. }
                | TaskError::ConnectionLost { sent: false, .. }
                | TaskError::Session { sent: false, .. }
                | TaskError::Withdrawn
                | TaskError::Closed,
            ) => return false,
            // Over a session that is over, nothing can be asked any more; a flush that was answered may wait to
            // hear what was told before.
            Err(TaskError::Session { .. }) => {
                self.unit.may_have_told();
                doubts.raise();
            }
            Err(why) => {
                self.unit.may_have_told();
                if matches!(why, TaskError::Aborted) {
                    doubts.give_up();
                } else if matches!(
                    why,
                    TaskError::ConnectionLost { .. } | TaskError::TargetFailure(_)
                ) {
                    doubts.raise();
                } else {
                    // It has moved data, or had no status for longer than a unit attention takes.
                    return false;
                }
            }
        }
        true
    }

    /// Whether the unit has to be asked first which one it is.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.unit.is_in_doubt()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unit.outstanding.end(self.number);
    }
}

/// Whether a status stands in the place of what the unit had to tell: somebody else has ended the command, or
/// there are no sense data that can be read.
fn hides_what_was_told(completion: &Completion) -> bool {
    match completion.status {
        Status::TASK_ABORTED => true,
        Status::CHECK_CONDITION => sense_of(completion).is_none(),
        _ => false,
    }
}

/// Whether a deferred error says that something acknowledged was not done (SPC-4 §4.5.5).
const fn is_failure(key: SenseKey) -> bool {
    !matches!(key, SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::UnitAttention)
}

/// Whether a flush ended in a way that may have cost what was to be written: the unit need not
/// try again, whoever waits for the answer.
pub(crate) const fn is_write_failure(key: SenseKey) -> bool {
    matches!(
        key,
        SenseKey::MediumError
            | SenseKey::HardwareError
            | SenseKey::DataProtect
            | SenseKey::VolumeOverflow
    )
}

/// Whether the unit behind the number may be another one from now on, or have other blocks: its target
/// was started anew, its numbers were given out anew, or it says that it has changed, or become ready again.
pub(crate) const fn may_be_another_unit(told: AdditionalSense) -> bool {
    told.asc == AdditionalSense::POWER_ON_OR_RESET.asc
        || matches!(
            told,
            AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
                | AdditionalSense::NOT_READY_TO_READY_CHANGE
                | AdditionalSense::MODE_PARAMETERS_CHANGED
                | AdditionalSense::CAPACITY_DATA_HAS_CHANGED
                | AdditionalSense::INQUIRY_DATA_HAS_CHANGED
                | AdditionalSense::DEVICE_IDENTIFIER_CHANGED
                | AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody may wait for the answer any more: what it says counts all the same.
    #[test]
    fn a_flush_that_fails_on_the_medium_is_a_loss_whoever_waits_for_it() {
        const RESPONSE_CODE: usize = 0;
        const KEY: usize = 2;
        let sense = |response_code, key: SenseKey| {
            let mut bytes = [0; 18];
            (bytes[RESPONSE_CODE], bytes[KEY]) = (response_code, key.code());
            Sense::decode(&bytes).ok()
        };
        let lost = |sense: Option<Sense>, synchronizes_cache| {
            let unit = UnitState::default();
            unit.hear(sense, synchronizes_cache);
            unit.unflushed.has_lost()
        };
        let (current, deferred) = (0x70, 0x71);
        for (key, is_lost) in [
            (SenseKey::MediumError, true),
            (SenseKey::HardwareError, true),
            (SenseKey::NotReady, false),
            (SenseKey::IllegalRequest, false),
            (SenseKey::RecoveredError, false),
        ] {
            assert_eq!(lost(sense(current, key), true), is_lost, "{key:?}");
            assert!(!lost(sense(current, key), false), "a read may fail as well");
        }
        assert!(lost(sense(deferred, SenseKey::MediumError), false));
        assert!(!lost(None, true));
    }
}
