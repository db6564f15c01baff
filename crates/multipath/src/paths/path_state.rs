//! State of one path: its requests in flight, and how many more it takes.
//!
//! A path takes the bytes that it moves in about two of its response times, at its measured rate
//! ([`inflight_limit`]). So a slow path holds few bytes, however long the queue is, and the end of a copy
//! does not wait for it.

use std::time::{Duration, Instant};

use iscsi_rate::Rate;
use iscsi_tuner::{STARTUP_GAIN, inflight_limit, wait_for_answers};

use crate::access::Access;
use crate::ids::PathId;
use crate::paths::delivery::{Delivery, Progress};
use crate::paths::hedge::HedgePolicy;

/// Limits of the requests in flight on a path, set by the plan for its session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Credit {
    /// Maximum bytes in flight. A request that is the only one on the path may exceed them.
    pub bytes: u64,
    /// Maximum requests in flight: the command window of the target.
    pub requests: u32,
}

impl Credit {
    /// No limit, for the only path of a disk, whose session has limits itself.
    pub const UNLIMITED: Self = Self { bytes: u64::MAX, requests: u32::MAX };
}

/// Requirements of a request on its path.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Requirements {
    /// The path on which the first copy of the request is in flight; `None` for a first copy. A second copy
    /// takes another path, whose port serves the unit.
    pub avoid: Option<PathId>,
    /// Whether no other request may be in flight on the path.
    pub is_alone: bool,
}

/// The place of a request on a path, from the moment it takes the path until it completes or is given up.
#[derive(Clone, Copy, Debug)]
pub struct PathPermit {
    /// Whether the request counts as in flight on the path.
    takes_credit: bool,
    pub(super) path: PathId,
    len: u64,
    taken_at: Instant,
    /// Progress of the path when the request took it.
    progress: Progress,
    is_alone: bool,
}

impl PathPermit {
    /// Returns the path.
    pub const fn path(&self) -> PathId {
        self.path
    }

    /// Returns when the request took the path.
    pub const fn taken_at(&self) -> Instant {
        self.taken_at
    }
}

/// The requests in flight on one path, and how many more it takes.
#[derive(Clone, Debug)]
pub(super) struct PathState {
    pub(super) id: PathId,
    pub(super) credit: Credit,
    pub(super) bytes_in_flight: u64,
    pub(super) requests: u32,
    pub(super) delivery: Delivery,
    /// Whether the path takes no more requests.
    pub(super) is_closing: bool,
    /// Whether the request in flight must stay the only request on the path.
    pub(super) is_alone: bool,
    pub(super) access: Access,
    /// Time from which requests are in flight and none has completed.
    silent_since: Option<Instant>,
    /// Time of the latest completion.
    last_answer: Option<Instant>,
    /// Time until which other paths come first, because the unit has refused a request over this path.
    pub(super) held_up_until: Option<Instant>,
}

/// A request without data counts as this number of bytes, because it takes time as well.
pub(super) const MIN_LEN: u64 = 4096;
/// Bytes that may be in flight on every path, however slow it is.
const MIN_CREDIT: u64 = 256 << 10;
/// Bytes that may be in flight on a path while its rate rises. Several paths share this number equally. Slow
/// start sends this number of bytes in its first eight round trips.
const MIN_CREDIT_IN_STARTUP: u64 = 4 << 20;

/// Limits for one path, if all paths of the disk have equal parts of the total.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    min_in_startup: u64,
    /// Maximum in flight on one path, unless a single request exceeds it. If this path is stuck, the other
    /// paths still have their parts of the total.
    max: Credit,
}

impl Share {
    pub(super) fn of(total: Credit, paths: usize) -> Self {
        let paths = u32::try_from(paths).unwrap_or(u32::MAX).max(1);
        Self {
            min_in_startup: MIN_CREDIT_IN_STARTUP / u64::from(paths),
            max: Credit { bytes: total.bytes / u64::from(paths), requests: total.requests / paths },
        }
    }
}

impl PathState {
    pub(super) fn new(id: PathId, credit: Credit) -> Self {
        Self {
            id,
            credit,
            bytes_in_flight: 0,
            requests: 0,
            delivery: Delivery::default(),
            is_closing: false,
            is_alone: false,
            access: Access::UNKNOWN,
            silent_since: None,
            last_answer: None,
            held_up_until: None,
        }
    }

