//! Calculates the rates that writes can reach. Nothing is written.
//!
//! A write takes one round trip for its command and the unsolicited data, and one for each round of bursts that
//! the target then requests ([`TransferTerms::round_trips`]). The round trips and the limits of the bytes in
//! flight determine the rates.

use std::time::Duration;

use iscsi_initiator::Negotiated;
use iscsi_tuner::{Autotuning, Basis, Limits, LinkModel, Plan, Rate, TransferTerms};

use crate::ceiling::{Ceiling, Limit, lowest, rate};
use crate::facts::LinkFacts;
use crate::lio::{MAX_BURST, MAX_WINDOW, PortalGroup};
use iscsi_tuner::Size;

/// The rates that writes can reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Writes {
    /// Bytes of one write.
    pub io_size: u64,
    /// Writes in flight.
    pub depth: u32,
    /// Number of round trips of one write.
    pub round_trips: u64,
    /// The time of one round trip, up to the target's response.
    pub round_trip: Duration,
    /// The rate with one write in flight.
    pub one_at_a_time: Rate,
    /// The rate that each limit allows. The limits are in the order in which the data pass them.
    pub ceilings: Vec<Ceiling>,
}

/// The inputs of the calculation.
#[derive(Debug)]
pub struct Question<'a> {
    /// The link and the plan for it.
    pub facts: &'a LinkFacts,
    /// The parameters agreed at login.
    pub negotiated: &'a Negotiated,
    /// The terms of transfers that follow from the agreed parameters.
    pub terms: TransferTerms,
    /// Bytes of one write, and the number of writes in flight.
    pub workload: (u64, u32),
    /// The round trip up to the target's response, if it was measured. Otherwise TCP's round trip is used.
    pub answer: Option<Duration>,
    /// The rate of the link, if the reads have filled the link.
    pub full_rate: Option<Rate>,
    /// The target's portal group, for the commands that change its settings.
    pub portal_group: PortalGroup,
}

/// The largest TCP window without scaling (RFC 7323 §2).
const UNSCALED: u64 = 65_535;

impl Writes {
    /// Calculates the rates of writes.
    #[must_use]
    pub fn new(question: &Question<'_>) -> Self {
        let (io_size, depth) = question.workload;
        let round_trips = question.round_trips();
        let round_trip = question.round_trip();
        Self {
            io_size,
            depth,
            round_trips,
            round_trip,
            one_at_a_time: rate(io_size, round_trip, round_trips),
            ceilings: question.ceilings(),
        }
    }

    /// Returns the time of one write at an unlimited rate: its round trips.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.round_trip.saturating_mul(u32::try_from(self.round_trips).unwrap_or(u32::MAX))
    }

    /// Returns the lowest ceiling. It must be raised first.
    #[must_use]
    pub fn lowest(&self) -> Option<&Ceiling> {
        lowest(&self.ceilings)
    }
}

