//! The ranges that are being written, and what waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::ops::Range;

use crate::ids::PathId;
use crate::ranges::{Admitted, RangeId, Ranges};
use crate::slab::Key;

/// Which requests and attempts hold ranges of the unit.
///
/// A write takes its range before anything else. The request holds the range until it has ended, and so does each attempt:
/// until the unit has ended it, or until it is proved that a lost session will not execute it any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    ranges: Ranges,
    /// The requests that wait for their range.
    waiting: BTreeMap<RangeId, Key>,
    /// Requests whose turn has come.
    admitted: VecDeque<Key>,
    /// What lost sessions were writing, one entry for each attempt.
    in_doubt: BTreeMap<PathId, Vec<RangeId>>,
}

impl Writes {
    /// Takes a range for a request, or puts the request in the line.
    pub(super) fn take(&mut self, range: Range<u64>, request: Key) -> (RangeId, bool) {
        let (id, is_taken) = self.ranges.take(range);
        if !is_taken {
            self.waiting.insert(id, request);
        }
        (id, is_taken)
    }

    /// An attempt is made to write in the range.
    pub(super) fn hold(&mut self, id: RangeId) {
        self.ranges.hold(id);
    }

    /// A request, or an attempt, has ended; or a request leaves the line.
    pub(super) fn release(&mut self, id: RangeId) {
        self.waiting.remove(&id);
        let admitted = self.ranges.release(id);
        self.admit(admitted);
    }

    /// A session was lost that may go on to write in the range.
    pub(super) fn lose(&mut self, path: PathId, id: RangeId) {
        self.ranges.doubt(id);
        self.in_doubt.entry(path).or_default().push(id);
        self.release(id);
    }

    /// The target has finished with what a lost session was writing.
    pub(super) fn settle(&mut self, path: PathId) {
        for id in self.in_doubt.remove(&path).unwrap_or_default() {
            let admitted = self.ranges.settle(id);
            self.admit(admitted);
        }
    }

    /// The next request whose turn has come.
    pub(super) fn pop_admitted(&mut self) -> Option<Key> {
        self.admitted.pop_front()
    }

    pub(super) fn is_in_doubt(&self, range: &Range<u64>) -> bool {
        self.ranges.is_in_doubt(range)
    }

    /// Whether a lost session may still write something.
    pub(super) fn are_settled(&self) -> bool {
        self.in_doubt.is_empty()
    }

    pub(super) fn are_none(&self) -> bool {
        self.ranges.are_free()
    }

    pub(super) fn in_doubt(&self) -> impl Iterator<Item = (PathId, usize)> {
        self.in_doubt.iter().map(|(path, ranges)| (*path, ranges.len()))
    }

    pub(super) fn fingerprint(&self, state: &mut impl Hasher) {
        self.ranges.fingerprint(state);
    }

    pub(super) fn name(&self, id: RangeId) -> (u64, Option<usize>) {
        self.ranges.name(id)
    }

    fn admit(&mut self, admitted: Admitted) {
        let turns = admitted.iter().filter_map(|id| self.waiting.remove(id));
        self.admitted.extend(turns);
    }
}
