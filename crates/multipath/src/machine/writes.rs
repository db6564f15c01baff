//! Keeps the ranges that are being written, and the requests that wait for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::ops::Range;
use std::time::Instant;

use super::output::RequestId;
use crate::ids::PathId;
use crate::ranges::{Admitted, RangeId, Ranges};

/// The ranges of the unit that requests and attempts hold.
///
/// A write takes its range before anything else. The request holds the range until it has ended. Each attempt
/// holds it until the unit has ended the attempt. If the session of the attempt is lost, the attempt holds
/// the range until it is certain that the target will not execute the attempt any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    ranges: Ranges,
    /// Requests that wait for their range.
    waiting: BTreeMap<RangeId, Waiting>,
    /// Time limits of the waiting requests, with the ranges that they wait for.
    deadlines: BTreeSet<(Instant, RangeId)>,
    /// Requests whose ranges have become free.
    admitted: VecDeque<RequestId>,
    /// Ranges that lost sessions were writing, one entry per attempt.
    in_doubt: BTreeMap<PathId, Vec<RangeId>>,
}

#[derive(Clone, Debug)]
struct Waiting {
    request: RequestId,
    range: Range<u64>,
    deadline: Option<Instant>,
}

impl Writes {
    /// Takes a range, or appends it to the waiting ranges. Returns whether the range is taken.
    pub(super) fn take(&mut self, range: Range<u64>) -> (RangeId, bool) {
        self.ranges.take(range)
    }

    /// Adds a request that waits for its range. If the range is in doubt at `deadline`, the wait ends.
    pub(super) fn wait(
        &mut self,
        id: RangeId,
        range: Range<u64>,
        request: RequestId,
        deadline: Option<Instant>,
    ) {
        self.waiting.insert(id, Waiting { request, range, deadline });
        self.deadlines.extend(deadline.map(|at| (at, id)));
    }

    /// Returns the earliest time limit of a waiting request.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the requests that have waited for their ranges until their time limits.
    pub(super) fn late(&self, now: Instant) -> Vec<(RangeId, RequestId)> {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        due.filter_map(|(_, id)| Some((*id, self.waiting.get(id)?.request))).collect()
    }

    /// Sets the time limit of a request's wait. Changes nothing if its range has become free.
    pub(super) fn set_deadline(&mut self, id: RangeId, deadline: Option<Instant>) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let before = std::mem::replace(&mut waiting.deadline, deadline);
        before.into_iter().for_each(|at| _ = self.deadlines.remove(&(at, id)));
        self.deadlines.extend(deadline.map(|at| (at, id)));
    }

    /// Holds the range for an attempt.
    pub(super) fn hold(&mut self, id: RangeId) {
        self.ranges.hold(id);
    }

    /// Releases the range of a request or attempt that has ended, or ends the wait of a request.
    pub(super) fn release(&mut self, id: RangeId) {
        self.leave_line(id);
        let admitted = self.ranges.release(id);
        self.admit(admitted);
    }

    /// Marks the range as in doubt, because the write of a lost session may still be executed.
    pub(super) fn mark_in_doubt(&mut self, path: PathId, id: RangeId) {
        self.ranges.doubt(id);
        self.in_doubt.entry(path).or_default().push(id);
        self.release(id);
    }

    /// Releases all ranges that a lost session was writing, because the target will not execute these writes
    /// any more.
    pub(super) fn settle(&mut self, path: PathId) {
        for id in self.in_doubt.remove(&path).unwrap_or_default() {
            let admitted = self.ranges.settle(id);
            self.admit(admitted);
        }
    }

    /// Returns the next request whose range has become free.
    pub(super) fn pop_admitted(&mut self) -> Option<RequestId> {
        self.admitted.pop_front()
    }

    /// Returns whether a range that a request waits for is in doubt.
    pub(super) fn is_in_doubt(&self, id: RangeId) -> bool {
        self.waiting.get(&id).is_some_and(|waiting| self.ranges.is_in_doubt(&waiting.range))
    }

    /// Returns whether no write of a lost session may still be executed.
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
        for id in admitted {
            let request = self.leave_line(id);
            self.admitted.extend(request);
        }
    }

    fn leave_line(&mut self, id: RangeId) -> Option<RequestId> {
        let Waiting { request, deadline, .. } = self.waiting.remove(&id)?;
        deadline.into_iter().for_each(|at| _ = self.deadlines.remove(&(at, id)));
        Some(request)
    }
}
