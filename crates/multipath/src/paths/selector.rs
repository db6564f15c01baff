//! Chooses the path for a request: among the best paths that have credit, the one that is expected to
//! complete the request first.
//!
//! `PathState` has the limits and the rate of each path. Times and sizes are arguments, so that all of this
//! runs in virtual time.

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use iscsi_rate::Rate;
use smallvec::SmallVec;

use crate::access::{Access, Priority};
use crate::ids::PathId;
use crate::paths::hedge::HedgePolicy;
use crate::paths::path_state::{Credit, MIN_LEN, PathPermit, PathState, Requirements, Share};

/// Selects paths for requests, and tracks the requests in flight on each path.
///
/// Requests use the best paths only: those that respond, and among these the paths whose ports have the best
/// [priority](Access::priority). A path over which the unit has just refused a request comes last. A request
/// that must be alone on its path reserves the path that is expected to be idle first.
#[derive(Clone, Debug)]
pub struct PathSelector {
    paths: SmallVec<[PathState; 1]>,
    /// Limits of the requests in flight on all paths together.
    total: Credit,
    hedge: HedgePolicy,
    /// The path that takes no more requests until it is idle, because a request waits that must be alone on
    /// it.
    reserved: Option<PathId>,
}

/// Maximum time for which a request should keep its path busy.
const MAX_REQUEST_TIME: Duration = Duration::from_millis(500);
/// Time for which a path comes last after the unit has refused a request over it, unless a request completes
/// there earlier.
const HOLD_UP: Duration = Duration::from_secs(1);
/// Minimum length of a part of a request, in bytes; lengths are multiples of it. Most targets accept this
/// length without R2T.
const MIN_REQUEST_LEN: u64 = 64 << 10;

/// Rank of a path; the lowest is the best. A path that does not respond comes last, whatever its port.
type Rank = (bool, Priority);

impl PathSelector {
    /// Creates a selector without paths.
    pub fn new(total: Credit, hedge: HedgePolicy) -> Self {
        Self { paths: SmallVec::new(), total, hedge, reserved: None }
    }

    /// Adds a path.
    pub fn add(&mut self, id: PathId, credit: Credit) {
        self.paths.push(PathState::new(id, credit));
    }

    /// Removes a path with its requests in flight.
    pub fn remove(&mut self, id: PathId) {
        self.paths.retain(|path| path.id != id);
    }

    /// Returns whether the path exists.
    pub fn contains(&self, id: PathId) -> bool {
        self.path(id).is_some()
    }

    /// Closes a path: it takes no more requests.
    pub fn close(&mut self, id: PathId) {
        if let Some(path) = self.path_mut(id) {
            path.is_closing = true;
        }
    }

    /// Returns whether the path is closed, and has not been removed.
    pub fn is_closing(&self, id: PathId) -> bool {
        self.path(id).is_some_and(|path| path.is_closing)
    }

    /// Returns whether no other path takes requests.
    pub fn is_last(&self, id: PathId) -> bool {
        !self.paths.iter().any(|path| path.id != id && !path.is_closing)
    }

    /// Returns whether there is no other path, closed or not.
    pub fn is_only(&self, id: PathId) -> bool {
        self.paths.iter().all(|path| path.id == id)
    }

    /// Reopens all paths if every path is closed, so that requests have a path.
    pub fn reopen_if_none_is_left(&mut self) {
        if self.paths.iter().all(|path| path.is_closing) {
            self.paths.iter_mut().for_each(|path| path.is_closing = false);
        }
    }

    /// Sets the limits of the requests in flight on a path.
    pub fn set_credit(&mut self, id: PathId, credit: Credit) {
        if let Some(path) = self.path_mut(id) {
            path.credit = credit;
        }
    }

    /// Sets the access state of the port that a path leads to, and returns whether it has changed.
    pub fn set_access(&mut self, id: PathId, access: Access) -> bool {
        let Some(path) = self.path_mut(id).filter(|path| path.access != access) else {
            return false;
        };
        // A refusal in one state of the port does not predict refusals in another state.
        (path.access, path.held_up_until) = (access, None);
        true
    }

    /// Returns the access state of the port that a path leads to.
    pub fn access(&self, id: PathId) -> Option<Access> {
        self.path(id).map(|path| path.access)
    }

    /// Returns whether another path responds, and leads through a port that serves the unit.
    pub fn others_serve(&self, id: PathId, now: Instant) -> bool {
        let mut others = self.paths.iter().filter(|path| path.id != id && !path.is_closing);
        others.any(|path| path.access.serves() && !path.is_silent(&self.hedge, now))
    }

    /// Returns whether `silent` has completed nothing for the time after which a request is stuck, while `other`,
    /// whose port serves the unit, has completed a request.
    pub fn answers_beside(&self, other: PathId, silent: PathId, now: Instant) -> bool {
        let (Some(other), Some(silent)) = (self.path(other), self.path(silent)) else {
            return false;
        };
        silent.is_silent(&self.hedge, now)
            && other.access.serves()
            && other.has_answered_beside(silent, &self.hedge)
    }

