//! Tunes one connection: measures the link, makes a plan, sets the plan on the socket, and records what the
//! connection waits for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iscsi_pdu::Cid;
use iscsi_session::{Negotiated, Waiting};
use iscsi_tuner::{
    Activity, EstimatorWindow, Granted, Interface, Limits, LinkEstimator, LossDetector,
    Measurement, OwnLimits, Plan, Rate, RateSample, Rtt, SegmentLimit, Stall, StallWatch, TcpInfo,
    Tuning, plan,
};

use crate::driver::measure::offer::terms;
use crate::driver::measure::reading::{PlanBasis, Reading};
use crate::driver::measure::request_limits::RequestLimits;
use crate::state::session_key::SessionKey;
use crate::transport::Socket;

/// Interval of the polls that ask the kernel what the connection waits for.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A rate below this (10 Mbit/s, here in bytes per second) is little: no property of a short link limits a
/// connection to so low a rate.
const LITTLE: u128 = 1_250_000;
/// Number of intervals between two updates of the plan by a reading. While a short link moves little data, the
/// kernel is polled only at these updates.
pub(crate) const INTERVALS_PER_READING: u32 = 20;

/// Returns whether `bytes` bytes in `time` are less than the rate [`LITTLE`].
pub(crate) fn is_little(bytes: u64, time: Duration) -> bool {
    u128::from(bytes) * 1000 < LITTLE * time.as_millis()
}

/// Reason why the session waits at a poll, derived from the session's state and not from its sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollSample {
    pub(crate) waiting: Waiting,
    /// Number of intervals that the sample counts for.
    pub(crate) intervals: u32,
    /// Time within these intervals in which requests waited in their traffic class.
    pub(crate) waited_in_class: Duration,
    /// Whether requests wait because the limit of what may be in flight is reached.
    pub(crate) is_at_limit: bool,
    /// Read data that is still to come, bytes.
    pub(crate) awaited_data: u64,
}

impl PollSample {
    /// Returns in how many of the intervals requests waited in their traffic class, rounded.
    fn in_class(&self) -> u32 {
        intervals_of(self.waited_in_class + POLL_INTERVAL / 2).min(self.intervals)
    }
}

