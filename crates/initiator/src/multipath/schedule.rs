//! Which path takes the next request: of those that have room, the one that is expected to finish
//! it first.
//!
//! How much each has room for, and how fast it is, its [`Lane`] knows.
//!
//! Times and sizes come as arguments, so that the whole runs in virtual time.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use iscsi_multipath::{Access, Priority};
use iscsi_tuner::Bandwidth;
use smallvec::SmallVec;

use crate::multipath::lane::{Lane, MIN_LEN, PathId, Requirements, Room, Share, Ticket};
use crate::options::lateness::LatenessOptions;

/// What is under way on each path.
#[derive(Debug)]
pub(crate) struct Schedule {
    lanes: SmallVec<[Lane; 1]>,
    /// What all paths may have under way together.
    total: Room,
    /// When one counts as silent.
    lateness: LatenessOptions,
    /// It takes nothing more until it has nothing to do: a request waits that wants to be alone.
    spared: Option<PathId>,
}

/// A request should not keep its path busy for longer.
const MAX_REQUEST_TIME: Duration = Duration::from_millis(500);
/// A path where the unit took no request comes last for so long, or until it takes one.
const HOLD_UP: Duration = Duration::from_secs(1);
/// Minimum length of a split request, bytes, and what its length is a multiple of: what most targets
/// take unasked.
const MIN_REQUEST_LEN: u64 = 64 << 10;

impl Schedule {
    /// No paths, which may have so much under way together.
    pub(crate) fn within(total: Room, lateness: LatenessOptions) -> Self {
        Self { lanes: SmallVec::new(), total, lateness, spared: None }
    }

    pub(crate) fn add(&mut self, id: PathId, room: Room) {
        self.lanes.push(Lane::new(id, room));
    }

    /// Forgets a path and what was under way on it.
    pub(crate) fn remove(&mut self, id: PathId) {
        self.lanes.retain(|lane| lane.id != id);
    }

    /// From now on the path takes nothing more.
    pub(crate) fn close(&mut self, id: PathId) {
        if let Some(lane) = self.lane_mut(id) {
            lane.is_closing = true;
        }
    }

    /// Whether the path was closed; one that is gone is not.
    pub(crate) fn is_closing(&self, id: PathId) -> bool {
        self.lanes.iter().any(|lane| lane.id == id && lane.is_closing)
    }

    /// Whether no other path takes requests.
    pub(crate) fn is_last(&self, id: PathId) -> bool {
        !self.lanes.iter().any(|lane| lane.id != id && !lane.is_closing)
    }

    /// Where only closed paths are left, they take requests again.
    pub(crate) fn reopen_if_none_is_left(&mut self) {
        if self.lanes.iter().all(|lane| lane.is_closing) {
            self.lanes.iter_mut().for_each(|lane| lane.is_closing = false);
        }
    }

    pub(crate) fn set_room(&mut self, id: PathId, room: Room) {
        if let Some(lane) = self.lane_mut(id) {
            lane.room = room;
        }
    }

    /// What the port of a path does for the unit. Says whether that is news.
    pub(crate) fn set_access(&mut self, id: PathId, access: Access) -> bool {
        let Some(lane) = self.lane_mut(id).filter(|lane| lane.access != access) else {
            return false;
        };
        // What it has refused in one state says nothing of another one.
        (lane.access, lane.held_up_until) = (access, None);
        true
    }

    /// What the port of a path does for the unit.
    pub(crate) fn access(&self, id: PathId) -> Option<Access> {
        self.lanes.iter().find(|lane| lane.id == id).map(|lane| lane.access)
    }

    /// Whether the unit is served over another path that answers.
    pub(crate) fn others_serve(&self, id: PathId, now: Instant) -> bool {
        let mut others = self.lanes.iter().filter(|lane| lane.id != id && !lane.is_closing);
        others.any(|lane| lane.access.serves() && !lane.is_silent(&self.lateness, now))
    }

    /// Whether anything is under way.
    pub(crate) fn has_requests(&self) -> bool {
        self.lanes.iter().any(|lane| lane.requests > 0)
    }

