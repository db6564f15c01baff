//! Which path takes the next request: of the best paths that have credit, the one that is expected to finish it first.
//!
//! How much a path takes, and how fast it is, is known by its `PathState`. Times and sizes are arguments, so that all of
//! this runs in virtual time.

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use iscsi_rate::Rate;
use smallvec::SmallVec;

use crate::access::{Access, Priority};
use crate::ids::PathId;
use crate::paths::hedge::HedgePolicy;
use crate::paths::path_state::{Credit, MIN_LEN, PathPermit, PathState, Requirements, Share};

/// Chooses paths for requests, and knows what is in flight on each.
///
/// Requests use the best paths only: those that answer, and of these the ones whose ports have the best
/// [priority](Access::priority). A path where the unit has just refused a request comes last. A request that must be
/// alone on its path reserves the one that is expected to be idle first.
#[derive(Clone, Debug)]
pub struct PathSelector {
    paths: SmallVec<[PathState; 1]>,
    /// What all paths together may have in flight.
    total: Credit,
    hedge: HedgePolicy,
    /// The path that takes nothing more until it is idle, because a request waits that must be alone.
    reserved: Option<PathId>,
}

/// A request should not keep its path busy for longer.
const MAX_REQUEST_TIME: Duration = Duration::from_millis(500);
/// A path where the unit did not take a request comes last for this time, or until it answers one.
const HOLD_UP: Duration = Duration::from_secs(1);
/// Minimum length of a part of a request, in bytes; lengths are multiples of it. Most targets take as much without R2T.
const MIN_REQUEST_LEN: u64 = 64 << 10;

/// How good a path is; the least is the best. A path that does not answer comes last, whatever its port.
type Rank = (bool, Priority);

impl PathSelector {
    /// Makes a selector without paths.
    pub fn new(total: Credit, hedge: HedgePolicy) -> Self {
        Self { paths: SmallVec::new(), total, hedge, reserved: None }
    }

    /// Adds a path.
    pub fn add(&mut self, id: PathId, credit: Credit) {
        self.paths.push(PathState::new(id, credit));
    }

    /// Removes a path, and what was in flight on it.
    pub fn remove(&mut self, id: PathId) {
        self.paths.retain(|path| path.id != id);
    }

    /// Returns whether the path is there.
    pub fn contains(&self, id: PathId) -> bool {
        self.path(id).is_some()
    }

    /// Closes a path: it takes nothing more.
    pub fn close(&mut self, id: PathId) {
        if let Some(path) = self.path_mut(id) {
            path.is_closing = true;
        }
    }

    /// Returns whether the path was closed and is still there.
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

    /// Opens closed paths again where only closed ones are left: they must do until another one comes.
    pub fn reopen_if_none_is_left(&mut self) {
        if self.paths.iter().all(|path| path.is_closing) {
            self.paths.iter_mut().for_each(|path| path.is_closing = false);
        }
    }

