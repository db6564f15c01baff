//! What lets an initiator count writes as lost, and whether there was such a thing when it said so.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

/// What an initiator gives up it tells the target, which learns of that within this time, unless a link stalls.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// The reasons for a loss, of all disks.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// How many there were.
    reasons: u64,
    /// What there was when the opening of each disk began.
    at_opening: BTreeMap<usize, AtOpening>,
    /// When answers were kept back: a command without one may have been told of a reset, for all that is known.
    kept_back: Vec<Instant>,
    /// A write-back has failed: who comes back by the name of an earlier nexus is told that late.
    has_deferred: bool,
    /// How often a target has carried out a task management function. The connection that asked may be gone by then.
    managed: u32,
    /// Losses that were told without a reason, each with the time until which one may still come to light.
    suspected: Vec<(Instant, u64)>,
}

/// What there was when a disk began to be opened. Its sessions stand before it is open: what happens to the unit in
/// between, they may be told later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOpening {
    reasons: u64,
    time: Instant,
}

impl Losses {
    /// Something has happened that may have been a loss, or may have kept an initiator from being told of one.
    pub(crate) const fn reason(&mut self) {
        self.reasons += 1;
    }

    /// The same for a write-back that has failed.
    pub(crate) const fn deferred(&mut self) {
        self.has_deferred = true;
        self.reason();
    }

    /// Targets have carried out so many task management functions so far: what an abort ends says nothing of
    /// resets, and a reset is one.
    pub(crate) const fn managed(&mut self, count: u32) {
        if self.managed != count {
            self.managed = count;
            self.reason();
        }
    }

    /// A command has met a fault by which it is answered late, or never.
    pub(crate) fn kept_back(&mut self) {
        self.kept_back.push(clock::now());
    }

    /// A disk begins to be opened.
    pub(crate) fn opening(&self) -> AtOpening {
        AtOpening { reasons: self.reasons, time: clock::now() }
    }

    /// That disk is open.
    pub(crate) fn opened(&mut self, disk: usize, at_opening: AtOpening) {
        self.at_opening.insert(disk, at_opening);
    }

    /// A handle of a disk was told of a loss, whose flushes wait so long for what earlier commands are told.
    pub(crate) fn told(&mut self, disk: usize, patience: Duration) {
        let Some(AtOpening { reasons, time }) = self.at_opening.get(&disk).copied() else { return };
        let is_given_up =
            |at: &Instant| *at >= time && clock::now().duration_since(*at) >= patience;
        let has_reason = self.reasons > reasons || self.kept_back.iter().any(is_given_up);
        if !has_reason && !self.has_deferred {
            self.suspected.push((clock::now() + GRACE, self.reasons));
        }
    }

    /// Whether a loss was told for which there may still be a reason.
    pub(crate) const fn is_any_suspected(&self) -> bool {
        !self.suspected.is_empty()
    }

    /// When the next of those is known to have had none.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.suspected.first().map(|(due, _)| *due)
    }

    /// Whether there was no reason for one of them.
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
            losses.told(1, GRACE);
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
        losses.told(1, GRACE);
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
            losses.told(1, Duration::from_secs(2));
            assert_eq!(losses.is_any_suspected(), is_false);
        }
    }
}
