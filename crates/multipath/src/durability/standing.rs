//! Which session should flush for all, and which one is the best witness.

use std::cmp::Reverse;

use super::Durability;
use super::epoch::Epoch;
use crate::ids::PathId;

/// How fit a session is to flush for all, by the reports that it has received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlushRank {
    /// Whether it stood before the oldest unflushed write, so that it receives the report of every reset since.
    pub is_witness: bool,
    /// Whether it has received the report of a reset since then, or may have.
    pub may_know_reset: bool,
    /// When it last received such a report; the latest first. A session that had the last report already has no older one to
    /// receive.
    pub last_reset: Reverse<Epoch>,
}

/// How fit a session is to vouch for what another one has flushed; the least is the best: a session that has missed no
/// status since the oldest write, and of those the one that has received reports for the longest time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct WitnessRank {
    is_uncertain: bool,
    complete_since: Epoch,
}

impl Durability {
    /// How fit a session is to flush what was written over all sessions.
    pub fn flush_rank(&self, path: PathId) -> FlushRank {
        let Some(reports) = self.paths.get(path) else {
            return FlushRank {
                is_witness: false,
                may_know_reset: true,
                last_reset: Reverse(Epoch::default()),
            };
        };
        let last_reset = reports.last_reset();
        let has_news = |oldest| last_reset > oldest || reports.is_uncertain_since(oldest);
        FlushRank {
            is_witness: self.oldest.waiting.is_none_or(|oldest| reports.stood_at(oldest)),
            may_know_reset: self.oldest.waiting.is_some_and(has_news),
            last_reset: Reverse(last_reset),
        }
    }

    /// How fit a session is to vouch for the flush in progress.
    pub fn witness_rank(&self, path: PathId) -> WitnessRank {
        let Some(reports) = self.paths.get(path) else {
            return WitnessRank { is_uncertain: true, complete_since: Epoch::NEVER };
        };
        let is_uncertain = |oldest| reports.is_uncertain_since(oldest);
        WitnessRank {
            is_uncertain: self.oldest.flushing.is_some_and(is_uncertain),
            complete_since: reports.complete_since(),
        }
    }

    /// Whether there are writes that this session can vouch for and none of the `others` can, so that a flush needs it. What the
    /// flush in progress is for, and what was written since, are looked at apart: a younger session may vouch for the latter only.
    pub fn needs_beside(&self, path: PathId, others: impl Iterator<Item = PathId> + Clone) -> bool {
        let vouches = |path, oldest| self.paths.get(path).is_some_and(|it| it.knows_since(oldest));
        let unflushed = self.oldest.waiting.into_iter().chain(self.oldest.flushing);
        unflushed.into_iter().any(|oldest| {
            vouches(path, oldest) && !others.clone().any(|other| vouches(other, oldest))
        })
    }

    /// Whether there are writes that this session can vouch for and no flush has.
    pub fn needs(&self, path: PathId) -> bool {
        let Some(reports) = self.paths.get(path) else { return false };
        let unflushed = self.oldest.waiting.into_iter().chain(self.oldest.flushing);
        unflushed.into_iter().any(|oldest| reports.stood_at(oldest))
    }
}
