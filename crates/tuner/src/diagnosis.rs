//! What holds a running flow back, and what would lift it.
//!
//! ```text
//! the time ──┬─ something waited for the socket ──┬─ the peer's window    by the kernel's own account
//!            │                                    ├─ the send buffer
//!            │                                    └─ the congestion window: loss, or the link is full
//!            ├─ data waited for the peer to ask for it
//!            ├─ commands waited for the command window
//!            ├─ all was sent: answers were awaited, from the link or from the target
//!            └─ nothing was asked for: the source
//! ```
//!
//! What comes from the peer is its kernel's business, which this end cannot see: reads are judged by
//! their rate, against what the queue and the receive window allow in a round trip.

mod remedy;

use std::fmt;
use std::time::Duration;

use crate::bandwidth::Bandwidth;
use crate::interface::Interface;
use crate::limits::{Autotuning, Limits};
use crate::link::{Basis, Link, Measurement};
use crate::plan::{Plan, Row};
use crate::policy::LOSSY;
use crate::table;
use crate::tcp_info::TcpInfo;

/// A stretch of a running connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// How long it was.
    pub elapsed: Duration,
    /// Payload bytes that moved, both directions.
    pub bytes: u64,
    /// The connection at its beginning.
    pub before: TcpInfo,
    /// The connection at its end.
    pub after: TcpInfo,
    /// What was waited for.
    pub activity: Activity,
}

/// How often, when one looked, the connection waited for what.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Activity {
    /// Bytes waited for the socket, or unsent in it.
    pub socket: u32,
    /// Data waited for the peer to ask for it.
    pub solicitation: u32,
    /// Commands waited for the command window.
    pub command_window: u32,
    /// All was sent and on its way, and answers were awaited.
    pub answers: u32,
    /// All had arrived, and answers were awaited.
    pub target: u32,
    /// Nothing was under way.
    pub source: u32,
}

/// What a flow may be held back by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Limiter {
    /// Nothing: the link's rate is reached.
    Link,
    /// The congestion window, because segments are lost.
    Loss,
    /// The congestion window, which still grows or has found its limit.
    CongestionWindow,
    /// The send buffer.
    SendBuffer,
    /// The window that the peer offers.
    PeerWindow,
    /// Data waits until the peer asks for it.
    Solicitation,
    /// The peer takes no more commands.
    CommandWindow,
    /// The window that this end offers.
    ReceiveWindow,
    /// All that may be under way is on its way.
    QueueDepth,
    /// The peer has everything, and takes its time.
    Target,
    /// There is nothing to do: whoever hands in the work is slower.
    Source,
}

/// One thing that held a flow back.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it was.
    pub limiter: Limiter,
    /// For which share of the time, 0 to 1.
    pub share: f64,
    /// What shows it.
    pub evidence: String,
    /// What would lift it; `None` if there is nothing to lift.
    pub remedy: Option<String>,
}

/// What held a flow back during an observation.
///
/// Printed, it is a table: the first line is what to look at first.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Payload by time.
    pub goodput: Bandwidth,
    /// What held it back, the most important first.
    pub findings: Vec<Finding>,
    /// What is worth knowing besides: path MTU, offloads.
    pub remarks: Vec<Row>,
}

/// What remedies are made of.
#[derive(Debug)]
struct Context<'a> {
    observation: &'a Observation,
    link: Link,
    goodput: Bandwidth,
    plan: &'a Plan,
    limits: &'a Limits,
    measurement: &'a Measurement,
}

/// Less than this share of the time is not worth a line.
const NOTABLE: f64 = 0.02;

impl Diagnosis {
    /// Explains an observation of a connection under a plan.
    #[must_use]
    pub fn new(
        observation: &Observation,
        plan: &Plan,
        measurement: &Measurement,
        limits: &Limits,
        interface: Option<&Interface>,
    ) -> Self {
        let goodput = Bandwidth::of(observation.bytes, observation.elapsed);
        let link = plan.link;
        let context = Context { observation, link, goodput, plan, limits, measurement };
        let mut findings: Vec<_> = context
            .shares()
            .into_iter()
            .filter(|(_, share)| *share >= NOTABLE)
            .map(|(limiter, share)| context.find(limiter, share))
            .collect();
        findings.sort_by(|one, other| other.share.total_cmp(&one.share));
        Self { goodput, findings, remarks: remedy::remarks(measurement, interface) }
    }

    /// What held the flow back most; `None` if nothing was observed.
    #[must_use]
    pub fn foremost(&self) -> Option<&Finding> {
        self.findings.first()
    }

    /// The diagnosis as lines for people.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let findings = self.findings.iter().map(|finding| Row {
            name: finding.limiter.name(),
            value: format!("{:.0} %", finding.share * 100.0),
            reason: match &finding.remedy {
                Some(remedy) => format!("{}; {remedy}", finding.evidence),
                None => finding.evidence.clone(),
            },
        });
        findings.chain(self.remarks.iter().cloned()).collect()
    }
}

