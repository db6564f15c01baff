//! The bytes that a path has delivered, and the rate and the round-trip time that they show.
//!
//! The rate is estimated from the answers ([`LinkEstimator`]): the bytes that were delivered while a request was in flight,
//! divided by the time that they took to be sent or to be delivered, whichever is longer (draft-ietf-ccwg-bbr, "Delivery Rate
//! Samples").

use std::time::{Duration, Instant};

use iscsi_rate::Rate;
use iscsi_tuner::{EstimatorWindow, LinkEstimator, RateSample, Rtt};

/// The bytes that a path has delivered, and what was measured of its answers.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    /// Bytes of requests that were answered.
    delivered: u64,
    /// When the last request was answered, and when it had been sent.
    last: Option<(Instant, Instant)>,
    /// Time from a request to its answer.
    latency: Option<Rtt>,
    link: LinkEstimator,
}

/// How much a path had delivered when a request took it, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    delivered: u64,
    /// When it had delivered that, and when the last of the requests that it had delivered was sent.
    delivered_at: Instant,
    last_sent_at: Instant,
    /// No more work waited, so that the rate is not that of the path alone.
    app_limited: bool,
}

impl Delivery {
    /// The rate that the path has shown.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.link.rate()
    }

    /// Whether the rate rises no more.
    pub(super) fn is_pipe_full(&self) -> bool {
        self.link.is_pipe_full()
    }

    /// The shortest time from a request to its answer; zero before the first answer.
    pub(super) fn round_trip(&self) -> Duration {
        self.link.round_trip().unwrap_or_default()
    }

    /// The mean time from a request to its answer; zero before the first answer.
    pub(super) fn mean_latency(&self) -> Duration {
        self.latency.map_or(Duration::ZERO, |latency| latency.smoothed)
    }

    /// The time within which nearly every request is answered, computed as TCP computes its retransmission timeout
    /// (RFC 6298 §2.3).
    pub(super) fn rto(&self) -> Option<Duration> {
        self.latency.map(|latency| latency.smoothed + latency.deviation * 4)
    }

    /// A request takes the path, on which others are in flight or not; `is_crowded` says whether more work waits.
    pub(super) fn begin(&self, has_others: bool, is_crowded: bool, now: Instant) -> Progress {
        let (delivered_at, last_sent_at) = self.last.filter(|_| has_others).unwrap_or((now, now));
        let delivered = self.delivered;
        Progress { delivered, delivered_at, last_sent_at, app_limited: !is_crowded }
    }

    /// A request of `len` bytes has been answered that had taken the path at this time, when it had delivered that.
    pub(super) fn answered(&mut self, before: Progress, len: u64, taken_at: Instant, now: Instant) {
        self.delivered += len;
        self.last = Some((now, taken_at));
        let time = now.saturating_duration_since(taken_at);
        if time.is_zero() {
            return;
        }
        self.latency.get_or_insert_with(|| Rtt::first(time)).observe(time);
        self.link.observe_round_trip(time, now);
        if before.app_limited {
            // The rate would not count.
            return;
        }
        let rate = Rate::of(self.delivered - before.delivered, before.interval(taken_at, now));
        let sample = RateSample::new(rate).between(before.delivered, self.delivered);
        self.link.observe_rate(&sample, now);
    }
}

impl Default for Delivery {
    fn default() -> Self {
        let link = LinkEstimator::new(EstimatorWindow::PATH);
        Self { delivered: 0, last: None, latency: None, link }
    }
}

impl Progress {
    /// The time in which the requests were answered that the path answered while one was in flight that had taken it at
    /// `taken_at`. They did not come in faster than they went out: behind a lost segment many are answered together.
    fn interval(&self, taken_at: Instant, now: Instant) -> Duration {
        let answers = now.saturating_duration_since(self.delivered_at);
        answers.max(taken_at.saturating_duration_since(self.last_sent_at))
    }
}
