//! Divides the observed time among the limiters.

use std::time::Duration;

use super::limiter::Limiter;
use super::observation::{Activity, Observation};
use crate::limits::{Autotuning, Limits};
use crate::link::loss::MIN_LOSS_FOR_BBR;
use crate::link::model::{Basis, LinkModel, Measurement};
use crate::link::tcp_info::TcpInfo;
use crate::plan::Plan;
use iscsi_rate::Rate;

/// An observed flow, with the plan, limits and measurements that explain it.
#[derive(Debug)]
pub(super) struct ObservedFlow<'a> {
    pub(super) observation: &'a Observation,
    pub(super) link: LinkModel,
    pub(super) goodput: Rate,
    pub(super) plan: &'a Plan,
    pub(super) limits: &'a Limits,
    pub(super) measurement: &'a Measurement,
}

impl ObservedFlow<'_> {
    /// Returns the limiters, each with its share of the time, 0 to 1.
    pub(super) fn shares(&self) -> Vec<(Limiter, f64)> {
        let activity = self.observation.activity;
        let Activity { socket, solicitation, command_window, answers, target, .. } = activity;
        let Activity { source, class, in_flight_limit, .. } = activity;
        let counts =
            [socket, solicitation, command_window, answers, target, source, class, in_flight_limit];
        let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        if total <= 0.0 {
            return Vec::new();
        }
        let share = |count: u32| f64::from(count) / total;
        let idle = if self.is_reading() { Limiter::Destination } else { Limiter::Source };
        let of_others = [(Limiter::Class, share(class)), (idle, share(source))];
        if self.is_full() || self.has_queue() {
            // On a full link, all of these waits are caused by the link. The kernel reports the window as the
            // limit even where the link behind it is full.
            let waits = [socket, solicitation, command_window, answers, in_flight_limit];
            let link = waits.into_iter().map(share).sum::<f64>();
            let own = [(Limiter::Link, link.min(1.0)), (Limiter::Target, share(target))];
            return own.into_iter().chain(of_others).collect();
        }
        let mut shares = self.shares_of_socket(share(socket));
        shares.extend([
            (Limiter::Solicitation, share(solicitation)),
            (Limiter::CommandWindow, share(command_window)),
        ]);
        shares.extend(of_others);
        if self.is_reading() {
            let awaited = share(answers) + share(target) + share(in_flight_limit);
            shares.push((self.limit_of_reads(), awaited.min(1.0)));
        } else {
            shares.push((Limiter::QueueDepth, share(answers)));
            shares.push((Limiter::InFlightLimit, share(in_flight_limit)));
            shares.push((Limiter::Target, share(target)));
        }
        shares
    }

    /// Divides `share` among the reasons that the kernel reports for not sending.
    fn shares_of_socket(&self, share: f64) -> Vec<(Limiter, f64)> {
        let Observation { before, after, .. } = self.observation;
        let passed = |time: fn(&TcpInfo) -> Option<Duration>| {
            let (from, to) = (time(before).unwrap_or_default(), time(after).unwrap_or_default());
            to.saturating_sub(from).as_secs_f64()
        };
        let window = passed(|info| info.receive_window_limited);
        let mut buffer = passed(|info| info.send_buffer_limited);
        let mut busy = passed(|info| info.busy).max(window + buffer);
        if busy <= 0.0 {
            busy = 1.0;
        }
        if self.is_buffer_full() {
            buffer = busy - window;
        }
        let of_busy = |time: f64| share * time / busy;
        vec![
            (Limiter::PeerWindow, of_busy(window)),
            (Limiter::SendBuffer, of_busy(buffer)),
            (self.network(), of_busy(busy - window - buffer)),
        ]
    }

    /// Returns whether most bytes came from the peer.
    pub(super) fn is_reading(&self) -> bool {
        let Observation { before, after, .. } = self.observation;
        let passed = |count: fn(&TcpInfo) -> Option<u64>| {
            count(after).unwrap_or(0).saturating_sub(count(before).unwrap_or(0))
        };
        passed(|info| info.bytes_received) > passed(|info| info.bytes_acknowledged)
    }

    /// Returns the window that this end offers, bytes: as the kernel reports it, or else as the planned
    /// receive buffer or the kernel's own tuning allows.
    pub(super) fn own_window(&self) -> Option<u64> {
        let told = self.observation.after.receive_window.map(u64::from);
        let set = self.plan.receive_buffer.value.bytes();
        let tuned = self.limits.tcp_rmem.map(Autotuning::reach);
        told.or(set).or(tuned)
    }

    /// Returns the limiter of reads.
    fn limit_of_reads(&self) -> Limiter {
        const REACHED: f64 = 0.75;
        let Some(rtt) = self.link.rtt else { return Limiter::Target };
        let reaches = |bytes: u64| {
            let ceiling = Rate::of(bytes, rtt.min).mbit_per_second();
            self.goodput.mbit_per_second() >= ceiling * REACHED
        };
        let activity = &self.observation.activity;
        let planned = self.plan.read_size.value.saturating_mul(self.plan.read_depth.value.into());
        // In a round trip no more can arrive than was requested before it. Reads that come near that rate are limited
        // by the requested bytes, and more requests would raise the rate.
        let queue = activity.mean_awaited_data().filter(|mean| *mean > 0).unwrap_or(planned);
        if self.own_window().is_some_and(|window| window < queue && reaches(window)) {
            Limiter::ReceiveWindow
        } else if reaches(queue) {
            let is_limited = 2 * activity.in_flight_limit > activity.awaiting_answers();
            if is_limited { Limiter::InFlightLimit } else { Limiter::QueueDepth }
        } else {
            Limiter::Target
        }
    }

    /// Returns whether the congestion window allows more than a send buffer of fixed size holds. This is
    /// computed, because the kernel reports such a buffer as the limit only while it has no unsent data at
    /// all.
    fn is_buffer_full(&self) -> bool {
        let TcpInfo { congestion_window, send_mss, .. } = self.observation.after;
        let (Some(buffer), Some(window), Some(mss)) =
            (self.plan.send_buffer.value.bytes(), congestion_window, send_mss)
        else {
            return false;
        };
        u64::from(window) * u64::from(mss) > buffer
    }

    /// Returns why the congestion window limits the flow: loss has reduced it, or it has not grown yet.
    fn network(&self) -> Limiter {
        if self.loss().is_some_and(|loss| loss >= MIN_LOSS_FOR_BBR) {
            Limiter::Loss
        } else {
            Limiter::CongestionWindow
        }
    }

    /// Returns whether the link is full. A declared rate must be reached. An estimated rate shows nothing,
    /// because this flow itself has reached it. Then only `has_queue` can show that the link is full.
    fn is_full(&self) -> bool {
        const FULL: f64 = 0.88;
        self.link.basis == Basis::Declared
            && self.goodput.mbit_per_second() >= self.link.bandwidth.mbit_per_second() * FULL
    }

    /// Returns whether packets queue before the narrowest part of the link.
    fn has_queue(&self) -> bool {
        let least = self.link.rtt.map(|rtt| rtt.min);
        self.observation.after.has_queue(least, self.goodput)
    }

    pub(super) fn loss(&self) -> Option<f64> {
        self.observation.after.loss_since(&self.observation.before)
    }
}
