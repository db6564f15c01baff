//! Finds what limited the reads, from numbers that this host can measure.
//!
//! A slow target still responds to pings immediately, but the response to a ping waits behind queued data. If the
//! data are queued in the network, TCP's acknowledgements wait as well. If the data are queued in the target's
//! socket, the acknowledgements do not wait. So the round-trip times of pings and of TCP during the reads
//! distinguish a slow target, a queue in the network, and a queue in the target's socket:
//!
//! ```text
//! goodput ──┬─ near the declared rate ───────────────────── link: it is full
//!           ├─ near bytes in flight / round trip ────────── queue: more reads could be in flight
//!           ├─ pings take no longer than without reads ─┬── target: it responds slowly
//!           │                                           └── queue, if less is in flight than planned
//!           ├─ TCP's round trip is longer as well ───────── network: data queue in it
//!           ├─ near receive window / round trip ─────────── receive window of this end
//!           └─ otherwise ────────────────────────────────── target's socket: data wait in it
//! ```

use std::time::Duration;

use iscsi_tuner::{Autotuning, Basis, LinkModel, Rate};

use crate::ceiling::rate;
use crate::facts::LinkFacts;
use crate::read_test::ReadTest;
use iscsi_tuner::Size;

/// Possible limit of the reads.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ReadLimit {
    /// The link: the declared rate is reached.
    Link,
    /// The number of reads in flight.
    Queue,
    /// The target, which takes long to execute reads.
    Target,
    /// A queue in the network.
    Network,
    /// The receive window that this host offers.
    ReceiveWindow,
    /// Data that wait in the target's socket.
    TargetSocket,
}

impl ReadLimit {
    /// Returns the name of the limit, for text and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Queue => "queue",
            Self::Target => "target",
            Self::Network => "network",
            Self::ReceiveWindow => "receive window",
            Self::TargetSocket => "target's socket",
        }
    }
}

/// The round-trip times without reads, and while reads are in flight. A time is `None` if it was not measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Trips {
    /// The round-trip time without reads.
    pub idle: Option<Duration>,
    /// The round-trip time while reads are in flight.
    pub loaded: Option<Duration>,
}

/// The measurements from which the verdict is derived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reads {
    /// The steady rate of the reads.
    pub goodput: Rate,
    /// Bytes in flight during the reads.
    pub under_way: u64,
    /// Bytes that the plan would have in flight if the target accepted any number of commands.
    pub wanted: u64,
    /// The target's command window, if it limited the number of reads in flight.
    pub full_window: Option<u32>,
    /// Round trips of pings, up to the target's response.
    pub ping: Trips,
    /// Round trips of TCP, up to the acknowledgement of the target's kernel.
    pub tcp: Trips,
    /// The largest receive window that this host offers, in bytes.
    pub window: Option<u64>,
    /// The range in which this host tunes receive buffers.
    pub tcp_rmem: Option<Autotuning>,
}

/// Share of a ceiling from which on the ceiling counts as reached.
const REACHED: f64 = 0.8;
/// Share of the link's rate from which on the link counts as full. It is less than 1 because packets also carry
/// headers.
const FULL: f64 = 0.88;
/// Queueing times below this are noise of the hosts.
const NOTABLE_QUEUE: Duration = Duration::from_millis(2);
/// Advice if the target's socket is the limit.
const SOCKET: &str = "on the target: its send buffer (net.ipv4.tcp_wmem), its congestion control, if \
                      segments are lost on the way; or a busy processor at either end";

impl Trips {
    /// Returns how much longer a round trip takes while reads are in flight.
    #[must_use]
    pub fn queue(&self) -> Duration {
        let (idle, loaded) = (self.idle.unwrap_or_default(), self.loaded.unwrap_or_default());
        loaded.saturating_sub(idle)
    }

    fn has_queue(&self) -> bool {
        self.queue() >= (self.idle.unwrap_or_default() / 4).max(NOTABLE_QUEUE)
    }
}

impl Reads {
    /// Takes the measurements from a read test, and the round trips before it. Returns `None` if nothing was
    /// read.
    #[must_use]
    pub fn of(
        test: &ReadTest,
        facts: &LinkFacts,
        tcp: Option<Duration>,
        ping: Option<Duration>,
    ) -> Option<Self> {
        Some(Self {
            goodput: test.steady()?,
            under_way: test.workload.under_way(),
            wanted: test.workload.wanted(),
            full_window: test.workload.full_window(),
            ping: Trips { idle: ping, loaded: test.loaded() },
            tcp: Trips { idle: tcp, loaded: facts.info.smoothed_rtt },
            window: facts.receive_window(),
            tcp_rmem: facts.limits.tcp_rmem,
        })
    }

    /// Returns the rate of the link, if the reads have filled the link.
    #[must_use]
    pub fn full_rate(&self, link: &LinkModel) -> Option<Rate> {
        matches!(self.limit(link), ReadLimit::Link | ReadLimit::Network).then_some(self.goodput)
    }