    /// Returns whether anything is in flight.
    pub fn has_requests(&self) -> bool {
        self.paths.iter().any(|path| path.requests > 0)
    }

    /// Returns whether requests are in flight on a path and none has completed for the time after which a
    /// request is stuck.
    pub fn is_silent(&self, id: PathId, now: Instant) -> bool {
        self.path(id).is_some_and(|path| path.is_silent(&self.hedge, now))
    }

    /// Returns the paths that requests are sent to, in the order of their numbers.
    #[must_use]
    pub fn in_use(&self, now: Instant) -> Vec<PathId> {
        ids(self.used(now).filter(|path| !path.is_closing))
    }

    /// Returns the closed paths, in the order of their numbers.
    #[must_use]
    pub fn closing(&self) -> Vec<PathId> {
        ids(self.paths.iter().filter(|path| path.is_closing))
    }

    /// Returns whether any path is closed.
    pub(crate) fn has_closing(&self) -> bool {
        self.paths.iter().any(|path| path.is_closing)
    }

    /// Returns the rank of a path. Whether the only path responds has no effect on the choice and is expensive
    /// to compute, so it is not computed (docs/design/hot-path.md).
    fn rank(&self, path: &PathState, now: Instant) -> Rank {
        let is_silent = self.paths.len() > 1 && path.is_silent(&self.hedge, now);
        (is_silent, path.access.priority())
    }

    fn best(&self, avoid: Option<PathId>, now: Instant) -> Option<Rank> {
        let open = self.paths.iter().filter(|path| Some(path.id) != avoid && !path.is_closing);
        open.map(|path| self.rank(path, now)).min()
    }

    fn used(&self, now: Instant) -> impl Iterator<Item = &PathState> {
        let best = self.best(None, now);
        self.paths.iter().filter(move |path| Some(self.rank(path, now)) == best)
    }

    /// Makes a path the last choice for a time, because the unit has refused a request over it.
    pub fn hold_up(&mut self, id: PathId, now: Instant) {
        if let Some(path) = self.path_mut(id) {
            path.held_up_until = Some(now + HOLD_UP);
        }
    }

    /// Returns whether the path is the last choice because the unit has refused a request over it.
    pub fn is_held_up(&self, id: PathId, now: Instant) -> bool {
        self.path(id).is_some_and(|path| path.is_held_up(now))
    }

    /// Returns the earliest time at which a path stops being the last choice.
    pub fn hold_up_end(&self, now: Instant) -> Option<Instant> {
        let ends = self.paths.iter().filter_map(|path| path.held_up_until);
        ends.filter(|end| *end > now).min()
    }

    /// Reserves the path that is expected to be idle first, for a request that must be alone on it.
    pub fn reserve(&mut self, now: Instant) {
        let open = self.used(now).filter(|path| !path.is_closing && !path.is_alone);
        self.reserved = open.min_by_key(|path| path.bytes_in_flight).map(|path| path.id);
    }

    /// Ends the reservation of a path.
    pub fn unreserve(&mut self) {
        self.reserved = None;
    }

    /// Returns whether the request in flight on a path must stay alone there.
    pub fn is_alone(&self, id: PathId) -> bool {
        self.path(id).is_some_and(|path| path.is_alone)
    }

    /// Returns the path for a request of `len` bytes; `None` if no path takes it now.
    pub fn pick(&self, len: u64, requirements: Requirements, now: Instant) -> Option<PathId> {
        let len = len.max(MIN_LEN);
        if let [only] = &*self.paths {
            return self.pick_only(only, len, requirements);
        }
        let Requirements { avoid, is_alone } = requirements;
        let usual =
            self.paths.iter().filter_map(|path| path.delivery.rate()).max().unwrap_or(Rate::MIN);
        let share = Share::of(self.total, self.used(now).count());
        let best = self.best(avoid, now)?;
        let is_open = |path: &PathState| {
            let is_best = self.rank(path, now) == best;
            let is_fit = avoid.is_none_or(|avoid| path.id != avoid && path.access.serves());
            is_best && is_fit && !path.is_closing
        };
        let mut open = self.paths.iter().filter(|path| is_open(path));
        let all_are_held_up = open.all(|path| path.is_held_up(now));
        self.paths
            .iter()
            .filter(|path| is_open(path) && path.takes(len, share, is_alone))
            .filter(|path| is_alone || Some(path.id) != self.reserved)
            .filter(|path| !path.is_held_up(now) || all_are_held_up)
            // A request that must be alone may end its session, so it takes the youngest path. Older sessions
            // were open during more of the earlier writes, so they can show for more of them that no reset has
            // lost them.
            .min_by_key(|path| {
                (is_alone.then_some(Reverse(path.id)), path.time_to_finish(len, usual))
            })
            .map(|path| path.id)
    }

