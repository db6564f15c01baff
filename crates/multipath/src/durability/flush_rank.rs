//! Ranks sessions as flushers and as witnesses.

use std::cmp::Reverse;

use super::Durability;
use super::reports::Epoch;
use crate::ids::PathId;

/// Rank of a session for flushing the writes of all sessions, by the reports that the session has received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlushRank {
    /// Whether the session joined before the oldest unflushed write began, so that it receives the report of
    /// every reset after the start of that write.
    pub is_witness: bool,
    /// Whether the session has received the report of a reset after the oldest unflushed write began, or may
    /// have missed such a report.
    pub may_know_reset: bool,
    /// When the session last received the report of a reset; the latest first. A session that has the latest
    /// report has received all older ones too.
    pub last_reset: Reverse<Epoch>,
}

/// Rank of a session as the witness of a flush over another session; the lowest is the best. Sessions that
/// have missed no status since the oldest write of the flush began come first, and among these the session
/// that has received reports for the longest time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct WitnessRank {
    is_uncertain: bool,
    complete_since: Epoch,
}

impl Durability {
    /// Returns how suitable a session is to flush the writes of all sessions.
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

    /// Returns how suitable a session is to vouch for the flush in progress.
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

    /// Returns whether there are unflushed writes for which this session can vouch and none of the `others`
    /// can, so that a flush needs this session. Writes of the flush in progress and later writes are checked
    /// separately, because a younger session may vouch for the later ones only.
    pub fn needs_beside(&self, path: PathId, others: impl Iterator<Item = PathId> + Clone) -> bool {
        let vouches = |path, oldest| self.paths.get(path).is_some_and(|it| it.knows_since(oldest));
        let unflushed = self.oldest.waiting.into_iter().chain(self.oldest.flushing);
        unflushed.into_iter().any(|oldest| {
            vouches(path, oldest) && !others.clone().any(|other| vouches(other, oldest))
        })
    }

    /// Returns whether some unflushed write began after the session had joined, so that a flush may need its
    /// reports. Reports that may have been hidden are not considered.
    pub fn needs(&self, path: PathId) -> bool {
        let Some(reports) = self.paths.get(path) else { return false };
        let unflushed = self.oldest.waiting.into_iter().chain(self.oldest.flushing);
        unflushed.into_iter().any(|oldest| reports.stood_at(oldest))
    }
}