    /// Sets what may be in flight on a path by its plan.
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
        // What the port refused in one state says nothing of another state.
        (path.access, path.held_up_until) = (access, None);
        true
    }

    /// Returns the access state of the port that a path leads to.
    pub fn access(&self, id: PathId) -> Option<Access> {
        self.path(id).map(|path| path.access)
    }

    /// Returns whether another path answers and leads through a port that serves the unit.
    pub fn others_serve(&self, id: PathId, now: Instant) -> bool {
        let mut others = self.paths.iter().filter(|path| path.id != id && !path.is_closing);
        others.any(|path| path.access.serves() && !path.is_silent(&self.hedge, now))
    }

    /// Returns whether anything is in flight.
    pub fn has_requests(&self) -> bool {
        self.paths.iter().any(|path| path.requests > 0)
    }

    /// Returns whether a path has requests in flight and has not answered for as long as makes a request stuck.
    pub fn is_silent(&self, id: PathId, now: Instant) -> bool {
        self.path(id).is_some_and(|path| path.is_silent(&self.hedge, now))
    }

    /// Returns the paths that requests go to, in the order of their numbers.
    #[must_use]
    pub fn in_use(&self, now: Instant) -> Vec<PathId> {
        ids(self.used(now).filter(|path| !path.is_closing))
    }

    /// Returns the paths that were closed, in the order of their numbers.
    #[must_use]
    pub fn closing(&self) -> Vec<PathId> {
        ids(self.paths.iter().filter(|path| path.is_closing))
    }

    /// Returns whether any path is closed.
    pub(crate) fn has_closing(&self) -> bool {
        self.paths.iter().any(|path| path.is_closing)
    }

    /// The silence of the only path changes nothing, and costs something to find out (docs/design/hot-path.md).
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

    /// Puts a path last for a while: the unit did not take a request over it.
    pub fn hold_up(&mut self, id: PathId, now: Instant) {
        if let Some(path) = self.path_mut(id) {
            path.held_up_until = Some(now + HOLD_UP);
        }
    }

    /// Returns whether the path comes last because the unit did not take a request over it.
    pub fn is_held_up(&self, id: PathId, now: Instant) -> bool {
        self.path(id).is_some_and(|path| path.is_held_up(now))
    }

    /// Returns when the first path does not come last any more.
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

    /// Returns the path for a request of `len` bytes; `None` if none takes it now.
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
            // A request that may end its session takes the youngest path: older sessions can vouch for more of the
            // earlier writes.
            .min_by_key(|path| {
                (is_alone.then_some(Reverse(path.id)), path.time_to_finish(len, usual))
            })
            .map(|path| path.id)
    }

    /// One path leaves nothing to compare (docs/design/hot-path.md).
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

    /// Gives a request its place on a path; `is_crowded` says whether more work waits. `None` if the path is gone.
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

    /// Returns a permit for a request that goes over a path whatever is in flight there, and takes no credit. `None` if the
    /// path is gone.
    pub fn take_beside(&mut self, id: PathId, now: Instant) -> Option<PathPermit> {
        Some(self.path_mut(id)?.take_beside(now))
    }

    /// Ends the place of a request that was answered, and measures the path by it.
    pub fn answered(&mut self, permit: &PathPermit, now: Instant) {
        if let Some(path) = self.path_mut(permit.path) {
            path.answered(permit, now);
        }
    }

    /// Ends the place of a request that was not answered, or whose answer says nothing of the path.
    pub fn release(&mut self, permit: &PathPermit) {
        if let Some(path) = self.path_mut(permit.path) {
            path.release(permit);
        }
    }

    /// Returns the time after which a request on `path` is late: an idle path would have answered it by then.
    pub fn late_after(&self, path: PathId) -> Duration {
        let others = self.paths.iter().filter(|other| other.id != path);
        self.hedge.late(others.filter_map(|path| path.delivery.rto()).min())
    }

    /// Returns the time after which a request on `path` is stuck: it then waits for any other path.
    pub fn stuck_after(&self, path: PathId) -> Duration {
        self.hedge.stuck(self.path(path).and_then(|path| path.delivery.rto()))
    }

    /// Returns an idle path for a second copy of a request on `avoid`.
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

    /// Returns how long a request may be, in bytes, so that a path of middling rate answers it soon; no limit while a
    /// rate is not known. One path needs no look at the clock.
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

    /// Hashes what is in flight on each path and what decides about it, without what was measured.
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

