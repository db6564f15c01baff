//! Polls the kernel for the tuners of the connections, and applies the limits that the tuners find for the data
//! in flight.

pub(crate) mod offer;
pub(crate) mod reading;
pub(crate) mod request_limits;
pub(crate) mod tuner;

use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_session::Session;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::links::{Links, data_moved};
use super::transports::Transport;
use crate::driver::shared::Shared;
use reading::Reading;
use tuner::PollSample;

/// Time after its last request during which a session still polls what its connections wait for; then the polls
/// stop.
const DOZE: Duration = Duration::from_secs(1);

impl Links {
    /// Polls the kernel: records what each connection waits for, sets its pacing rate, applies the limits that
    /// the tuners find, and plans the next poll. What a connection waits for is found from the session's state
    /// and from what the kernel reports about the socket.
    pub(super) fn poll_kernel(
        &mut self,
        session: &mut Session,
        shared: &Shared,
        has_requests: bool,
        now: Instant,
    ) {
        if has_requests {
            self.polls.awake_until = now + DOZE;
        }
        let (pacing_rate, intervals) = (shared.pacing_rate(), self.polls.intervals);
        let sample = PollSample {
            waiting: session.waiting_for(),
            intervals,
            waited_in_class: self.newly_waited_in_class(shared),
            is_at_limit: shared.budgets.requests.has_waiters(),
            awaited_data: session.awaited_data() as u64,
        };
        for transport in &mut self.transports {
            let (blocked, progress) = (transport.blocked, session.write_progress(transport.cid));
            transport.tune(|socket, tuner| {
                tuner.pace(socket, pacing_rate);
                tuner.poll(socket, sample, blocked, progress, now.into_std());
            });
        }
        self.share_limits(session, shared);
        self.publish_plan(shared);
        let moved = data_moved(session) - self.polls.moved;
        self.polls.moved += moved;
        let is_little = tuner::is_little(moved, tuner::POLL_INTERVAL * intervals);
        let is_rare = is_little && self.transports.iter().all(Transport::is_short_and_free);
        self.poll_after(if is_rare { tuner::INTERVALS_PER_READING } else { 1 }, now);
    }

    /// Sets the next poll of the kernel to `intervals` intervals from now.
    fn poll_after(&mut self, intervals: u32, now: Instant) {
        self.polls.intervals = intervals;
        self.polls.due = now + tuner::POLL_INTERVAL * intervals;
    }

    /// Moves the next poll to one interval from now if sockets hold bytes back, so that the bytes are read soon.
    pub(super) fn poll_soon(&mut self, now: Instant) {
        let is_keeping = self.transports.iter().any(Transport::is_keeping_bytes);
        if is_keeping && self.polls.intervals > 1 {
            self.poll_after(1, now);
        }
    }

    /// Passes a larger command window to the tuners, which fit the transfers to it.
    pub(super) fn update_window(&mut self, session: &Session, shared: &Shared) {
        let window = session.command_window();
        if self.window.is_some_and(|known| window <= known) {
            return;
        }
        self.window = Some(window);
        let tell = |transport: &mut Transport| transport.tune(|_, tuner| tuner.offered(window));
        // A fold instead of `any`, because every tuner must receive the window.
        let told = self.transports.iter_mut().filter_map(tell);
        if told.fold(false, |news, is_news| news | is_news) {
            self.publish_plan(shared);
        }
    }

    /// Publishes the plan of the leading connection, which the handles return as the session's plan.
    fn publish_plan(&mut self, shared: &Shared) {
        let leading = self.transports.first_mut();
        if let Some(basis) = leading.and_then(|leading| leading.tune(|_, tuner| tuner.basis())) {
            shared.set_plan_basis(basis);
        }
    }

    /// Returns for how long requests waited in their traffic class since the last call.
    fn newly_waited_in_class(&mut self, shared: &Shared) -> Duration {
        let waited = shared.waited_in_class();
        waited.saturating_sub(std::mem::replace(&mut self.polls.waited_in_class, waited))
    }

