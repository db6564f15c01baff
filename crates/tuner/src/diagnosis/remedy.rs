//! Describes the evidence for a limiter, and the exact setting that lifts the limit.

use std::time::Duration;

use super::flow::ObservedFlow;
use super::limiter::Limiter;
use super::observation::OwnLimits;
use crate::interface::{Interface, Offload};
use crate::limits::{Autotuning, BBR};
use crate::link::model::Measurement;
use crate::plan::Buffer;
use crate::size::Size;
use crate::table::Row;

/// Longest command window that the Linux target accepts, commands.
const MAX_COMMANDS: u64 = 512;

impl ObservedFlow<'_> {
    pub(super) fn explain(&self, limiter: Limiter) -> (String, Option<String>) {
        match limiter {
            Limiter::Link => (self.full(), None),
            Limiter::Loss => self.lossy(),
            Limiter::CongestionWindow => (self.window(), None),
            Limiter::SendBuffer => self.send_buffer(),
            Limiter::PeerWindow => self.peer_window(),
            Limiter::Solicitation => self.solicitation(),
            Limiter::CommandWindow => self.command_window(),
            Limiter::QueueDepth => self.queue_depth(),
            Limiter::ReceiveWindow => self.receive_window(),
            Limiter::Target if self.is_reading() => (
                format!("its data come with {}", self.goodput),
                Some(
                    "look at its disks, its processor, its net.ipv4.tcp_wmem, and at loss on the way"
                        .to_owned(),
                ),
            ),
            Limiter::Target => (
                "it has all the data and has not answered".to_owned(),
                Some("look at its disks and its processor".to_owned()),
            ),
            Limiter::Class => self.class(),
            Limiter::InFlightLimit => self.in_flight_limit(),
            Limiter::Source => (
                "there was nothing to write".to_owned(),
                Some("read the source faster, or read ahead further".to_owned()),
            ),
            Limiter::Destination => (
                "no read was asked for".to_owned(),
                Some("write to the destination faster".to_owned()),
            ),
        }
    }

    fn class(&self) -> (String, Option<String>) {
        let evidence = match self.observation.limits.rate {
            Some(rate) => format!("requests waited in their class, which lets {rate} pass at most"),
            None => "requests waited in their class".to_owned(),
        };
        let remedy = "raise its limit (--rate-limit), or the ceil of a class above it";
        (evidence, Some(remedy.to_owned()))
    }

    fn in_flight_limit(&self) -> (String, Option<String>) {
        let OwnLimits { requests, bytes, .. } = self.observation.limits;
        let limits = [
            requests.map(|requests| match requests {
                1 => "1 request".to_owned(),
                more => format!("{more} requests"),
            }),
            bytes.map(|bytes| format!("{} of data", Size(bytes))),
        ];
        let limits: Vec<_> = limits.into_iter().flatten().collect();
        let evidence = if limits.is_empty() {
            "further requests waited for those in flight".to_owned()
        } else {
            format!("further requests waited: {} may be in flight", limits.join(" and "))
        };
        (evidence, Some("raise max_requests or max_bytes_in_flight of the options".to_owned()))
    }

    fn full(&self) -> String {
        let queue = self
            .observation
            .after
            .smoothed_rtt
            .zip(self.link.rtt)
            .map(|(now, rtt)| now.saturating_sub(rtt.min));
        match queue.filter(|queue| *queue >= Duration::from_millis(1)) {
            Some(queue) => format!(
                "{} arrive, {:.0} ms of data queue before its narrowest part",
                self.goodput,
                queue.as_secs_f64() * 1e3
            ),
            None => format!("{} of {} arrive", self.goodput, self.link.bandwidth),
        }
    }

    fn lossy(&self) -> (String, Option<String>) {
        let percent = self.loss().unwrap_or_default() * 100.0;
        let is = |name: &String| name == BBR;
        let chosen = self.plan.congestion_control.value.as_ref();
        let remedy = if chosen.or(self.limits.congestion_control.as_ref()).is_some_and(is) {
            "more connections share the loss"
        } else if self.limits.allowed_congestion_controls.iter().any(is) {
            "--congestion bbr does not take loss for a full queue"
        } else {
            "more connections share the loss, and modprobe tcp_bbr may bring a congestion control \
             that copes"
        };
        (format!("{percent:.3} % of the segments were sent again"), Some(remedy.to_owned()))
    }

    fn window(&self) -> String {
        let after = &self.observation.after;
        let (Some(segments), Some(mss)) = (after.congestion_window, after.send_mss) else {
            return "the kernel held data back and does not tell why".to_owned();
        };
        let in_flight = u64::from(segments).saturating_mul(mss.into());
        let phase = match after.slow_start_threshold {
            None => "it still doubles every round trip",
            Some(_) => "it has met a loss before and grows slowly",
        };
        format!("{} may be in flight; {phase}", Size(in_flight))
    }

    fn send_buffer(&self) -> (String, Option<String>) {
        let range = self.limits.tcp_wmem.unwrap_or(Autotuning::STOCK_SEND);
        // Autotuning has reached its largest permitted size, so that size must grow.
        let (evidence, least) = match self.plan.send_buffer.value {
            Buffer::Autotuned => ("the kernel's tuning has reached its end".to_owned(), range.max),
            Buffer::Set(bytes) | Buffer::Forced(bytes) => {
                (format!("{} are not enough", Size(bytes)), 0)
            }
        };
        let range = range.reaching(self.link.max_benefit().max(least));
        let remedy =
            format!("sysctl -w net.ipv4.tcp_wmem=\"{range}\" and --tune auto, or more connections");
        (evidence, Some(remedy))
    }

    fn peer_window(&self) -> (String, Option<String>) {
        let window = self.observation.after.peer_window.map(u64::from);
        // The window that the peer offered was the limit, so the advice is at least twice that window.
        let need = self.link.max_benefit().max(window.unwrap_or(0).saturating_mul(2));
        // The target's present maximum is unknown, so the need alone sets `max`.
        let range = Autotuning { max: 0, ..Autotuning::STOCK_RECEIVE }.reaching(need);
        let evidence = match window {
            Some(window) => format!("the peer takes {} at a time", Size(window)),
            None => "its window was full".to_owned(),
        };
        let remedy =
            format!("on the target: sysctl -w net.ipv4.tcp_rmem=\"{range}\"; or more connections");
        (evidence, Some(remedy))
    }

    fn receive_window(&self) -> (String, Option<String>) {
        let window = self.own_window().unwrap_or(0);
        let need = self.link.max_benefit().max(window.saturating_mul(2));
        let range = self.limits.tcp_rmem.unwrap_or(Autotuning::STOCK_RECEIVE).reaching(need);
        let remedy = format!("sysctl -w net.ipv4.tcp_rmem=\"{range}\"; or more connections");
        (format!("this end takes {} at a time", Size(window)), Some(remedy))
    }

    fn solicitation(&self) -> (String, Option<String>) {
        let Some(terms) = self.measurement.terms else {
            return ("data waited for an R2T".to_owned(), None);
        };
        let io_size = self.plan.io_size.value;
        let trips = terms.round_trips(io_size);
        let evidence =
            format!("a write of {} waits for its R2Ts in {trips} round trips", Size(io_size));
        // FirstBurstLength must not exceed MaxBurstLength (RFC 7143 §13.14).
        let burst = terms.burst.max(io_size);
        let remedy = format!(
            "on the target, InitialR2T=No, FirstBurstLength={io_size} and MaxBurstLength={burst} \
             (LIO: param/ of the portal group)"
        );
        (evidence, (trips > 1).then_some(remedy))
    }

    fn command_window(&self) -> (String, Option<String>) {
        let window = self.measurement.terms.and_then(|terms| terms.window).unwrap_or(1);
        let trips =
            self.measurement.terms.map_or(1, |terms| terms.round_trips(self.plan.io_size.value));
        let wanted = self
            .link
            .max_benefit()
            .saturating_mul(trips)
            .div_ceil(self.plan.io_size.value.max(1))
            .max(u64::from(window) * 2)
            .min(MAX_COMMANDS);
        let evidence = format!("the target takes {window} commands at a time");
        let remedy = if wanted > window.into() {
            format!(
                "longer ones (--io-size), more sessions, or on the target a window of {wanted} (LIO: \
                 attrib/default_cmdsn_depth)"
            )
        } else {
            "longer ones (--io-size), or more sessions".to_owned()
        };
        (evidence, Some(remedy))
    }

    fn queue_depth(&self) -> (String, Option<String>) {
        let plan = self.plan;
        let is_reading = self.is_reading();
        let depth = if is_reading { &plan.read_depth } else { &plan.queue_depth };
        // The number of reads that were in flight, if it is known: the caller may have used fewer than the plan
        // has.
        let were = self.observation.activity.mean_awaited_data().filter(|_| is_reading);
        let were = were.map(|bytes| bytes.div_ceil(plan.read_size.value.max(1)));
        let depth = were.filter(|were| *were > 0).unwrap_or(u64::MAX).min(depth.value.into());
        let evidence = "all that was handed in is on its way".to_owned();
        (evidence, Some(format!("allow more requests in flight (--queue-depth above {depth})")))
    }
}