impl Context<'_> {
    /// Which limiter had which share of the time.
    fn shares(&self) -> Vec<(Limiter, f64)> {
        let Activity { socket, solicitation, command_window, answers, target, source } =
            self.observation.activity;
        let counts = [socket, solicitation, command_window, answers, target, source];
        let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        if total <= 0.0 {
            return Vec::new();
        }
        let share = |count: u32| f64::from(count) / total;
        if self.is_full() || self.has_queue() {
            // Whatever waits here waits for the link: a window counts as a limit also where the link
            // behind it is full.
            let link = share(socket) + share(solicitation) + share(command_window) + share(answers);
            return vec![
                (Limiter::Link, link.min(1.0)),
                (Limiter::Target, share(target)),
                (Limiter::Source, share(source)),
            ];
        }
        let mut shares = self.shares_of_socket(share(socket));
        shares.extend([
            (Limiter::Solicitation, share(solicitation)),
            (Limiter::CommandWindow, share(command_window)),
            (Limiter::Source, share(source)),
        ]);
        if self.is_reading() {
            shares.push((self.limit_of_reads(), (share(answers) + share(target)).min(1.0)));
        } else {
            shares.push((Limiter::QueueDepth, share(answers)));
            shares.push((Limiter::Target, share(target)));
        }
        shares
    }

    /// The kernel's own account of why it did not send.
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

    /// Whether most bytes came from the peer.
    fn is_reading(&self) -> bool {
        let Observation { before, after, .. } = self.observation;
        let passed = |count: fn(&TcpInfo) -> Option<u64>| {
            count(after).unwrap_or(0).saturating_sub(count(before).unwrap_or(0))
        };
        passed(|info| info.bytes_received) > passed(|info| info.bytes_acknowledged)
    }

    /// The window that this end offers, bytes: what the kernel tells, or else what its receive buffer
    /// comes to.
    fn own_window(&self) -> Option<u64> {
        let told = self.observation.after.receive_window.map(u64::from);
        let set = self.plan.receive_buffer.value.bytes();
        let tuned = self.limits.tcp_rmem.map(Autotuning::reach);
        told.or(set).or(tuned)
    }

    /// Which ceiling reads have reached.
    fn limit_of_reads(&self) -> Limiter {
        const REACHED: f64 = 0.75;
        let Some(rtt) = self.link.rtt else { return Limiter::Target };
        let reaches = |bytes: u64| {
            let ceiling = Bandwidth::of(bytes, rtt.min).mbit_per_second();
            self.goodput.mbit_per_second() >= ceiling * REACHED
        };
        let queue = self.plan.io_size.value.saturating_mul(self.plan.queue_depth.value.into());
        if self.own_window().is_some_and(|window| window < queue && reaches(window)) {
            Limiter::ReceiveWindow
        } else if reaches(queue) {
            Limiter::QueueDepth
        } else {
            Limiter::Target
        }
    }

    /// Whether the congestion window allows more than a buffer of fixed size holds. The kernel counts
    /// such a buffer as a limit only while it has nothing unsent at all.
    fn is_buffer_full(&self) -> bool {
        let TcpInfo { congestion_window, send_mss, .. } = self.observation.after;
        let (Some(buffer), Some(window), Some(mss)) =
            (self.plan.send_buffer.value.bytes(), congestion_window, send_mss)
        else {
            return false;
        };
        u64::from(window) * u64::from(mss) > buffer
    }

    /// The congestion window: cut by loss, or not yet grown.
    fn network(&self) -> Limiter {
        if self.loss().is_some_and(|loss| loss >= LOSSY) {
            Limiter::Loss
        } else {
            Limiter::CongestionWindow
        }
    }

    /// Whether the declared rate is reached. An estimate is what this very flow has reached: it shows
    /// nothing, but the queue that it stands on does.
    fn is_full(&self) -> bool {
        const FULL: f64 = 0.88;
        self.link.basis == Basis::Declared
            && self.goodput.mbit_per_second() >= self.link.bandwidth.mbit_per_second() * FULL
    }

    /// Whether packets queue before the narrowest part of the link.
    fn has_queue(&self) -> bool {
        let least = self.link.rtt.map(|rtt| rtt.min);
        self.observation.after.has_queue(least, self.goodput)
    }

    fn loss(&self) -> Option<f64> {
        self.observation.after.loss_since(&self.observation.before)
    }

    fn find(&self, limiter: Limiter, share: f64) -> Finding {
        let (evidence, remedy) = self.explain(limiter);
        Finding { limiter, share, evidence, remedy }
    }
}

impl Limiter {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "the link is full",
            Self::Loss => "loss",
            Self::CongestionWindow => "congestion window",
            Self::SendBuffer => "send buffer",
            Self::PeerWindow => "peer's window",
            Self::Solicitation => "R2T round trips",
            Self::CommandWindow => "command window",
            Self::ReceiveWindow => "receive window",
            Self::QueueDepth => "queue depth",
            Self::Target => "target",
            Self::Source => "source",
        }
    }
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(f, &self.rows())
    }
}

impl Activity {
    /// What came since an earlier count.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            socket: self.socket.saturating_sub(earlier.socket),
            solicitation: self.solicitation.saturating_sub(earlier.solicitation),
            command_window: self.command_window.saturating_sub(earlier.command_window),
            answers: self.answers.saturating_sub(earlier.answers),
            target: self.target.saturating_sub(earlier.target),
            source: self.source.saturating_sub(earlier.source),
        }
    }

    /// How often one looked.
    #[must_use]
    pub const fn total(&self) -> u32 {
        let Self { socket, solicitation, command_window, answers, target, source } = *self;
        socket
            .saturating_add(solicitation)
            .saturating_add(command_window)
            .saturating_add(answers)
            .saturating_add(target)
            .saturating_add(source)
    }
}