/// The numbers of paths in their order. A path has its number from its login on, and may be added behind a later one.
fn ids<'a>(paths: impl Iterator<Item = &'a PathState>) -> Vec<PathId> {
    let mut ids: Vec<_> = paths.map(|path| path.id).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use iscsi_pdu::scsi::AccessState;

    use super::*;

    const MEGABYTE: f64 = 1e6;
    const LEN: u64 = 256 << 10;
    const ANY: Requirements = Requirements { avoid: None, is_alone: false };
    const ALONE: Requirements = Requirements { avoid: None, is_alone: true };

    /// All times are counted from it.
    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    /// Who looks a path up in them relies on that.
    #[test]
    fn paths_in_use_and_closed_ones_are_in_the_order_of_their_numbers() {
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        let ids = |numbers: [u32; 2]| numbers.map(PathId);
        [3, 1, 2, 0].into_iter().for_each(|id| selector.add(PathId(id), Credit::UNLIMITED));
        [3, 0].into_iter().for_each(|id| selector.close(PathId(id)));
        assert_eq!(
            (selector.in_use(start()), selector.closing()),
            (ids([1, 2]).into(), ids([0, 3]).into())
        );
    }

    /// A link that serves its requests one after the other, and answers a latency later.
    #[derive(Clone, Copy)]
    struct Link {
        rate: f64,
        latency: Duration,
        /// When it stops answering.
        dies: Option<Duration>,
    }

    fn link(rate: f64, millis: u64) -> Link {
        Link { rate, latency: Duration::from_millis(millis), dies: None }
    }

    struct Outcome {
        time: Duration,
        most_in_flight: u64,
        carried: Vec<u64>,
    }

    /// Moves `count` requests over the links, with as many in the queue as the caller has at once.
    fn run(links: &[Link], count: u64, depth: u64, room: Credit) -> Outcome {
        let start = start();
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        (0u32..).zip(links).for_each(|(id, _)| selector.add(PathId(id), room));
        let mut free_at = vec![start; links.len()];
        let mut carried = vec![0; links.len()];
        let mut events = BinaryHeap::new();
        let (mut now, mut left, mut waiting, mut most) = (start, count, 0, 0);
        let mut permits = Vec::new();
        let mut dead = vec![false; links.len()];
        loop {
            let in_flight = permits.iter().flatten().count() as u64;
            let more = left.min(depth.saturating_sub(in_flight + waiting));
            (left, waiting) = (left - more, waiting + more);
            while waiting > 0
                && let Some(id) = selector.pick(LEN, ANY, now)
            {
                waiting -= 1;
                let at = id.0 as usize;
                let permit = selector.take(id, LEN, ANY, waiting > 0, now).unwrap();
                let link = links[at];
                let served = free_at[at].max(now) + Duration::from_secs_f64(LEN as f64 / link.rate);
                free_at[at] = served;
                let answered = served + link.latency;
                let lives = link.dies.is_none_or(|dies| answered < start + dies);
                if lives {
                    events.push(Reverse((answered, permits.len())));
                }
                permits.push(Some(permit));
            }
            let total: u64 =
                (0u32..).zip(links).map(|(id, _)| selector.in_flight(PathId(id))).sum();
            most = most.max(total);
            // A link that is found dead gives back what it had.
            let next = events.peek().map(|Reverse((at, _))| *at);
            for (at, (id, link)) in (0u32..).zip(links).enumerate() {
                let Some(dies) = link.dies.filter(|_| !dead[at]) else { continue };
                if next.is_none_or(|next| next > start + dies) {
                    dead[at] = true;
                    now = now.max(start + dies);
                    selector.remove(PathId(id));
                    for permit in &mut permits {
                        if permit.is_some_and(|permit: PathPermit| permit.path.0 as usize == at) {
                            *permit = None;
                            waiting += 1;
                        }
                    }
                }
            }
            let Some(Reverse((at, number))) = events.pop() else {
                if waiting > 0 {
                    continue;
                }
                break;
            };
            now = at;
            if let Some(permit) = permits[number].take() {
                selector.answered(&permit, now);
                carried[permit.path.0 as usize] += LEN;
            }
        }
        Outcome { time: now - start, most_in_flight: most, carried }
    }

    const ROOM: Credit = Credit { bytes: 8 << 20, requests: 64 };

    fn seconds_at_full_rate(links: &[Link], count: u64) -> f64 {
        (count * LEN) as f64 / links.iter().map(|link| link.rate).sum::<f64>()
    }

    #[test]
    fn unequal_links_finish_within_five_percent_of_the_sum_of_their_rates() {
        let cases: [&[Link]; 5] = [
            &[link(10.0 * MEGABYTE, 100), link(10.0 * MEGABYTE, 100)],
            &[link(20.0 * MEGABYTE, 20), link(MEGABYTE, 20)],
            &[link(30.0 * MEGABYTE, 10), link(10.0 * MEGABYTE, 10), link(2.0 * MEGABYTE, 200)],
            &[link(12.0 * MEGABYTE, 1); 16],
            &[
                link(1.0 * MEGABYTE, 5),
                link(2.0 * MEGABYTE, 50),
                link(4.0 * MEGABYTE, 100),
                link(8.0 * MEGABYTE, 30),
                link(16.0 * MEGABYTE, 80),
            ],
        ];
        for links in cases {
            for depth in [192, 1024] {
                let count = 4000;
                let outcome = run(links, count, depth, ROOM);
                let ideal = seconds_at_full_rate(links, count);
                let took = outcome.time.as_secs_f64();
                assert!(took <= ideal * 1.05, "{took:.2} s instead of {ideal:.2} s, depth {depth}");
                assert_eq!(outcome.carried.iter().sum::<u64>(), count * LEN);
            }
        }
    }

    #[test]
    fn a_slow_link_holds_little() {
        let links = [link(50.0 * MEGABYTE, 50), link(0.5 * MEGABYTE, 50)];
        let outcome = run(&links, 4000, 256, ROOM);
        let ideal = seconds_at_full_rate(&links, 4000);
        let took = outcome.time.as_secs_f64();
        assert!(took <= ideal * 1.05, "{took:.2} s instead of {ideal:.2} s");
        assert!(outcome.carried[1] > 0);
    }

    #[test]
    fn what_a_dead_link_had_goes_to_the_others() {
        let mut links = [link(10.0 * MEGABYTE, 50); 4];
        links[2].dies = Some(Duration::from_secs(5));
        let outcome = run(&links, 2000, 128, ROOM);
        assert_eq!(outcome.carried.iter().sum::<u64>(), 2000 * LEN);
        assert!(outcome.carried[2] < outcome.carried[1]);
    }

    #[test]
    fn what_is_in_flight_stays_within_the_room() {
        let links = [link(10.0 * MEGABYTE, 100); 3];
        let room = Credit { bytes: 1 << 20, requests: 64 };
        assert!(run(&links, 1000, 4096, room).most_in_flight <= 3 << 20);
        let few = Credit { bytes: u64::MAX, requests: 2 };
        assert!(run(&links, 1000, 4096, few).most_in_flight <= 6 * LEN);
    }

    #[test]
    fn one_request_goes_whatever_its_length() {
        let now = start();
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        selector.add(PathId(0), Credit { bytes: 1000, requests: 0 });
        assert_eq!(selector.pick(1 << 30, ANY, now), Some(PathId(0)));
        selector.take(PathId(0), 1 << 30, ANY, false, now);
        assert_eq!(selector.pick(1, ANY, now), None);
        assert_eq!(selector.pick(1, Requirements { avoid: Some(PathId(0)), ..ANY }, now), None);
    }

    #[test]
    fn a_path_that_closes_takes_nothing_more() {
        let now = start();
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        selector.add(PathId(0), ROOM);
        selector.add(PathId(1), ROOM);
        selector.close(PathId(0));
        for _ in 0..4 {
            assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(1)));
            selector.take(PathId(1), LEN, ANY, false, now);
        }
    }

    #[test]
    fn where_the_unit_takes_no_requests_others_come_first() {
        let now = start();
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        selector.add(PathId(0), ROOM);
        selector.add(PathId(1), ROOM);
        let permit = selector.take(PathId(0), LEN, ANY, true, now).unwrap();
        selector.hold_up(PathId(0), now);
        for _ in 0..4 {
            assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(1)));
            selector.take(PathId(1), LEN, ANY, true, now);
        }
        assert_eq!(selector.pick(LEN, ANY, now + HOLD_UP), Some(PathId(0)));
        // Where all are held up, none comes last.
        selector.hold_up(PathId(1), now);
        assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)));
        selector.answered(&permit, now);
        assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)), "it takes requests again");
    }

    fn access(state: AccessState) -> Access {
        Access { state, preferred: false }
    }

    #[test]
    fn requests_go_to_the_best_ports_and_to_no_others() {
        let now = start();
        let mut selector = selector(3);
        selector.set_access(PathId(0), access(AccessState::ActiveNonOptimized));
        selector.set_access(PathId(1), access(AccessState::Standby));
        for _ in 0..100 {
            let Some(id) = selector.pick(LEN, ANY, now) else { break };
            assert_eq!(id, PathId(2), "also when it has no room");
            selector.take(id, LEN, ANY, true, now).unwrap();
        }
        assert_eq!(selector.idle(PathId(2), now), None, "a duplicate costs the array as much");
        let elsewhere = Requirements { avoid: Some(PathId(2)), ..ANY };
        assert_eq!(selector.pick(LEN, elsewhere, now), Some(PathId(0)));
        assert!(selector.others_serve(PathId(2), now) && selector.in_use(now).contains(&PathId(2)));
        selector.set_access(PathId(2), access(AccessState::Unavailable));
        assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)));
        selector.set_access(PathId(0), access(AccessState::Offline));
        assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(1)), "somebody has to try");
        assert!(!selector.others_serve(PathId(1), now));
    }

    #[test]
    fn a_path_that_does_not_answer_comes_last_until_it_does() {
        let start = start();
        let mut selector = selector(2);
        selector.set_access(PathId(1), access(AccessState::ActiveNonOptimized));
        let first = selector.take(PathId(0), LEN, ANY, true, start).unwrap();
        let second = selector.take(PathId(0), LEN, ANY, true, start).unwrap();
        let answered = start + Duration::from_millis(100);
        selector.answered(&first, answered);
        let silent = answered + HedgePolicy::default().min_stuck;
        assert_eq!(selector.pick(LEN, ANY, silent - Duration::from_millis(1)), Some(PathId(0)));
        assert!(selector.is_silent(PathId(0), silent));
        assert_eq!(selector.pick(LEN, ANY, silent), Some(PathId(1)));
        assert!(!selector.others_serve(PathId(1), silent), "it does not answer");
        selector.answered(&second, silent);
        assert_eq!(selector.pick(LEN, ANY, silent + Duration::from_secs(9)), Some(PathId(0)));
    }

    /// So many paths, all alike.
    fn selector(count: u32) -> PathSelector {
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        (0..count).for_each(|id| selector.add(PathId(id), ROOM));
        selector
    }

    #[test]
    fn a_request_that_wants_to_be_alone_is() {
        let now = start();
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        selector.add(PathId(0), ROOM);
        let permit = selector.take(PathId(0), LEN, ANY, true, now).unwrap();
        assert_eq!(selector.pick(LEN, ALONE, now), None);
        selector.reserve(now);
        assert_eq!(selector.pick(LEN, ANY, now), None, "or it would wait for ever");
        selector.answered(&permit, now);
        assert_eq!(selector.pick(LEN, ALONE, now), Some(PathId(0)));
        let alone = selector.take(PathId(0), LEN, ALONE, true, now).unwrap();
        selector.unreserve();
        assert!(selector.is_alone(PathId(0)));
        assert_eq!(selector.pick(LEN, ANY, now), None);
        selector.release(&alone);
        assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)));
    }

    #[test]
    fn a_caller_that_asks_little_does_not_make_a_path_look_slow() {
        let start = start();
        let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
        selector.add(PathId(0), ROOM);
        for n in 0..100 {
            let now = start + Duration::from_millis(n * 100);
            let permit = selector.take(PathId(0), 4096, ANY, false, now).unwrap();
            selector.answered(&permit, now + Duration::from_millis(100));
        }
        let fits = (0..).take_while(|_| {
            let id = selector.pick(LEN, ANY, start);
            id.is_some_and(|id| selector.take(id, LEN, ANY, true, start).is_some())
        });
        assert_eq!(fits.count(), 16);
    }
}