    /// Decides for the only path, without comparisons (docs/design/hot-path.md).
    fn pick_only(&self, only: &PathState, len: u64, requirements: Requirements) -> Option<PathId> {
        let Requirements { avoid, is_alone } = requirements;
        let is_fit = avoid.is_none_or(|avoid| avoid != only.id && only.access.serves());
        let is_reserved = !is_alone && self.reserved == Some(only.id);
        let takes = is_fit
            && !only.is_closing
            && !is_reserved
            && only.takes(len, Share::of(self.total, 1), is_alone);
        takes.then_some(only.id)
    }

    /// Adds a request to a path, and returns its permit; `is_crowded` is whether more work waits. `None` if the
    /// path was removed.
    pub fn take(
        &mut self,
        id: PathId,
        len: u64,
        requirements: Requirements,
        is_crowded: bool,
        now: Instant,
    ) -> Option<PathPermit> {
        Some(self.path_mut(id)?.take(len.max(MIN_LEN), requirements, is_crowded, now))
    }

    /// Returns a permit for a request that is sent over a path regardless of other requests in flight there,
    /// and takes no credit. `None` if the path was removed.
    pub fn take_beside(&mut self, id: PathId, now: Instant) -> Option<PathPermit> {
        Some(self.path_mut(id)?.take_beside(now))
    }

    /// Removes a request that has completed, and updates the measurements of the path.
    pub fn answered(&mut self, permit: &PathPermit, now: Instant) {
        if let Some(path) = self.path_mut(permit.path) {
            path.answered(permit, now);
        }
    }

    /// Removes a request that has not completed, or whose completion must not be measured.
    pub fn release(&mut self, permit: &PathPermit) {
        if let Some(path) = self.path_mut(permit.path) {
            path.release(permit);
        }
    }

    /// Returns the time after which a request on `path` is late. It is long enough for the fastest other path to
    /// complete nearly every request.
    pub fn late_after(&self, path: PathId) -> Duration {
        let others = self.paths.iter().filter(|other| other.id != path);
        self.hedge.late(others.filter_map(|path| path.delivery.rto()).min())
    }

    /// Returns the time after which a request on `path` is stuck, so that it may also be sent over any other
    /// path.
    pub fn stuck_after(&self, path: PathId) -> Duration {
        self.hedge.stuck(self.path(path).and_then(|path| path.delivery.rto()))
    }

    /// Returns an idle path, other than `avoid`, for a second copy of a request that is in flight on `avoid`.
    pub fn idle(&self, avoid: PathId, now: Instant) -> Option<PathId> {
        let best = self.best(None, now);
        let is_idle = |path: &&PathState| {
            Some(self.rank(path, now)) == best
                && path.id != avoid
                && path.access.serves()
                && path.requests == 0
                && !path.is_closing
                && !path.is_held_up(now)
        };
        let idle = self.paths.iter().filter(is_idle);
        idle.min_by_key(|path| path.delivery.rto().unwrap_or(Duration::MAX)).map(|path| path.id)
    }

    /// Returns the recommended length limit of a request, in bytes, so that a path with the median rate
    /// completes it soon; no limit while a rate is unknown. With a single path, `now` is not called.
    pub fn max_request_len(&self, now: impl FnOnce() -> Instant) -> u64 {
        if self.paths.len() < 2 {
            return u64::MAX;
        }
        let now = now();
        let mut rates: Vec<_> = self.used(now).filter_map(|path| path.delivery.rate()).collect();
        if rates.len() < self.used(now).count() || rates.len() < 2 {
            return u64::MAX;
        }
        rates.sort_unstable();
        let rate = rates.get(rates.len() / 2).copied().unwrap_or(Rate::MIN);
        let bytes = rate.bytes_in(MAX_REQUEST_TIME);
        (bytes - bytes % MIN_REQUEST_LEN).max(MIN_REQUEST_LEN)
    }

    /// Returns the bytes in flight on a path.
    pub fn in_flight(&self, id: PathId) -> u64 {
        self.path(id).map_or(0, |path| path.bytes_in_flight)
    }

    /// Hashes the requests in flight on each path, and the state that affects later choices, without
    /// measurements.
    pub(crate) fn fingerprint(&self, now: Instant, state: &mut impl Hasher) {
        for path in &self.paths {
            let decides = (path.is_closing, path.is_alone, path.access, path.is_held_up(now));
            (path.requests, path.bytes_in_flight, path.credit, decides).hash(state);
        }
        self.reserved.and_then(|id| self.paths.iter().position(|path| path.id == id)).hash(state);
    }

    fn path(&self, id: PathId) -> Option<&PathState> {
        self.paths.iter().find(|path| path.id == id)
    }

    fn path_mut(&mut self, id: PathId) -> Option<&mut PathState> {
        self.paths.iter_mut().find(|path| path.id == id)
    }
}

/// Returns the numbers of paths, sorted. A path gets its number at the login, and may be added after a path
/// with a higher number.
fn ids<'a>(paths: impl Iterator<Item = &'a PathState>) -> Vec<PathId> {
    let mut ids: Vec<_> = paths.map(|path| path.id).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests;