    /// Returns what limited the reads.
    #[must_use]
    pub fn limit(&self, link: &LinkModel) -> ReadLimit {
        if link.basis == Basis::Declared && self.reaches(link.bandwidth, FULL) {
            ReadLimit::Link
        } else if self.fills_queue() {
            ReadLimit::Queue
        } else if !self.ping.has_queue() {
            // With fewer reads in flight than planned, a slow response says little about the target's disks.
            if self.under_way < self.wanted { ReadLimit::Queue } else { ReadLimit::Target }
        } else if self.tcp.has_queue() {
            ReadLimit::Network
        } else if self.reaches_window() {
            ReadLimit::ReceiveWindow
        } else {
            ReadLimit::TargetSocket
        }
    }

    fn idle(&self) -> Duration {
        self.ping.idle.or(self.tcp.idle).unwrap_or_default()
    }

    fn fills_queue(&self) -> bool {
        self.reaches(rate(self.under_way, self.idle(), 1), REACHED)
    }

    fn reaches_window(&self) -> bool {
        let round_trip = self.tcp.idle.unwrap_or_default();
        self.window.is_some_and(|bytes| self.reaches(rate(bytes, round_trip, 1), REACHED))
    }

    fn reaches(&self, ceiling: Rate, share: f64) -> bool {
        self.goodput.mbit_per_second() >= ceiling.mbit_per_second() * share
    }

    /// Returns the verdict as the continuation of "held back by", and the advice to raise the limit.
    #[must_use]
    pub fn explain(&self, link: &LinkModel) -> (String, Option<String>) {
        let (ping, tcp) = (millis(self.ping.queue()), millis(self.tcp.queue()));
        match self.limit(link) {
            ReadLimit::Link => {
                (format!("the link: {} of the declared {}", self.goodput, link.bandwidth), None)
            }
            ReadLimit::Queue => self.explain_queue(),
            ReadLimit::Target => (
                "the target: it answers pings immediately, but not the reads".to_owned(),
                Some(SLOW.to_owned()),
            ),
            ReadLimit::Network => {
                (format!("the network: data queue on the way, for {tcp}; the link is full"), None)
            }
            ReadLimit::ReceiveWindow => {
                let window = self.window.unwrap_or_default();
                (self.all_there_is("receive window", window), Some(self.larger_window(link)))
            }
            ReadLimit::TargetSocket => {
                let verdict = format!("the target's socket: data wait in it, for {ping}");
                (verdict, Some(SOCKET.to_owned()))
            }
        }
    }

    fn explain_queue(&self) -> (String, Option<String>) {
        let mut verdict = if self.fills_queue() {
            self.all_there_is("queue", self.under_way)
        } else {
            let (under_way, wanted) = (Size(self.under_way), Size(self.wanted));
            format!("the queue: {under_way} in flight, where the plan wants {wanted}")
        };
        let Some(window) = self.full_window else { return (verdict, Some(DEEPER.to_owned())) };
        verdict += &format!("; the command window of {window} is full");
        (verdict, Some(WIDER.to_owned()))
    }

    fn all_there_is(&self, what: &str, bytes: u64) -> String {
        let round_trip = millis(self.idle());
        format!("the {what}: {} in {round_trip}, no more can arrive", Size(bytes))
    }

    fn larger_window(&self, link: &LinkModel) -> String {
        let larger = self.window.unwrap_or_default().saturating_mul(2);
        let range = self.tcp_rmem.unwrap_or(Autotuning::STOCK_RECEIVE);
        let range = range.reaching(link.max_benefit().max(larger));
        format!("on this host: sysctl -w net.ipv4.tcp_rmem=\"{range}\"")
    }
}

const DEEPER: &str = "keep more reads in flight: a larger --depth";
const WIDER: &str = "on the target: a wider command window (LIO: default_cmdsn_depth)";
const SLOW: &str = "look at its disks and its processor";

