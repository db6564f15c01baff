//! The reasons for which an initiator may count writes as lost, and whether there was one when it reported a loss.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

/// An initiator informs the target when it gives up a request. The target receives that information within
/// this time, unless a link stalls.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// Reasons for which the initiator may report lost writes, for all disks.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Number of events so far that may lose writes, or may hide the report of a loss.
    reasons: u64,
    /// State at the time when the opening of each disk began.
    at_opening: BTreeMap<usize, AtOpening>,
    /// Times at which faults delayed or dropped responses. The initiator must assume that a missing response
    /// reports a reset.
    kept_back: Vec<Instant>,
    /// Whether a write-back has failed. A session that reuses the name of an earlier I_T nexus may receive
    /// the deferred error late.
    has_deferred: bool,
    /// Number of task management functions that targets have executed, also those whose connection was gone by
    /// then.
    managed: u32,
    /// Reported losses without a known reason, each with the time until which a reason may still become known,
    /// and the number of reasons at the time of the report.
    suspected: Vec<(Instant, u64)>,
}

/// State when the opening of a disk began. The sessions exist before the disk is open, so they may later
/// report an event at the unit from the time in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOpening {
    reasons: u64,
    time: Instant,
}

impl Losses {
    /// Notes an event that may lose writes, or may hide the report of a loss from an initiator.
    pub(crate) const fn reason(&mut self) {
        self.reasons += 1;
    }

    /// Notes that a write-back has failed.
    pub(crate) const fn deferred(&mut self) {
        self.has_deferred = true;
        self.reason();
    }

    /// Notes the number of task management functions that the targets have executed so far. A further function
    /// is a reason for a loss: it may be a reset, and a command that an abort has ended does not report resets.
    pub(crate) const fn managed(&mut self, count: u32) {
        if self.managed != count {
            self.managed = count;
            self.reason();
        }
    }

    /// Notes that a fault delays the response to a command, or drops it.
    pub(crate) fn kept_back(&mut self) {
        self.kept_back.push(clock::now());
    }

    /// Returns the state at the time when the opening of a disk begins.
    pub(crate) fn opening(&self) -> AtOpening {
        AtOpening { reasons: self.reasons, time: clock::now() }
    }

    /// Notes that the disk is open.
    pub(crate) fn opened(&mut self, disk: usize, at_opening: AtOpening) {
        self.at_opening.insert(disk, at_opening);
    }

    /// Notes that a handle of a disk has reported a loss. `patience` is how long the flushes of the disk wait
    /// for the responses to earlier commands.
    pub(crate) fn on_reported_loss(&mut self, disk: usize, patience: Duration) {
        let Some(AtOpening { reasons, time }) = self.at_opening.get(&disk).copied() else { return };
        let is_given_up =
            |at: &Instant| *at >= time && clock::now().duration_since(*at) >= patience;
        let has_reason = self.reasons > reasons || self.kept_back.iter().any(is_given_up);
        if !has_reason && !self.has_deferred {
            self.suspected.push((clock::now() + GRACE, self.reasons));
        }
    }

    /// Returns whether a loss was reported whose reason may still become known.
    pub(crate) const fn is_any_suspected(&self) -> bool {
        !self.suspected.is_empty()
    }

    /// Returns the time at which the earliest suspected loss becomes a violation, unless a reason becomes known
    /// before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.suspected.first().map(|(due, _)| *due)
    }

    /// Returns whether a suspected loss has no reason, although the time in which one may become known is over.
    pub(crate) fn is_any_false(&mut self, now: Instant) -> bool {
        let reasons = self.reasons;
        self.suspected.retain(|(_, before)| *before == reasons);
        self.next().is_some_and(|due| due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loss_needs_a_reason_since_its_disk_began_to_open_or_soon_after_it_is_told() {
        let is_false = |before: bool, during: bool, since: bool, after: bool| {
            let mut losses = Losses::default();
            let give = |losses: &mut Losses, is_given: bool| {
                if is_given {
                    losses.reason();
                }
            };
            give(&mut losses, before);
            let opening = losses.opening();
            give(&mut losses, during);
            losses.opened(1, opening);
            give(&mut losses, since);
            losses.on_reported_loss(1, GRACE);
            give(&mut losses, after);
            assert!(!losses.is_any_false(Instant::now()), "a reason may come to light");
            losses.is_any_false(Instant::now() + GRACE)
        };
        assert!(is_false(false, false, false, false));
        assert!(is_false(true, false, false, false));
        assert!(!is_false(false, true, false, false));
        assert!(!is_false(false, false, true, false));
        assert!(!is_false(false, false, false, true));
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_to_a_task_management_function_is_a_reason() {
        let mut losses = Losses::default();
        losses.managed(1);
        losses.opened(1, losses.opening());
        losses.managed(1);
        losses.on_reported_loss(1, GRACE);
        assert!(losses.is_any_suspected());
        losses.managed(2);
        assert!(!losses.is_any_false(Instant::now() + GRACE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_without_an_answer_is_a_reason_once_nobody_waits_for_it() {
        for (before, after, is_false) in [(2, 0, true), (0, 1, true), (0, 2, false)] {
            let mut losses = Losses::default();
            losses.kept_back();
            tokio::time::advance(Duration::from_secs(before)).await;
            losses.opened(1, losses.opening());
            if before == 0 {
                losses.kept_back();
            }
            tokio::time::advance(Duration::from_secs(after)).await;
            losses.on_reported_loss(1, Duration::from_secs(2));
            assert_eq!(losses.is_any_suspected(), is_false);
        }
    }
}