    /// Whether nothing is answered over a path.
    pub(crate) fn is_silent(&self, id: PathId, now: Instant) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.id == id && lane.is_silent(&self.lateness, now))
    }

    /// Whether a path is one of those that requests go to.
    pub(crate) fn is_used(&self, id: PathId, now: Instant) -> bool {
        self.used(now).any(|lane| lane.id == id)
    }

    /// How good a path is, the least being the best: one that does not answer comes last, whatever its port does. The
    /// only one comes neither first nor last, so how long it is silent need not be known: 600 instructions a request.
    fn worth(&self, lane: &Lane, now: Instant) -> (bool, Priority) {
        let is_silent = self.lanes.len() > 1 && lane.is_silent(&self.lateness, now);
        (is_silent, lane.access.priority())
    }

    /// How good the best paths are, but for this one.
    fn best(&self, avoid: Option<PathId>, now: Instant) -> Option<(bool, Priority)> {
        let open = self.lanes.iter().filter(|lane| Some(lane.id) != avoid && !lane.is_closing);
        open.map(|lane| self.worth(lane, now)).min()
    }

    /// The paths that requests go to: the best that there are.
    fn used(&self, now: Instant) -> impl Iterator<Item = &Lane> {
        let best = self.best(None, now);
        self.lanes.iter().filter(move |lane| Some(self.worth(lane, now)) == best)
    }

    /// The unit has not taken a request that came over this path.
    pub(crate) fn hold_up(&mut self, id: PathId, now: Instant) {
        if let Some(lane) = self.lane_mut(id) {
            lane.held_up_until = Some(now + HOLD_UP);
        }
    }

    /// Whether others come first, because the unit does not take requests there.
    pub(crate) fn is_held_up(&self, id: PathId, now: Instant) -> bool {
        self.lanes.iter().any(|lane| lane.id == id && lane.is_held_up(now))
    }

    /// Keeps the path that is the first to have nothing to do for a request that wants to be alone,
    /// or none.
    pub(crate) fn spare(&mut self, is_wanted: bool, now: Instant) {
        if !is_wanted {
            self.spared = None;
            return;
        }
        let open = self.used(now).filter(|lane| !lane.is_closing && !lane.is_alone);
        self.spared = open.min_by_key(|lane| lane.under_way).map(|lane| lane.id);
    }

    /// Whether the request under way on a path shall be alone there.
    pub(crate) fn is_alone(&self, id: PathId) -> bool {
        self.lanes.iter().any(|lane| lane.id == id && lane.is_alone)
    }

    /// The path for a request of `len` bytes, if one has room.
    pub(crate) fn pick(
        &self,
        len: u64,
        requirements: Requirements,
        now: Instant,
    ) -> Option<PathId> {
        let len = len.max(MIN_LEN);
        if let [only] = &*self.lanes {
            return self.pick_only(only, len, requirements);
        }
        let usual = self.lanes.iter().filter_map(Lane::rate).max().unwrap_or(Bandwidth::MIN);
        let finish = |lane: &Lane| lane.finish(len, usual);
        let share = Share::of(self.total, self.used(now).count());
        let best = self.best(requirements.avoid, now)?;
        let is_open = |lane: &Lane| {
            let is_best = self.worth(lane, now) == best;
            let is_fit =
                requirements.avoid.is_none_or(|avoid| lane.id != avoid && lane.access.serves());
            is_best && is_fit && !lane.is_closing
        };
        let mut open = self.lanes.iter().filter(|lane| is_open(lane));
        let all_are_held_up = open.all(|lane| lane.is_held_up(now));
        self.lanes
            .iter()
            .filter(|lane| is_open(lane) && lane.takes(len, share, requirements.is_alone))
            .filter(|lane| requirements.is_alone || Some(lane.id) != self.spared)
            .filter(|lane| !lane.is_held_up(now) || all_are_held_up)
            // A request that may end its session takes the youngest one: older sessions can vouch for more of the earlier writes.
            .min_by_key(|lane| (requirements.is_alone.then_some(Reverse(lane.id)), finish(lane)))
            .map(|lane| lane.id)
    }

    /// The same where there is nothing to choose from: 300 instructions less of a read of 4 KiB.
    fn pick_only(&self, only: &Lane, len: u64, requirements: Requirements) -> Option<PathId> {
        let Requirements { avoid, is_alone } = requirements;
        let is_free =
            !only.is_closing && avoid.is_none_or(|avoid| avoid != only.id && only.access.serves());
        let is_spared = !is_alone && self.spared == Some(only.id);
        let takes = is_free && !is_spared && only.takes(len, Share::of(self.total, 1), is_alone);
        takes.then_some(only.id)
    }

    /// The path takes a request; `is_crowded` says whether more work waits.
    pub(crate) fn begin(
        &mut self,
        id: PathId,
        len: u64,
        requirements: Requirements,
        is_crowded: bool,
        now: Instant,
    ) -> Option<Ticket> {
        Some(self.lane_mut(id)?.begin(len.max(MIN_LEN), requirements, is_crowded, now))
    }

    /// The request has been answered.
    pub(crate) fn end(&mut self, ticket: &Ticket, now: Instant) {
        if let Some(lane) = self.lane_mut(ticket.path) {
            lane.end(ticket, now);
        }
    }

    /// The request has ended without an answer that would tell of the path.
    pub(crate) fn give_up(&mut self, ticket: &Ticket) {
        if let Some(lane) = self.lane_mut(ticket.path) {
            lane.release(ticket);
        }
    }

    /// When a request that has not been answered by then counts as late: a path that has nothing
    /// else to do had better send it, too.
    pub(crate) fn late_after(&self, path: PathId, lateness: &LatenessOptions) -> Duration {
        let others = self.lanes.iter().filter(|lane| lane.id != path);
        lateness.late(others.filter_map(Lane::rto).min())
    }

    /// When it counts as stuck: then it waits in line for another path.
    pub(crate) fn stuck_after(&self, path: PathId, lateness: &LatenessOptions) -> Duration {
        let lane = self.lanes.iter().find(|lane| lane.id == path);
        lateness.stuck(lane.and_then(Lane::rto))
    }

    /// A path that has nothing to do.
    pub(crate) fn idle(&self, avoid: PathId, now: Instant) -> Option<PathId> {
        let best = self.best(None, now);
        let is_idle = |lane: &&Lane| {
            Some(self.worth(lane, now)) == best
                && lane.id != avoid
                && lane.access.serves()
                && lane.requests == 0
                && !lane.is_closing
                && !lane.is_held_up(now)
        };
        let idle = self.lanes.iter().filter(is_idle);
        idle.min_by_key(|lane| lane.rto().unwrap_or(Duration::MAX)).map(|lane| lane.id)
    }

    /// How long a request may be, bytes, so that a path of middling rate has it answered soon; no
    /// limit as long as the rates are not known. One path needs no look at the clock.
    pub(crate) fn max_request_len(&self, now: impl FnOnce() -> Instant) -> u64 {
        if self.lanes.len() < 2 {
            return u64::MAX;
        }
        let now = now();
        let mut rates: Vec<_> = self.used(now).filter_map(Lane::rate).collect();
        if rates.len() < self.used(now).count() || rates.len() < 2 {
            return u64::MAX;
        }
        rates.sort_unstable();
        let rate = rates.get(rates.len() / 2).copied().unwrap_or(Bandwidth::MIN);
        let bytes = rate.bytes_in(MAX_REQUEST_TIME);
        (bytes - bytes % MIN_REQUEST_LEN).max(MIN_REQUEST_LEN)
    }

    /// Bytes under way on a path.
    pub(crate) fn under_way(&self, id: PathId) -> u64 {
        self.lanes.iter().find(|lane| lane.id == id).map_or(0, |lane| lane.under_way)
    }

    fn lane_mut(&mut self, id: PathId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.id == id)
    }
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
        most_under_way: u64,
        carried: Vec<u64>,
    }

    /// Moves `count` requests over the links, with as many in the queue as the caller has at once.
    fn run(links: &[Link], count: u64, depth: u64, room: Room) -> Outcome {
        let start = Instant::now();
        let mut schedule = Schedule::within(Room::UNLIMITED, LatenessOptions::default());
        (0u32..).zip(links).for_each(|(id, _)| schedule.add(PathId(id), room));
        let mut free_at = vec![start; links.len()];
        let mut carried = vec![0; links.len()];
        let mut events = BinaryHeap::new();
        let (mut now, mut left, mut waiting, mut most) = (start, count, 0, 0);
        let mut tickets = Vec::new();
        let mut dead = vec![false; links.len()];
        loop {
            let under_way = tickets.iter().flatten().count() as u64;
            let more = left.min(depth.saturating_sub(under_way + waiting));
            (left, waiting) = (left - more, waiting + more);
            while waiting > 0
                && let Some(id) = schedule.pick(LEN, ANY, now)
            {
                waiting -= 1;
                let at = id.0 as usize;
                let ticket = schedule.begin(id, LEN, ANY, waiting > 0, now).unwrap();
                let link = links[at];
                let served = free_at[at].max(now) + Duration::from_secs_f64(LEN as f64 / link.rate);
                free_at[at] = served;
                let answered = served + link.latency;
                let lives = link.dies.is_none_or(|dies| answered < start + dies);
                if lives {
                    events.push(Reverse((answered, tickets.len())));
                }
                tickets.push(Some(ticket));
            }
            let total: u64 =
                (0u32..).zip(links).map(|(id, _)| schedule.under_way(PathId(id))).sum();
            most = most.max(total);
            // A link that is found dead gives back what it had.
            let next = events.peek().map(|Reverse((at, _))| *at);
            for (at, (id, link)) in (0u32..).zip(links).enumerate() {
                let Some(dies) = link.dies.filter(|_| !dead[at]) else { continue };
                if next.is_none_or(|next| next > start + dies) {
                    dead[at] = true;
                    now = now.max(start + dies);
                    schedule.remove(PathId(id));
                    for ticket in &mut tickets {
                        if ticket.is_some_and(|ticket: Ticket| ticket.path.0 as usize == at) {
                            *ticket = None;
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
            if let Some(ticket) = tickets[number].take() {
                schedule.end(&ticket, now);
                carried[ticket.path.0 as usize] += LEN;
            }
        }
        Outcome { time: now - start, most_under_way: most, carried }
    }

    const ROOM: Room = Room { bytes: 8 << 20, requests: 64 };

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
    fn what_is_under_way_stays_within_the_room() {
        let links = [link(10.0 * MEGABYTE, 100); 3];
        let room = Room { bytes: 1 << 20, requests: 64 };
        assert!(run(&links, 1000, 4096, room).most_under_way <= 3 << 20);
        let few = Room { bytes: u64::MAX, requests: 2 };
        assert!(run(&links, 1000, 4096, few).most_under_way <= 6 * LEN);
    }

    #[test]
    fn one_request_goes_whatever_its_length() {
        let now = Instant::now();
        let mut schedule = Schedule::within(Room::UNLIMITED, LatenessOptions::default());
        schedule.add(PathId(0), Room { bytes: 1000, requests: 0 });
        assert_eq!(schedule.pick(1 << 30, ANY, now), Some(PathId(0)));
        schedule.begin(PathId(0), 1 << 30, ANY, false, now);
        assert_eq!(schedule.pick(1, ANY, now), None);
        assert_eq!(schedule.pick(1, Requirements { avoid: Some(PathId(0)), ..ANY }, now), None);
    }

    #[test]
    fn a_path_that_closes_takes_nothing_more() {
        let now = Instant::now();
        let mut schedule = Schedule::within(Room::UNLIMITED, LatenessOptions::default());
        schedule.add(PathId(0), ROOM);
        schedule.add(PathId(1), ROOM);
        schedule.close(PathId(0));
        for _ in 0..4 {
            assert_eq!(schedule.pick(LEN, ANY, now), Some(PathId(1)));
            schedule.begin(PathId(1), LEN, ANY, false, now);
        }
    }

    #[test]
    fn where_the_unit_takes_no_requests_others_come_first() {
        let now = Instant::now();
        let mut schedule = Schedule::within(Room::UNLIMITED, LatenessOptions::default());
        schedule.add(PathId(0), ROOM);
        schedule.add(PathId(1), ROOM);
        let ticket = schedule.begin(PathId(0), LEN, ANY, true, now).unwrap();
        schedule.hold_up(PathId(0), now);
        for _ in 0..4 {
            assert_eq!(schedule.pick(LEN, ANY, now), Some(PathId(1)));
            schedule.begin(PathId(1), LEN, ANY, true, now);
        }
        assert_eq!(schedule.pick(LEN, ANY, now + HOLD_UP), Some(PathId(0)));
        // Where all are held up, none comes last.
        schedule.hold_up(PathId(1), now);
        assert_eq!(schedule.pick(LEN, ANY, now), Some(PathId(0)));
        schedule.end(&ticket, now);
        assert_eq!(schedule.pick(LEN, ANY, now), Some(PathId(0)), "it takes requests again");
    }

    fn access(state: AccessState) -> Access {
        Access { state, preferred: false }
    }

    #[test]
    fn requests_go_to_the_best_ports_and_to_no_others() {
        let now = Instant::now();
        let mut schedule = schedule(3);
        schedule.set_access(PathId(0), access(AccessState::ActiveNonOptimized));
        schedule.set_access(PathId(1), access(AccessState::Standby));
        for _ in 0..100 {
            let Some(id) = schedule.pick(LEN, ANY, now) else { break };
            assert_eq!(id, PathId(2), "also when it has no room");
            schedule.begin(id, LEN, ANY, true, now).unwrap();
        }
        assert_eq!(schedule.idle(PathId(2), now), None, "a duplicate costs the array as much");
        let elsewhere = Requirements { avoid: Some(PathId(2)), ..ANY };
        assert_eq!(schedule.pick(LEN, elsewhere, now), Some(PathId(0)));
        assert!(schedule.others_serve(PathId(2), now) && schedule.is_used(PathId(2), now));
        schedule.set_access(PathId(2), access(AccessState::Unavailable));
        assert_eq!(schedule.pick(LEN, ANY, now), Some(PathId(0)));
        schedule.set_access(PathId(0), access(AccessState::Offline));
        assert_eq!(schedule.pick(LEN, ANY, now), Some(PathId(1)), "somebody has to try");
        assert!(!schedule.others_serve(PathId(1), now));
    }

    #[test]
    fn a_path_that_does_not_answer_comes_last_until_it_does() {
        let start = Instant::now();
        let mut schedule = schedule(2);
        schedule.set_access(PathId(1), access(AccessState::ActiveNonOptimized));
        let first = schedule.begin(PathId(0), LEN, ANY, true, start).unwrap();
        let second = schedule.begin(PathId(0), LEN, ANY, true, start).unwrap();
        let answered = start + Duration::from_millis(100);
        schedule.end(&first, answered);
        let silent = answered + LatenessOptions::default().min_stuck;
        assert_eq!(schedule.pick(LEN, ANY, silent - Duration::from_millis(1)), Some(PathId(0)));
        assert!(schedule.is_silent(PathId(0), silent));
        assert_eq!(schedule.pick(LEN, ANY, silent), Some(PathId(1)));
        assert!(!schedule.others_serve(PathId(1), silent), "it does not answer");
        schedule.end(&second, silent);
        assert_eq!(schedule.pick(LEN, ANY, silent + Duration::from_secs(9)), Some(PathId(0)));
    }

    /// So many paths, all alike.
    fn schedule(count: u32) -> Schedule {
        let mut schedule = Schedule::within(Room::UNLIMITED, LatenessOptions::default());
        (0..count).for_each(|id| schedule.add(PathId(id), ROOM));
        schedule
    }

    #[test]
    fn a_request_that_wants_to_be_alone_is() {
        let now = Instant::now();
        let mut schedule = Schedule::within(Room::UNLIMITED, LatenessOptions::default());
        schedule.add(PathId(0), ROOM);
        let ticket = schedule.begin(PathId(0), LEN, ANY, true, now).unwrap();
        assert_eq!(schedule.pick(LEN, ALONE, now), None);
        schedule.spare(true, now);
        assert_eq!(schedule.pick(LEN, ANY, now), None, "or it would wait for ever");
        schedule.end(&ticket, now);
        assert_eq!(schedule.pick(LEN, ALONE, now), Some(PathId(0)));
        let alone = schedule.begin(PathId(0), LEN, ALONE, true, now).unwrap();
        schedule.spare(false, now);
        assert!(schedule.is_alone(PathId(0)));
        assert_eq!(schedule.pick(LEN, ANY, now), None);
        schedule.give_up(&alone);
        assert_eq!(schedule.pick(LEN, ANY, now), Some(PathId(0)));
    }

    #[test]
    fn a_caller_that_asks_little_does_not_make_a_path_look_slow() {
        let start = Instant::now();
        let mut schedule = Schedule::within(Room::UNLIMITED, LatenessOptions::default());
        schedule.add(PathId(0), ROOM);
        for n in 0..100 {
            let now = start + Duration::from_millis(n * 100);
            let ticket = schedule.begin(PathId(0), 4096, ANY, false, now).unwrap();
            schedule.end(&ticket, now + Duration::from_millis(100));
        }
        let fits = (0..).take_while(|_| {
            let id = schedule.pick(LEN, ANY, start);
            id.is_some_and(|id| schedule.begin(id, LEN, ANY, true, start).is_some())
        });
        assert_eq!(fits.count(), 16);
    }
}