    /// Returns whether no request on the path has completed for the time after which a request is stuck.
    pub(super) fn is_silent(&self, hedge: &HedgePolicy, now: Instant) -> bool {
        self.silent_since.is_some_and(|since| {
            let silence = now.saturating_duration_since(since);
            // The first comparison is cheap and usually decides. This function runs several times per request.
            silence >= hedge.least_stuck() && silence >= hedge.stuck(self.delivery.rto())
        })
    }

    /// Returns whether a request on the path has completed after `silent`, a silent path, had become silent for
    /// as long as a request takes to be stuck there at least.
    pub(super) fn has_answered_beside(&self, silent: &Self, hedge: &HedgePolicy) -> bool {
        let is_after = |since: Instant| {
            self.last_answer
                .is_some_and(|at| at.saturating_duration_since(since) >= hedge.least_stuck())
        };
        silent.silent_since.is_some_and(is_after)
    }

    pub(super) fn is_held_up(&self, now: Instant) -> bool {
        self.held_up_until.is_some_and(|until| now < until)
    }

    /// Returns whether the path takes a request of `len` bytes. An idle path takes any request.
    pub(super) fn takes(&self, len: u64, share: Share, is_alone: bool) -> bool {
        let has_credit = self.bytes_in_flight + len <= self.limit(share).min(share.max.bytes)
            && self.requests < self.credit.requests.min(share.max.requests);
        self.requests == 0 || (has_credit && !is_alone && !self.is_alone)
    }

    /// Returns the bytes that may be in flight, by the path's measured rate.
    fn limit(&self, share: Share) -> u64 {
        if self.credit == Credit::UNLIMITED {
            return u64::MAX;
        }
        let (gain, least) = if self.delivery.is_pipe_full() {
            (1, MIN_CREDIT)
        } else {
            (STARTUP_GAIN, share.min_in_startup.max(MIN_CREDIT))
        };
        let by_rate = self.delivery.rate().map_or(0, |rate| {
            let wait = wait_for_answers(self.delivery.round_trip(), self.delivery.mean_latency());
            inflight_limit(rate, self.delivery.round_trip(), wait).saturating_mul(gain)
        });
        by_rate.max(least).min(self.credit.bytes)
    }

    /// Returns the time until the path would have completed one more request. `usual` is the rate to assume
    /// for a path without a measured rate.
    pub(super) fn time_to_finish(&self, len: u64, usual: Rate) -> Duration {
        let bytes = self.bytes_in_flight.saturating_add(len);
        self.delivery.rate().unwrap_or(usual).time_for(bytes) + self.delivery.round_trip()
    }

    /// Adds a request to the path; `is_crowded` is whether more work waits.
    pub(super) fn take(
        &mut self,
        len: u64,
        requirements: Requirements,
        is_crowded: bool,
        now: Instant,
    ) -> PathPermit {
        let progress = self.delivery.begin(self.requests > 0, is_crowded, now);
        if self.requests == 0 {
            self.silent_since = Some(now);
        }
        self.bytes_in_flight += len;
        self.requests += 1;
        self.is_alone |= requirements.is_alone;
        PathPermit {
            takes_credit: true,
            path: self.id,
            len,
            taken_at: now,
            progress,
            is_alone: requirements.is_alone,
        }
    }

    /// Returns a permit for a request that is sent over the path regardless of other requests in flight
    /// there.
    pub(super) fn take_beside(&self, now: Instant) -> PathPermit {
        PathPermit {
            takes_credit: false,
            path: self.id,
            len: 0,
            taken_at: now,
            progress: self.delivery.begin(false, false, now),
            is_alone: false,
        }
    }

    /// Removes a request that has completed, and updates the measurements of the path.
    pub(super) fn answered(&mut self, permit: &PathPermit, now: Instant) {
        self.release(permit);
        self.held_up_until = None;
        self.silent_since = self.silent_since.map(|_| now);
        self.last_answer = Some(now);
        self.delivery.answered(permit.progress, permit.len, permit.taken_at, now);
    }

    /// Removes a request that is not in flight any more.
    pub(super) const fn release(&mut self, permit: &PathPermit) {
        if !permit.takes_credit {
            return;
        }
        self.bytes_in_flight = self.bytes_in_flight.saturating_sub(permit.len);
        self.requests = self.requests.saturating_sub(1);
        self.is_alone &= !permit.is_alone;
        if self.requests == 0 {
            self.silent_since = None;
        }
    }
}
