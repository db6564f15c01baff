//! Measures the rate and the round-trip time of a path, by the bytes that it has delivered.
//!
//! The rate is estimated when a request completes ([`LinkEstimator`]): the bytes that were delivered while
//! the request was in flight, divided by the time in which they were sent or delivered, whichever is longer
//! (draft-ietf-ccwg-bbr, "Delivery Rate Samples").

use std::time::{Duration, Instant};

use iscsi_rate::Rate;
use iscsi_tuner::{EstimatorWindow, LinkEstimator, RateSample, Rtt};

/// The bytes that a path has delivered, and measurements of its completed requests.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    /// Bytes of requests that have completed.
    delivered: u64,
    /// When the last completed request completed, and when it was sent.
    last: Option<(Instant, Instant)>,
    /// Time from a request to its completion.
    latency: Option<Rtt>,
    link: LinkEstimator,
}

/// The bytes that a path had delivered when a request took the path, with the times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    delivered: u64,
    /// When the previous request completed, and in `last_sent_at` when it was sent. Both are the time at
    /// which this request took the path, if no other request was in flight then.
    delivered_at: Instant,
    last_sent_at: Instant,
    /// Whether no further request waited for a path. Then the measured rate may be less than the path can
    /// carry.
    app_limited: bool,
}

impl Delivery {
    /// Returns the measured rate of the path.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.link.rate()
    }

    /// Returns whether the rate has stopped rising.
    pub(super) fn is_pipe_full(&self) -> bool {
        self.link.is_pipe_full()
    }

    /// Returns the shortest time from a request to its completion; zero before the first one.
    pub(super) fn round_trip(&self) -> Duration {
        self.link.round_trip().unwrap_or_default()
    }

    /// Returns the mean time from a request to its completion; zero before the first one.
    pub(super) fn mean_latency(&self) -> Duration {
        self.latency.map_or(Duration::ZERO, |latency| latency.smoothed)
    }

    /// Returns the time within which nearly every request completes, computed as TCP computes its
    /// retransmission timeout (RFC 6298 §2.3).
    pub(super) fn rto(&self) -> Option<Duration> {
        self.latency.map(|latency| latency.smoothed + latency.deviation * 4)
    }

    /// Returns the progress of the path when a request takes it. `has_others` is whether other requests are
    /// in flight, `is_crowded` whether more work waits.
    pub(super) fn begin(&self, has_others: bool, is_crowded: bool, now: Instant) -> Progress {
        let (delivered_at, last_sent_at) = self.last.filter(|_| has_others).unwrap_or((now, now));
        let delivered = self.delivered;
        Progress { delivered, delivered_at, last_sent_at, app_limited: !is_crowded }
    }

    /// Records that a request of `len` bytes has completed. The request took this path at `taken_at`, and
    /// `before` is the progress that the path had then.
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
            // The estimator ignores rates that were measured while no more work waited, so this rate is not
            // computed.
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
    /// Returns the time in which the bytes were delivered while a request was in flight that took the path at
    /// `taken_at`. The result is at least the time in which the bytes were sent, because many responses
    /// arrive together after a lost segment.
    fn interval(&self, taken_at: Instant, now: Instant) -> Duration {
        let answers = now.saturating_duration_since(self.delivered_at);
        answers.max(taken_at.saturating_duration_since(self.last_sent_at))
    }
}