/// Returns remarks about the path MTU and the offloads of the interface, independent of the limiter.
pub(super) fn remarks(measurement: &Measurement, interface: Option<&Interface>) -> Vec<Row> {
    let mut rows = Vec::new();
    let own = interface.and_then(|interface| interface.mtu);
    if let Some(mtu) = measurement.path_mtu {
        rows.push(Row {
            name: "path MTU",
            value: format!("{mtu} bytes"),
            reason: match (own, measurement.segment_limit) {
                (_, Some(limit)) => format!("as this end believes; {}", limit.reason()),
                (Some(own), None) if mtu < own.min(1500) => {
                    format!("less than the {own} of this end: a tunnel on the way? each segment costs more")
                }
                (Some(own), None) if mtu <= 1500 && own > 1500 => {
                    format!("this end could send {own}: jumbo frames need every part of the path")
                }
                (_, None) => "as long as both ends and the path take".to_owned(),
            },
        });
    }
    let Some(interface) = interface else { return rows };
    rows.push(offloads(interface));
    rows
}

fn offloads(interface: &Interface) -> Row {
    let active = interface.offload.names_of_active();
    let name = &interface.name;
    let (value, reason) = if interface.offload == Offload::default() {
        ("unknown".to_owned(), format!("{name} does not tell"))
    } else if active.is_empty() {
        ("none".to_owned(), format!("of {name}; each segment is work for this processor"))
    } else {
        let off: Vec<_> = active.iter().map(|name| format!("{name} off")).collect();
        let reason = format!(
            "of {name}; on a virtual interface they may cost throughput: compare with ethtool -K \
             {name} {}",
            off.join(" ")
        );
        (active.join(" "), reason)
    };
    Row { name: "offloads", value, reason }
}