/// Returns a time in milliseconds as readable text. Short times have more digits.
pub(crate) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.1} ms") }
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::Tuning;
    use iscsi_tuner::{Measurement, Rtt};

    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn link(declared: Option<&str>) -> LinkModel {
        let mut measurement = Measurement::default();
        measurement.rtt = Rtt::of([RTT; 10]);
        let tuning = Tuning::default().with_bandwidth(declared.map(|text| text.parse().unwrap()));
        LinkModel::new(&measurement, &tuning)
    }

    /// Returns the measurements of reads. They have 10 MB in flight, which allow 800 Mbit/s at 100 ms, and a
    /// receive window of 6 MB, which allows 480 Mbit/s.
    fn reads(goodput: &str, ping: u64, tcp: u64) -> Reads {
        let trips = |loaded| Trips { idle: Some(RTT), loaded: Some(Duration::from_millis(loaded)) };
        Reads {
            goodput: goodput.parse().unwrap(),
            under_way: 10_000_000,
            wanted: 10_000_000,
            full_window: None,
            ping: trips(ping),
            tcp: trips(tcp),
            window: Some(6_000_000),
            tcp_rmem: Some(Autotuning { min: 1, default: 2, max: 12_000_000 }),
        }
    }

    #[test]
    fn a_declared_rate_that_is_reached_is_the_link() {
        assert_eq!(reads("93mbit", 900, 200).limit(&link(Some("100mbit"))), ReadLimit::Link);
        assert_eq!(reads("87mbit", 900, 200).limit(&link(Some("100mbit"))), ReadLimit::Network);
        // An assumed rate of the link is no evidence, so the link is not the limit.
        assert_ne!(reads("990mbit", 900, 200).limit(&link(None)), ReadLimit::Link);
    }

    #[test]
    fn what_is_under_way_is_a_limit_before_any_queue() {
        let queue = reads("700mbit", 101, 101);
        assert_eq!(queue.limit(&link(None)), ReadLimit::Queue);
        let (verdict, remedy) = queue.explain(&link(None));
        assert_eq!(verdict, "the queue: 9.5 MiB in 100.0 ms, no more can arrive");
        assert!(remedy.unwrap().contains("--depth"));
    }

    #[test]
    fn a_target_that_has_too_little_to_do_is_not_blamed() {
        let shallow = Reads { under_way: 1 << 20, wanted: 8 << 20, ..reads("9mbit", 101, 101) };
        assert_eq!(shallow.limit(&link(None)), ReadLimit::Queue);
        let (verdict, remedy) = shallow.explain(&link(None));
        assert_eq!(verdict, "the queue: 1 MiB in flight, where the plan wants 8 MiB");
        assert!(remedy.unwrap().contains("--depth"));
        // If data are queued although few reads are in flight, more reads would only make the queue longer.
        let queued = Reads { ping: reads("9mbit", 890, 260).ping, ..shallow };
        assert_eq!(queued.limit(&link(None)), ReadLimit::TargetSocket);
    }

    #[test]
    fn a_full_command_window_is_named() {
        let narrow = Reads { full_window: Some(4), ..reads("700mbit", 101, 101) };
        let few = Reads {
            wanted: 20_000_000,
            ..Reads { goodput: reads("9mbit", 0, 0).goodput, ..narrow }
        };
        for reads in [narrow, few] {
            assert_eq!(reads.limit(&link(None)), ReadLimit::Queue);
            let (verdict, remedy) = reads.explain(&link(None));
            assert!(verdict.ends_with("; the command window of 4 is full"), "{verdict}");
            assert!(remedy.is_some_and(|remedy| remedy.contains("command window")));
        }
    }

    #[test]
    fn two_round_trips_tell_three_places_apart() {
        assert_eq!(reads("90mbit", 101, 101).limit(&link(None)), ReadLimit::Target);
        assert_eq!(reads("90mbit", 890, 260).limit(&link(None)), ReadLimit::Network);
        assert_eq!(reads("90mbit", 890, 101).limit(&link(None)), ReadLimit::TargetSocket);
        let explained = |ping, tcp| reads("90mbit", ping, tcp).explain(&link(None)).0;
        assert!(explained(890, 260).contains("for 160.0 ms; the link is full"));
        assert!(explained(890, 101).contains("data wait in it, for 790.0 ms"));
    }

    #[test]
    fn only_a_full_link_tells_its_rate() {
        let full =
            |reads: Reads, link: &LinkModel| reads.full_rate(link).map(|rate| rate.to_string());
        assert_eq!(full(reads("90mbit", 890, 260), &link(None)).as_deref(), Some("90 Mbit/s"));
        assert_eq!(
            full(reads("93mbit", 890, 260), &link(Some("100mbit"))).as_deref(),
            Some("93 Mbit/s")
        );
        assert_eq!(full(reads("90mbit", 890, 101), &link(None)), None);
    }

    #[test]
    fn a_ping_that_was_not_answered_shows_no_queue() {
        let unanswered =
            Reads { ping: Trips { idle: Some(RTT), loaded: None }, ..reads("90mbit", 0, 101) };
        assert_eq!(unanswered.limit(&link(None)), ReadLimit::Target);
    }

    #[test]
    fn the_own_window_is_told_by_its_size() {
        let narrow = reads("450mbit", 890, 101);
        assert_eq!(narrow.limit(&link(None)), ReadLimit::ReceiveWindow);
        let (_, remedy) = narrow.explain(&link(Some("10gbit")));
        let wanted = link(Some("10gbit")).max_benefit() * 2;
        assert!(remedy.unwrap().contains(&format!("tcp_rmem=\"1 2 {wanted}\"")));
        // The window is as large as the link needs, and is the limit anyway: the advice is to double it.
        let (_, remedy) = narrow.explain(&link(None));
        assert!(remedy.unwrap().contains("tcp_rmem=\"1 2 24000000\""));
    }

    #[test]
    fn nothing_measured_is_survived() {
        let nothing = Trips::default();
        let reads = Reads { ping: nothing, tcp: nothing, window: None, ..reads("90mbit", 0, 0) };
        assert_eq!(reads.limit(&link(None)), ReadLimit::Target);
    }
}
