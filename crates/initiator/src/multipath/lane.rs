//! One path as the schedule sees it: what is under way there, and how much it has room for.
//!
//! A path has room for what it moves in about two of its answer times, by its own rate
//! ([`inflight_limit`]); so a slow one holds little, however long the queue is, and at the end of a copy
//! nobody waits long for it. The rate is estimated from the answers ([`LinkEstimator`]): bytes that were
//! delivered while a request was under way, by the time that they took to be sent or to be delivered,
//! whichever is longer (draft-ietf-ccwg-bbr, "Delivery Rate Samples").

use std::time::{Duration, Instant};

use iscsi_multipath::Access;
pub(crate) use iscsi_multipath::PathId;
use iscsi_tuner::{
    Bandwidth, EstimatorWindow, LinkEstimator, RateSample, Rtt, STARTUP_GAIN, inflight_limit,
    wait_for_answers,
};

use crate::options::lateness::LatenessOptions;

/// What a path may have under way by its plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Room {
    /// Bytes; more is never under way, but for a single request.
    pub(crate) bytes: u64,
    /// Requests: the command window.
    pub(crate) requests: u32,
}

impl Room {
    /// For a path that has nobody to share with: its session knows its own limits.
    pub(crate) const UNLIMITED: Self = Self { bytes: u64::MAX, requests: u32::MAX };
}

/// What a request asks of its path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requirements {
    /// A copy of the request is under way on this one. The second copy goes over none but another whose port serves
    /// the unit.
    pub(crate) avoid: Option<PathId>,
    /// Nothing else may be under way there.
    pub(crate) is_alone: bool,
}

/// A request that a path has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(super) path: PathId,
    len: u64,
    sent_at: Instant,
    /// Bytes that the path had delivered by then.
    delivered: u64,
    /// When it had delivered them, and when the request was sent that it delivered last.
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Whether no more work waited, so that not the path alone sets the rate.
    app_limited: bool,
    /// Whether the path takes nothing else.
    is_alone: bool,
}

impl Ticket {
    /// When the path took the request, or the request was ready to go just before.
    pub(super) const fn sent_at(&self) -> Instant {
        self.sent_at
    }
}

/// Scheduling state of one path.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) id: PathId,
    pub(super) room: Room,
    pub(super) under_way: u64,
    pub(super) requests: u32,
    /// Bytes whose requests have been answered.
    delivered: u64,
    /// When the last one was answered, and when it had been sent.
    last: Option<(Instant, Instant)>,
    /// The time from a request to its answer.
    latency: Option<Rtt>,
    /// The rate, and the shortest time from a request to its answer.
    link: LinkEstimator,
    /// It takes nothing more.
    pub(super) is_closing: bool,
    /// The request under way there shall be alone.
    pub(super) is_alone: bool,
    /// What its port does for the unit.
    pub(super) access: Access,
    /// Since when something is under way there and nothing was answered.
    silent_since: Option<Instant>,
    /// The unit does not take requests there, so until then others come first.
    pub(super) held_up_until: Option<Instant>,
}

/// A request of no bytes is work too.
pub(super) const MIN_LEN: u64 = 4096;
/// Whatever its rate, so much may be under way on a path.
const MIN_ROOM: u64 = 256 << 10;
/// The same while its rate rises, shared by all paths: what slow start sends in its first eight
/// round trips.
const MIN_ROOM_IN_STARTUP: u64 = 4 << 20;

/// The share of one path, by how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// What may be under way there while its rate rises, bytes.
    min_in_startup: u64,
    /// More is never under way there, but for a single request: a path that is stuck leaves the others
    /// their shares of what all may have under way.
    max: Room,
}

impl Share {
    /// That of one of so many paths, which may have `total` under way together.
    pub(super) fn of(total: Room, paths: usize) -> Self {
        let paths = u32::try_from(paths).unwrap_or(u32::MAX).max(1);
        Self {
            min_in_startup: MIN_ROOM_IN_STARTUP / u64::from(paths),
            max: Room { bytes: total.bytes / u64::from(paths), requests: total.requests / paths },
        }
    }
}

impl Lane {
    pub(super) fn new(id: PathId, room: Room) -> Self {
        Self {
            id,
            room,
            under_way: 0,
            requests: 0,
            delivered: 0,
            last: None,
            latency: None,
            link: LinkEstimator::new(EstimatorWindow::PATH),
            is_closing: false,
            is_alone: false,
            access: Access::UNKNOWN,
            silent_since: None,
            held_up_until: None,
        }
    }

    /// `None` until the path has shown it.
    pub(super) fn rate(&self) -> Option<Bandwidth> {
        self.link.rate()
    }