    /// Keeps the polls running for [`DOZE`] from now, because there is a new request.
    pub(super) fn wake(&mut self, shared: &Shared, now: Instant) {
        self.count_rest(shared, now);
        self.polls.awake_until = self.polls.awake_until.max(now + DOZE);
    }

    /// Counts the idle time, in which the kernel was not polled. Time in which requests waited in their traffic
    /// class counts as such a wait; the rest counts as waiting for requests.
    fn count_rest(&mut self, shared: &Shared, now: Instant) {
        // An idle time of less than an interval is not counted.
        if now < self.polls.awake_until + tuner::POLL_INTERVAL {
            return;
        }
        let rest = now - self.polls.awake_until;
        let in_class = self.newly_waited_in_class(shared);
        for transport in &mut self.transports {
            transport.tune(|_, tuner| tuner.rested(rest, in_class, now.into_std()));
        }
        self.polls.awake_until = now;
        // An overdue poll would always see the request that ended the idle time, so the next poll is one
        // interval from now.
        self.poll_after(1, now);
    }

    /// Sends a reading of each connection to the caller, if the caller still waits.
    pub(super) fn send_readings(
        &mut self,
        answer: oneshot::Sender<Vec<Reading>>,
        shared: &Shared,
        now: Instant,
    ) {
        self.count_rest(shared, now);
        let (now, session) = (now.into_std(), shared.key.key);
        let own_limits = shared.own_limits();
        let reading = |transport: &mut Transport| {
            let (cid, bytes) = (transport.cid, transport.bytes);
            transport
                .tune(|socket, tuner| tuner.reading(socket, (session, cid), bytes, own_limits, now))
        };
        drop(answer.send(self.transports.iter_mut().filter_map(reading).collect()));
    }

    /// Passes the loss that another session has measured over the same link, 0 to 1, to the tuners.
    pub(super) fn on_link_loss(&mut self, loss: f64, shared: &Shared) {
        for transport in &mut self.transports {
            transport.tune(|socket, tuner| tuner.on_link_loss(socket, loss));
        }
        self.publish_plan(shared);
    }

    /// Passes the limit of other sessions that found the target slow to the tuners: `bytes` is the write data
    /// that each of them may have outstanding.
    pub(super) fn on_slow_target(&mut self, bytes: u64, session: &mut Session, shared: &Shared) {
        for transport in &mut self.transports {
            transport.tune(|_, tuner| tuner.on_slow_target(bytes));
        }
        self.share_limits(session, shared);
    }

    /// Measures and applies the limits of the data that each connection may have outstanding in writes and
    /// reads.
    pub(super) fn limit_requests(&mut self, session: &mut Session, shared: &Shared, now: Instant) {
        let now = now.into_std();
        for transport in &mut self.transports {
            let progress = session.write_progress(transport.cid);
            transport.tune(|socket, tuner| tuner.measure_limits(socket, progress, now));
        }
        self.share_limits(session, shared);
    }

    /// Applies and publishes the limits that the tuners found at their last poll.
    fn share_limits(&self, session: &mut Session, shared: &Shared) {
        let max = shared.budgets.requests.max_bytes();
        let (mut longest, mut slow, mut longest_read) = (u64::MAX, u64::MAX, u64::MAX);
        for transport in &self.transports {
            let Some(tuner) = transport.tuner() else { continue };
            let (limits, copes) = (tuner.request_limits(), tuner.copes_with_loss());
            session.limit_writes(transport.cid, limits.write(copes, max).unwrap_or(u64::MAX));
            session.limit_reads(transport.cid, limits.read(max).unwrap_or(u64::MAX));
            longest_read = longest_read.min(limits.longest_read(max).unwrap_or(u64::MAX));
            longest = longest.min(limits.longest_write(copes, max).unwrap_or(u64::MAX));
            slow = slow.min(limits.of_slow_target().unwrap_or(u64::MAX));
        }
        shared.lengths.write.store(longest, Ordering::Relaxed);
        shared.lengths.read.store(longest_read, Ordering::Relaxed);
        shared.lengths.of_slow_target.store(slow, Ordering::Relaxed);
    }
}