impl Question<'_> {
    fn link(&self) -> &LinkModel {
        &self.facts.plan.link
    }

    fn round_trips(&self) -> u64 {
        self.terms.round_trips(self.workload.0)
    }

    fn round_trip(&self) -> Duration {
        self.answer.unwrap_or_else(|| self.link().round_trip())
    }

    fn ceilings(&self) -> Vec<Ceiling> {
        let own = [Some(self.queue()), self.command_window()];
        let tcp = [Some(self.send_buffer()), self.unscaled_window(), self.loss()];
        let link = [Some(link_ceiling(self.link(), self.full_rate))];
        own.into_iter().chain(tcp).chain(link).flatten().collect()
    }

    /// Returns the ceiling that follows from the number of writes in flight.
    fn queue(&self) -> Ceiling {
        let ((io_size, depth), trips) = (self.workload, self.round_trips());
        let under_way = io_size.saturating_mul(depth.into());
        let each = if trips == 1 {
            "one round trip each".to_owned()
        } else {
            format!("{trips} round trips each")
        };
        Ceiling {
            limit: Limit::Queue,
            rate: rate(under_way, self.round_trip(), trips),
            because: format!("{depth} writes of {} in flight, {each}", Size(io_size)),
            remedy: self.fewer_round_trips().or_else(|| self.deeper_queue()),
        }
    }

    /// Returns the advice to set keys so that a write of this size takes one round trip. Keys that are set
    /// already are omitted.
    fn fewer_round_trips(&self) -> Option<String> {
        if self.round_trips() == 1 {
            return None;
        }
        let burst = self.workload.0.min(MAX_BURST);
        let agreed = self.negotiated;
        let mut keys = Vec::new();
        if agreed.initial_r2t {
            keys.push(("InitialR2T", "No".to_owned()));
        }
        for (name, value) in [
            ("MaxBurstLength", agreed.max_burst_length),
            ("FirstBurstLength", agreed.first_burst_length),
        ] {
            if u64::from(value) < burst {
                keys.push((name, burst.to_string()));
            }
        }
        let command = self.portal_group.set_keys(&keys);
        Some(format!("on LIO: {command}; then a write takes one round trip"))
    }

    fn deeper_queue(&self) -> Option<String> {
        let (depth, wanted) = (u64::from(self.workload.1), self.commands_wanted());
        match self.terms.window.map(u64::from) {
            Some(window) if depth >= window => self.wider_window(window),
            _ => Some(format!(
                "allow more writes in flight: a queue depth of {}",
                wanted.max(depth + 1)
            )),
        }
    }

    fn command_window(&self) -> Option<Ceiling> {
        let window = self.terms.window?;
        let under_way = self.workload.0.saturating_mul(window.into());
        Some(Ceiling {
            limit: Limit::CommandWindow,
            rate: rate(under_way, self.round_trip(), self.round_trips()),
            because: format!("the target accepts {window} commands"),
            remedy: self.wider_window(window.into()),
        })
    }

    fn wider_window(&self, window: u64) -> Option<String> {
        let wanted = self.commands_wanted().max(window.saturating_mul(2));
        if window >= MAX_WINDOW {
            return Some(
                "longer writes, or more sessions: no LIO accepts more commands".to_owned(),
            );
        }
        let command = self.portal_group.set_window(wanted);
        Some(format!(
            "on LIO: {command} (for an initiator with an entry of its own: cmdsn_depth there); or \
             longer writes, or more sessions"
        ))
    }

    /// Returns the number of commands in flight that fill the link.
    fn commands_wanted(&self) -> u64 {
        let rate = link_ceiling(self.link(), self.full_rate).rate;
        let busy = rate.bytes_in(self.round_trip());
        busy.saturating_mul(self.round_trips()).div_ceil(self.workload.0.max(1)).max(1)
    }

    fn send_buffer(&self) -> Ceiling {
        let link = self.link();
        let (bytes, because) = self.facts.send_buffer();
        Ceiling {
            limit: Limit::SendBuffer,
            rate: rate(bytes, link.round_trip(), 1),
            because,
            remedy: Some(larger_send_buffer(&self.facts.plan, &self.facts.limits)),
        }
    }

    fn unscaled_window(&self) -> Option<Ceiling> {
        let is_unscaled = self.facts.info.window_scaling == Some(false);
        is_unscaled.then(|| {
            Ceiling {
            limit: Limit::UnscaledWindow,
            rate: rate(UNSCALED, self.link().round_trip(), 1),
            because: "no more than 64 KiB are in flight without window scaling".to_owned(),
            remedy: Some(
                "sysctl -w net.ipv4.tcp_window_scaling=1 on both ends, and a firewall between them \
                 that lets the option pass"
                    .to_owned(),
            ),
        }
        })
    }

    fn loss(&self) -> Option<Ceiling> {
        let uses = self.facts.granted.congestion_control.as_deref();
        if uses == Some(BBR) {
            return None;
        }
        let is_bbr = |name: &String| name == BBR;
        let remedy = if self.facts.limits.allowed_congestion_controls.iter().any(is_bbr) {
            "--congestion bbr, or more sessions".to_owned()
        } else {
            "modprobe tcp_bbr and --congestion bbr, or more sessions".to_owned()
        };
        Some(Ceiling {
            limit: Limit::Loss,
            rate: self.link().loss_ceiling()?,
            because: format!("{:.3} % of the segments are lost", self.link().loss * 100.0),
            remedy: Some(remedy),
        })
    }
}

/// Name of a congestion control that does not take a lost segment for a sign of a full queue.
const BBR: &str = "bbr";

/// Returns the ceiling of the link itself: the declared rate, the rate that the reads have reached, or the
/// assumed rate.
#[must_use]
pub fn link_ceiling(link: &LinkModel, full_rate: Option<Rate>) -> Ceiling {
    let (rate, because, remedy) = match (link.basis, full_rate) {
        (Basis::Declared, _) => (link.bandwidth, "as declared by --bandwidth", None),
        (_, Some(full)) => {
            (full, "what reads filled it with; the other way may differ", Some(DECLARE))
        }
        (Basis::Estimated, None) => {
            (link.bandwidth, "what arrived while a queue stood", Some(DECLARE))
        }
        (Basis::Assumed, None) => {
            (link.bandwidth, "only assumed, as most links are no faster", Some(DECLARE))
        }
    };
    let (because, remedy) = (because.to_owned(), remedy.map(str::to_owned));
    Ceiling { limit: Limit::Link, rate, because, remedy }
}

const DECLARE: &str = "say its rate with --bandwidth, if you know it";

/// Returns the advice that lets the send buffer grow to the size that the link needs.
fn larger_send_buffer(plan: &Plan, limits: &Limits) -> String {
    let range = limits.tcp_wmem.unwrap_or(Autotuning::STOCK_SEND);
    let wanted = plan.link.max_benefit();
    if range.reach() >= wanted {
        return "--tune auto leaves it to the kernel, which reaches further".to_owned();
    }
    format!("sysctl -w net.ipv4.tcp_wmem=\"{}\"", range.reaching(wanted))
}

#[cfg(test)]
mod tests;