    /// The shortest time from a request to its answer; zero before the first.
    fn shortest(&self) -> Duration {
        self.link.round_trip().unwrap_or_default()
    }

    /// The time in which nearly every request is answered, reckoned as TCP reckons its retransmission
    /// timeout (RFC 6298 §2.3).
    pub(super) fn rto(&self) -> Option<Duration> {
        self.latency.map(|latency| latency.smoothed + latency.deviation * 4)
    }

    /// Whether nothing was answered there for as long as a request takes to be stuck.
    pub(super) fn is_silent(&self, lateness: &LatenessOptions, now: Instant) -> bool {
        self.silent_since.is_some_and(|since| {
            let silence = now.saturating_duration_since(since);
            // Mostly it is far too short, and asked about several times a request.
            silence >= lateness.least_stuck() && silence >= lateness.stuck(self.rto())
        })
    }

    pub(super) fn is_held_up(&self, now: Instant) -> bool {
        self.held_up_until.is_some_and(|until| now < until)
    }

    pub(super) fn takes(&self, len: u64, share: Share, is_alone: bool) -> bool {
        let has_room = self.under_way + len <= self.room(share).min(share.max.bytes)
            && self.requests < self.room.requests.min(share.max.requests);
        self.requests == 0 || (has_room && !is_alone && !self.is_alone)
    }

    /// What it may have under way by itself, bytes.
    fn room(&self, share: Share) -> u64 {
        if self.room == Room::UNLIMITED {
            return u64::MAX;
        }
        let (gain, least) = if self.link.is_pipe_full() {
            (1, MIN_ROOM)
        } else {
            (STARTUP_GAIN, share.min_in_startup.max(MIN_ROOM))
        };
        let own = self.rate().map_or(0, |rate| {
            let mean = self.latency.map_or(Duration::ZERO, |latency| latency.smoothed);
            let wait = wait_for_answers(self.shortest(), mean);
            inflight_limit(rate, self.shortest(), wait).saturating_mul(gain)
        });
        own.max(least).min(self.room.bytes)
    }

    /// When the path would have finished one more request, from now on, if one of unknown rate is as
    /// fast as any other.
    pub(super) fn finish(&self, len: u64, usual: Bandwidth) -> Duration {
        self.rate().unwrap_or(usual).time_for(self.under_way.saturating_add(len)) + self.shortest()
    }

    /// It takes a request; `is_crowded` says whether more work waits.
    pub(super) fn begin(
        &mut self,
        len: u64,
        requirements: Requirements,
        is_crowded: bool,
        now: Instant,
    ) -> Ticket {
        let (delivered_at, first_sent_at) =
            self.last.filter(|_| self.requests > 0).unwrap_or((now, now));
        if self.requests == 0 {
            self.silent_since = Some(now);
        }
        self.under_way += len;
        self.requests += 1;
        self.is_alone |= requirements.is_alone;
        Ticket {
            path: self.id,
            len,
            sent_at: now,
            delivered: self.delivered,
            delivered_at,
            first_sent_at,
            app_limited: !is_crowded,
            is_alone: requirements.is_alone,
        }
    }

    /// A request has been answered.
    pub(super) fn end(&mut self, ticket: &Ticket, now: Instant) {
        self.release(ticket);
        self.learn(ticket, now);
    }

    /// A request is under way no more.
    pub(super) const fn release(&mut self, ticket: &Ticket) {
        self.under_way = self.under_way.saturating_sub(ticket.len);
        self.requests = self.requests.saturating_sub(1);
        self.is_alone &= !ticket.is_alone;
        if self.requests == 0 {
            self.silent_since = None;
        }
    }

    fn learn(&mut self, ticket: &Ticket, now: Instant) {
        self.delivered += ticket.len;
        self.held_up_until = None;
        self.silent_since = self.silent_since.map(|_| now);
        self.last = Some((now, ticket.sent_at));
        let time = now.saturating_duration_since(ticket.sent_at);
        if time.is_zero() {
            return;
        }
        self.latency.get_or_insert_with(|| Rtt::first(time)).observe(time);
        self.link.observe_round_trip(time, now);
        let rate = Bandwidth::of(self.delivered - ticket.delivered, ticket.interval(now));
        let sample = RateSample::new(rate).app_limited(ticket.app_limited);
        self.link.observe_rate(&sample.between(ticket.delivered, self.delivered), now);
    }
}

impl Ticket {
    /// The time that those requests took which were answered while this one was under way: they did
    /// not come in faster than they went out. Behind a lost segment many are answered at once.
    fn interval(&self, now: Instant) -> Duration {
        let answers = now.saturating_duration_since(self.delivered_at);
        answers.max(self.sent_at.saturating_duration_since(self.first_sent_at))
    }
}