/// Returns the number of whole intervals in `time`.
fn intervals_of(time: Duration) -> u32 {
    let count = time.as_millis() / POLL_INTERVAL.as_millis();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// State of the tuner of one connection.
#[derive(Debug)]
pub(crate) struct Tuner {
    tuning: Tuning,
    limits: Limits,
    measurement: Measurement,
    plan: Plan,
    on_socket: OnSocket,
    activity: Activity,
    estimates: LinkEstimates,
    request_limits: RequestLimits,
    /// Address of the target's portal that the connection leads to.
    address: SocketAddr,
    stalls: Stalls,
    /// The plan and its basis, shared by all readings; `None` after a change, until they are needed again.
    basis: Option<Arc<PlanBasis>>,
}

/// Values that are set on the socket of a connection.
#[derive(Debug, Default)]
struct OnSocket {
    granted: Granted,
    interface: Option<Interface>,
    /// Whether the plan is set.
    is_applied: bool,
    /// Limit of the rate at which the connection sends; `None` for no limit.
    pacing_rate: Option<Rate>,
}

/// Estimates of the link, from readings of the running connection.
#[derive(Debug)]
struct LinkEstimates {
    /// Number of intervals since a reading last updated the plan.
    polls: u32,
    /// The last reading from which the rates were estimated, and its time; `None` before the first one.
    last_reading: Option<(TcpInfo, Instant)>,
    link: LinkEstimator,
    loss: LossDetector,
}

/// Detection of a connection that stands still.
#[derive(Debug, Default)]
struct Stalls {
    watch: StallWatch,
    /// How the connection stood still at the last poll; `None` if it moved.
    last: Option<Stall>,
    /// Whether the target's host acknowledged nothing for several timeouts before the last poll.
    is_host_silent: bool,
}

impl Tuner {
    /// Creates the tuner of a connection to this address. Nothing is measured yet: the plan has the values to
    /// set before connecting, within the limits of the host and the path.
    pub(crate) fn within(
        limits: Limits,
        tuning: Tuning,
        address: SocketAddr,
        segment_limit: Option<SegmentLimit>,
    ) -> Self {
        let mut measurement = Measurement::default();
        measurement.segment_limit = segment_limit;
        let plan = plan(&measurement, &limits, &tuning);
        Self {
            tuning,
            limits,
            measurement,
            plan,
            on_socket: OnSocket::default(),
            activity: Activity::default(),
            estimates: LinkEstimates {
                polls: 0,
                last_reading: None,
                link: LinkEstimator::new(EstimatorWindow::CONNECTION),
                loss: LossDetector::default(),
            },
            request_limits: RequestLimits::default(),
            address,
            stalls: Stalls::default(),
            basis: None,
        }
    }

    pub(crate) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Updates the plan with the round-trip time that the TCP handshake has measured. Returns whether the new
    /// plan needs another receive buffer, which only a new connection can have.
    pub(crate) fn connected(&mut self, socket: &dyn Socket) -> bool {
        let prepared = self.plan.receive_buffer.value;
        match socket.tcp_info() {
            Ok(info) => self.measurement.update(&info),
            Err(error) => tracing::debug!(%error, "the kernel tells nothing of the connection"),
        }
        self.plan_again();
        self.plan.receive_buffer.value != prepared
    }

    /// Sets the plan on the socket.
    pub(crate) fn apply(&mut self, socket: &dyn Socket) {
        self.on_socket.granted = socket.apply(&self.plan);
        self.on_socket.is_applied = true;
        for refusal in &self.on_socket.granted.refused {
            tracing::warn!(option = refusal.option, reason = %refusal.reason, "not granted");
        }
        self.on_socket.interface = socket.interface();
        self.basis = None;
    }

    /// Updates the plan with the negotiated terms, and with the round-trip time measured during the login. The
    /// handshake's round-trip time may include the time to resolve an address.
    pub(crate) fn agreed(&mut self, socket: &dyn Socket, negotiated: &Negotiated) {
        if let Ok(info) = socket.tcp_info() {
            self.measurement.update(&info);
        }
        self.measurement.terms = Some(terms(negotiated));
        self.adapt(socket, Self::plan_again);
    }

    /// Records the command window that the target has reported, if it is larger than all before. Returns
    /// whether the window was recorded; before the end of the login, no window is.
    pub(crate) fn offered(&mut self, window: u32) -> bool {
        let Some(terms) = &mut self.measurement.terms else { return false };
        if terms.window >= Some(window) {
            return false;
        }
        terms.window = Some(window);
        self.plan_again();
        true
    }

    /// Limits the rate at which the connection sends; `None` lifts the limit.
    pub(crate) fn pace(&mut self, socket: &dyn Socket, rate: Option<Rate>) {
        if self.on_socket.pacing_rate == rate {
            return;
        }
        self.on_socket.pacing_rate = rate;
        // Pacing only smooths; the traffic class enforces its ceiling.
        if let Err(error) = socket.limit_pacing(rate) {
            tracing::debug!(%error, "the rate of the connection cannot be limited");
        }
    }

    /// Returns whether the connection sends at 90 % or more of the rate that pacing permits.
    fn is_paced(&self, info: &TcpInfo) -> bool {
        let rates = self.on_socket.pacing_rate.zip(info.delivery_rate);
        let bits = |rate: Rate| rate.bits_per_second();
        rates.is_some_and(|(limit, rate)| bits(rate) >= bits(limit) / 10 * 9)
    }

    /// Records what the connection waits for; every [`INTERVALS_PER_READING`] intervals it also measures the
    /// link.
    pub(crate) fn poll(
        &mut self,
        socket: &dyn Socket,
        sample: PollSample,
        is_blocked: bool,
        progress: (u64, u64),
        now: Instant,
    ) {
        let Ok(info) = socket.tcp_info() else { return };
        self.estimates.loss.watch_queue(&info);
        self.request_limits.observe(&info, progress, now);
        self.stalls.last = self.stalls.watch.observe(&info, now);
        self.stalls.is_host_silent = info.is_host_silent();
        self.count(&info, sample, is_blocked);
        self.estimates.polls = self.estimates.polls.saturating_add(sample.intervals);
        if self.estimates.polls >= INTERVALS_PER_READING {
            self.estimates.polls = 0;
            self.adapt(socket, |tuner| tuner.observe(&info, now));
        }
    }

    /// Calls `change`, and sets the new plan on the socket if its send buffer or congestion control has changed.
    fn adapt(&mut self, socket: &dyn Socket, change: impl FnOnce(&mut Self)) {
        let in_force =
            |plan: &Plan| (plan.send_buffer.value, plan.congestion_control.value.clone());
        let before = in_force(&self.plan);
        change(self);
        if before != in_force(&self.plan) {
            tracing::info!("tuned again:\n{}", self.plan);
            self.apply(socket);
        }
    }

    fn count(&mut self, info: &TcpInfo, sample: PollSample, is_blocked: bool) {
        let is_positive = |count: Option<u32>| count.is_some_and(|count| count > 0);
        // Time in which the traffic class holds requests back counts only as that: even without the other
        // reasons to wait, no more would have been sent.
        let of_class = if self.is_paced(info) { sample.intervals } else { sample.in_class() };
        let activity = &mut self.activity;
        activity.class = activity.class.saturating_add(of_class);
        let intervals = sample.intervals - of_class;
        let awaits_reads = sample.awaited_data > 0;
        let counter = match sample.waiting {
            _ if is_blocked || is_positive(info.bytes_not_sent) => &mut activity.socket,
            Waiting::WriteLimit => &mut activity.socket,
            Waiting::R2t => &mut activity.solicitation,
            Waiting::CommandWindow => &mut activity.command_window,
            // While nothing is on the link, the target holds the connection back, even if requests also wait for
            // the limit.
            Waiting::Answers
                if sample.is_at_limit && (awaits_reads || is_positive(info.segments_in_flight)) =>
            {
                &mut activity.in_flight_limit
            }
            Waiting::ReadLimit => &mut activity.answers,
            Waiting::Answers if is_positive(info.segments_in_flight) => &mut activity.answers,
            Waiting::Answers => &mut activity.target,
            Waiting::Nothing => &mut activity.source,
            _ => return,
        };
        *counter = counter.saturating_add(intervals);
        if matches!(sample.waiting, Waiting::Answers | Waiting::ReadLimit) {
            let awaited = u64::from(intervals).saturating_mul(sample.awaited_data);
            activity.awaited_data = activity.awaited_data.saturating_add(awaited);
        }
    }

    /// Counts `time` without requests in flight, in which the kernel was not polled. For the part `in_class`,
    /// requests waited in their traffic class; the rest counts as waiting for requests.
    pub(crate) fn rested(&mut self, time: Duration, in_class: Duration, now: Instant) {
        self.stalls.watch.rested(now);
        let polls = intervals_of(time);
        let of_class = intervals_of(in_class).min(polls);
        self.activity.class = self.activity.class.saturating_add(of_class);
        self.activity.source = self.activity.source.saturating_add(polls - of_class);
    }

    /// Returns the address that the connection leads to.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how the connection stood still at the last poll. `None` for a target on this host, because the
    /// loopback interface never drops long segments.
    pub(crate) fn stall(&self) -> Option<Stall> {
        self.stalls.last.filter(|_| !self.address.ip().is_loopback())
    }

    /// Returns whether the target's host acknowledged nothing for several timeouts before the last poll.
    pub(crate) const fn is_host_silent(&self) -> bool {
        self.stalls.is_host_silent
    }

    /// Updates the measurement with a reading of the link, and plans again.
    fn observe(&mut self, info: &TcpInfo, now: Instant) {
        self.measurement.update(info);
        self.estimate(info, now);
        self.measurement.loss = self.estimates.loss.observe(info, self.copes_with_loss());
        self.plan_again();
    }

    /// Estimates the rates of both directions. A rate is the link's only if data queue before the link;
    /// otherwise the sender has set the rate.
    fn estimate(&mut self, info: &TcpInfo, now: Instant) {
        if let Some(rtt) = Rtt::of_tcp(info) {
            self.estimates.link.observe_round_trip(rtt.min, now);
        }
        let sent = info.delivery_rate.map(|rate| {
            let is_sender_limited = info.delivery_rate_app_limited != Some(false);
            RateSample::new(rate).app_limited(is_sender_limited || !info.has_queue(None, rate))
        });
        let arrived = self.estimates.last_reading.and_then(|(earlier, at)| {
            let time = now.saturating_duration_since(at);
            let has_queue = info.has_queue_of_arrivals(&earlier, time);
            Some(RateSample::new(info.arrival_since(&earlier, time)?).app_limited(!has_queue))
        });
        for sample in [sent, arrived].into_iter().flatten() {
            self.estimates.link.observe_rate(&sample, now);
        }
        self.estimates.last_reading = Some((*info, now));
        self.measurement.bandwidth = self.estimates.link.rate();
        if let (Some(rtt), Some(min)) =
            (&mut self.measurement.rtt, self.estimates.link.round_trip())
        {
            rtt.min = min;
        }
    }

    /// Updates the limits of the data in flight from what the kernel reports, and from how fast the target
    /// takes write data.
    pub(crate) fn measure_limits(
        &mut self,
        socket: &dyn Socket,
        progress: (u64, u64),
        now: Instant,
    ) {
        self.request_limits.observe(&socket.tcp_info().unwrap_or_default(), progress, now);
    }

    /// Returns the limits of the data in flight.
    pub(crate) const fn request_limits(&self) -> &RequestLimits {
        &self.request_limits
    }

    /// Applies the limit of other connections that found the target slow.
    pub(crate) const fn on_slow_target(&mut self, bytes: u64) {
        self.request_limits.on_slow_target(bytes);
    }

    /// Updates the plan with the loss, 0 to 1, that another connection has measured on the same link and that no
    /// queue explains.
    pub(crate) fn on_link_loss(&mut self, socket: &dyn Socket, loss: f64) {
        self.adapt(socket, |tuner| tuner.believe(loss));
    }

    fn believe(&mut self, loss: f64) {
        self.measurement.loss = Some(self.estimates.loss.adopt_loss(loss));
        self.plan_again();
    }

    /// Returns whether the congestion control in force keeps its rate when segments are lost without a full
    /// queue.
    pub(crate) fn copes_with_loss(&self) -> bool {
        self.plan.copes_with_loss(&self.limits)
    }

    /// Plans again. On a running connection, these stay: values that take effect only before connecting, a send
    /// buffer that would shrink, a congestion control once it is chosen, and the way of sending, except for the
    /// bytes of one call.
    fn plan_again(&mut self) {
        let new = plan(&self.measurement, &self.limits, &self.tuning);
        let old = std::mem::replace(&mut self.plan, new);
        self.basis = None;
        if !self.on_socket.is_applied {
            return;
        }
        let plan = &mut self.plan;
        if old.send_buffer.value.bytes() > plan.send_buffer.value.bytes() {
            plan.send_buffer = old.send_buffer;
        }
        if old.congestion_control.value.is_some() {
            plan.congestion_control = old.congestion_control;
        }
        plan.receive_buffer = old.receive_buffer;
        plan.segment = old.segment;
        plan.no_delay = old.no_delay;
        plan.sends = old.sends;
        plan.cork = old.cork;
        plan.not_sent_low_water = old.not_sent_low_water;
    }

    /// Returns a reading of the connection.
    pub(crate) fn reading(
        &mut self,
        socket: &dyn Socket,
        (session, cid): (SessionKey, Cid),
        bytes: u64,
        own_limits: OwnLimits,
        at: Instant,
    ) -> Reading {
        let info = socket.tcp_info().unwrap_or_default();
        let encryption = socket.encryption();
        let (activity, basis) = (self.activity, self.basis());
        Reading { at, session, cid, info, encryption, bytes, activity, own_limits, basis }
    }

    /// Returns the plan and what it is based on, for readings and handles.
    pub(crate) fn basis(&mut self) -> Arc<PlanBasis> {
        let Self { limits, measurement, plan, on_socket, basis, .. } = self;
        let OnSocket { granted, interface, .. } = on_socket;
        let basis = basis.get_or_insert_with(|| {
            Arc::new(PlanBasis {
                limits: limits.clone(),
                measurement: *measurement,
                plan: plan.clone(),
                granted: granted.clone(),
                interface: interface.clone(),
            })
        });
        Arc::clone(basis)
    }
}

#[cfg(test)]
mod tests {
    use iscsi_tuner::Basis;

    use super::*;

    /// Creates the tuner of a stock kernel with BBR available, 100 ms away from its target.
    fn connected() -> Tuner {
        let mut limits = Limits::default();
        limits.allowed_congestion_controls = vec!["bbr".to_owned()];
        limits.available_congestion_controls = vec!["bbr".to_owned()];
        let mut tuner =
            Tuner::within(limits, Tuning::default(), ([192, 0, 2, 1], 3260).into(), None);
        tuner.observe(&info(100, 0, 0), Instant::now());
        tuner.on_socket.is_applied = true;
        tuner
    }

    /// Returns a reading with a round-trip time of `millis` milliseconds; 100 means no queue.
    fn info(millis: u64, sent: u32, again: u32) -> TcpInfo {
        let mut info = TcpInfo::default();
        info.smoothed_rtt = Some(Duration::from_millis(millis));
        info.min_rtt = Some(Duration::from_millis(100));
        info.send_mss = Some(1448);
        info.data_segments_sent = Some(sent);
        info.segments_retransmitted = Some(again);
        info.delivery_rate = "90mbit".parse().ok();
        info.delivery_rate_app_limited = Some(false);
        info
    }

    #[test]
    fn a_rate_counts_as_the_links_only_with_a_queue_before_it() {
        let mut tuner = connected();
        tuner.observe(&info(100, 500, 0), Instant::now());
        assert_eq!(tuner.plan.link.basis, Basis::Assumed);
        tuner.observe(&info(180, 900, 0), Instant::now());
        assert_eq!(tuner.plan.link.basis, Basis::Estimated);
        assert_eq!(tuner.plan.link.bandwidth, "90mbit".parse().unwrap());
    }

    /// A token bucket lets a burst through faster than the link's rate, so a rate that was measured without a
    /// queue must not raise the estimate.
    #[test]
    fn a_burst_without_a_queue_does_not_raise_the_rate() {
        let mut tuner = connected();
        tuner.observe(&info(180, 900, 0), Instant::now());
        for (millis, app_limited) in [(100, false), (180, true)] {
            let mut burst = info(millis, 1000, 0);
            burst.delivery_rate = "1gbit".parse().ok();
            burst.delivery_rate_app_limited = Some(app_limited);
            tuner.observe(&burst, Instant::now());
            assert_eq!(tuner.plan.link.bandwidth, "90mbit".parse().unwrap(), "{millis} ms");
        }
    }

    /// The rate of arriving data counts as the link's if the round-trip time shows a queue.
    #[test]
    fn what_arrives_shows_the_rate_as_well() {
        let mut tuner = connected();
        let begun = Instant::now();
        let arrived = |millis, bytes| {
            let mut info = info(100, 0, 0);
            info.delivery_rate = "10kbit".parse().ok();
            info.delivery_rate_app_limited = Some(true);
            info.bytes_received = Some(bytes);
            info.receive_rtt = Some(Duration::from_millis(millis));
            info
        };
        tuner.observe(&arrived(100, 0), begun);
        tuner.observe(&arrived(100, 2_000_000), begun + Duration::from_secs(1));
        assert_eq!(tuner.plan.link.basis, Basis::Assumed);
        tuner.observe(&arrived(180, 4_500_000), begun + Duration::from_secs(2));
        assert_eq!(tuner.plan.link.basis, Basis::Estimated);
        assert_eq!(tuner.plan.link.bandwidth, "20mbit".parse().unwrap());
    }

    /// The estimate follows when the rate of the link, or this connection's share of it, falls permanently.
    #[test]
    fn a_rate_that_is_not_reached_any_more_is_forgotten() {
        let mut tuner = connected();
        let begun = Instant::now();
        let mut after = |seconds, rate: &str| {
            let mut reading = info(180, 900, 0);
            reading.delivery_rate = rate.parse().ok();
            tuner.observe(&reading, begun + Duration::from_secs(seconds));
            tuner.plan.link.bandwidth.to_string()
        };
        assert_eq!(after(0, "90mbit"), "90 Mbit/s");
        assert_eq!([1, 5, 10].map(|seconds| after(seconds, "30mbit")), ["90 Mbit/s"; 3]);
        assert_eq!(after(20, "30mbit"), "30 Mbit/s");
    }

    #[test]
    fn a_round_trip_that_has_grown_for_good_is_believed() {
        let mut tuner = connected();
        let begun = Instant::now();
        let mut after = |minutes: u64, millis| {
            let mut reading = info(millis, 900, 0);
            reading.min_rtt = Some(Duration::from_millis(millis));
            tuner.observe(&reading, begun + Duration::from_secs(60 * minutes));
            tuner.plan.link.rtt.map(|rtt| rtt.min.as_millis())
        };
        assert_eq!([1, 5, 9].map(|minutes| after(minutes, 250)), [Some(100); 3]);
        assert_eq!(after(11, 250), Some(250));
    }

    #[test]
    fn loss_without_a_queue_asks_for_bbr_and_keeps_it() {
        let mut tuner = connected();
        tuner.observe(&info(100, 2000, 10), Instant::now());
        assert_eq!(tuner.plan.congestion_control.value.as_deref(), Some("bbr"));
        assert!(tuner.plan.congestion_control.reason.contains("0.500 %"));
        tuner.observe(&info(100, 9000, 10), Instant::now());
        assert_eq!(tuner.plan.congestion_control.value.as_deref(), Some("bbr"));
    }

    #[test]
    fn loss_in_which_a_queue_had_a_part_asks_for_nothing() {
        let mut tuner = connected();
        tuner.estimates.loss.watch_queue(&info(180, 1000, 5));
        tuner.observe(&info(100, 2000, 10), Instant::now());
        assert_eq!(tuner.plan.congestion_control.value, None);
        // A queue explains only the losses of its own reading.
        tuner.observe(&info(100, 4000, 30), Instant::now());
        assert_eq!(tuner.plan.congestion_control.value.as_deref(), Some("bbr"));
    }

    #[test]
    fn what_one_connection_has_learnt_of_loss_holds_for_all() {
        let mut tuner = connected();
        assert!(!tuner.copes_with_loss());
        tuner.believe(0.004);
        assert_eq!(tuner.plan.congestion_control.value.as_deref(), Some("bbr"));
        assert!(tuner.copes_with_loss());
        // The probes of BBR make queues, which do not explain the losses.
        tuner.estimates.loss.watch_queue(&info(180, 1000, 5));
        tuner.observe(&info(100, 2000, 10), Instant::now());
        assert!((tuner.plan.link.loss - 0.005).abs() < 1e-9);
    }

    /// The plan is set on the socket. A reading that calls for less changes neither the send buffer nor the
    /// low-water mark.
    #[test]
    fn nothing_that_is_set_shrinks_or_flips() {
        let mut tuner = connected();
        tuner.limits.wmem_max = Some(64 << 20);
        tuner.plan_again();
        let before = tuner.plan.clone();
        assert!(before.send_buffer.value.bytes().is_some());
        tuner.observe(&info(180, 900, 0), Instant::now());
        assert_eq!(tuner.plan.link.basis, Basis::Estimated);
        assert_eq!(tuner.plan.send_buffer, before.send_buffer);
        assert_eq!(tuner.plan.not_sent_low_water, before.not_sent_low_water);
    }
}
