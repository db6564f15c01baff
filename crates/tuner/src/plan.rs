//! Holds a plan: each number with its reason.
//!
//! Design: `docs/design/tuner.md`.

use std::fmt;

use crate::limits::{BBR, Limits};
use crate::link::model::LinkModel;
use crate::size::Size;
use crate::table::{self, Row};
use crate::transfers::{TransferQueue, TransferTerms};
use crate::tuning::{Policy, Sends};

/// A value and its reason.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Choice<T> {
    /// The value.
    pub value: T,
    /// The reason, as a sentence without its full stop.
    pub reason: String,
}

impl<T> Choice<T> {
    pub(crate) fn new(value: T, reason: impl Into<String>) -> Self {
        Self { value, reason: reason.into() }
    }
}

/// Ways to size a socket buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Buffer {
    /// The kernel tunes the size; no option is set.
    Autotuned,
    /// A set size, bytes of data: no more than any user may request (`SO_SNDBUF`, `SO_RCVBUF`).
    Set(u64),
    /// A set size, bytes of data: more than any user may request (`SO_SNDBUFFORCE`, `SO_RCVBUFFORCE`).
    Forced(u64),
}

/// The terms of transfers to propose to the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TransferOffer {
    /// Whether the peer must request the first bytes of a write (InitialR2T).
    pub initial_request: bool,
    /// Bytes of a write that are sent unsolicited (FirstBurstLength).
    pub first_burst: u32,
    /// Bytes that the peer may request with one R2T (MaxBurstLength).
    pub burst: u32,
    /// The number of bursts that may be outstanding for one write (MaxOutstandingR2T).
    pub bursts_at_once: u16,
}

/// The decisions of the tuner, each with its reason.
///
/// Its `Display` output is a table of names, values and reasons.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The policy that made the decisions.
    pub policy: Policy,
    /// The link that the plan is made for.
    pub link: LinkModel,
    /// The send buffer of each connection.
    pub send_buffer: Choice<Buffer>,
    /// The receive buffer of each connection. It takes effect only if it is set before the connection is made.
    pub receive_buffer: Choice<Buffer>,
    /// Whether small segments are sent immediately (`TCP_NODELAY`), or wait for an acknowledgement (Nagle).
    #[doc(alias = "nagle")]
    pub no_delay: Choice<bool>,
    /// How much data is passed in one system call.
    pub sends: Choice<Sends>,
    /// Whether a system call tells the kernel that more data follows (`MSG_MORE`), so that no short segment
    /// is sent between two calls.
    pub cork: Choice<bool>,
    /// Largest number of bytes passed in one system call, where a few long pieces fill it; `None` is as many
    /// as the kernel takes. A list of pages is always passed as a whole.
    pub send_size: Choice<Option<u32>>,
    /// Largest number of bytes that may wait unsent in the kernel (`TCP_NOTSENT_LOWAT`); `None` is the whole
    /// send buffer.
    pub not_sent_low_water: Choice<Option<u32>>,
    /// Largest number of bytes to wait for before the socket becomes readable, 16 to 256 KiB
    /// ([`set_receive_low_water`](crate::set_receive_low_water)), while the rest of a data segment, or several
    /// answers, are awaited; `None` sets no limit. The reader of the socket sets the option: to
    /// at most the bytes that it awaits, and to 1 in any other state.
    pub receive_low_water: Choice<Option<u32>>,
    /// The congestion control; `None` is the kernel's own choice.
    pub congestion_control: Choice<Option<String>>,
    /// Longest segment in both directions, bytes of payload and TCP options (`TCP_MAXSEG`); `None` is as long
    /// as both kernels take. It takes effect only if it is set before the connection is made.
    pub segment: Choice<Option<u32>>,
    /// The number of connections that the link needs, 1 to 16.
    pub connections: Choice<u32>,
    /// The terms of transfers that the plan assumes.
    pub terms: TransferTerms,
    /// Bytes that each connection should have in flight: the capacity of the link, as far as the buffers of a
    /// single connection allow.
    pub in_flight: u64,
    /// Length of a write, or of a transfer where data is both read and written, bytes.
    pub io_size: Choice<u64>,
    /// Writes in flight on each connection.
    #[doc(alias("concurrent", "in flight"))]
    pub queue_depth: Choice<u32>,
    /// Length of a read where nothing is written, bytes.
    pub read_size: Choice<u64>,
    /// Reads in flight on each connection.
    pub read_depth: Choice<u32>,
    /// The terms of transfers to propose to the peer.
    pub offer: Choice<TransferOffer>,
}

impl Plan {
    /// Returns the number of transfers of `io_size` bytes that should be in flight. It is enough for reads,
    /// for writes, and for both together.
    #[must_use]
    pub fn depth_for(&self, io_size: u64) -> u32 {
        let queue = self.terms.queue_of(io_size, self.link.traits(self.in_flight));
        u32::try_from(queue.depth).unwrap_or(u32::MAX)
    }

    /// Returns the number of reads of `io_size` bytes that should be in flight, where all transfers are
    /// reads: each takes one round trip.
    #[must_use]
    pub fn read_depth_for(&self, io_size: u64) -> u32 {
        let queue = self.terms.of_reads().queue_of(io_size, self.link.traits(self.in_flight));
        u32::try_from(queue.depth).unwrap_or(u32::MAX)
    }

    /// Returns the number of writes of `io_size` bytes that should be in flight, with its reason.
    #[must_use]
    pub fn queue_depth_for(&self, io_size: u64) -> Choice<u32> {
        let queue = self.terms.queue_of(io_size, self.link.traits(self.in_flight));
        queue_depth(&self.terms, &queue)
    }

    /// Returns whether the congestion control does not treat a lost segment as a sign of a full queue (BBR).
    /// The congestion control is that of the plan, or else the kernel's default in `limits`. The window of BBR
    /// is about twice what the link holds.
    #[must_use]
    pub fn copes_with_loss(&self, limits: &Limits) -> bool {
        let in_force = self.congestion_control.value.as_ref();
        in_force.or(limits.congestion_control.as_ref()).is_some_and(|name| name == BBR)
    }

    /// Returns the plan as table rows, the most important first. The longest segment has a row only if it is
    /// limited.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let link = Row {
            name: "link",
            value: self.link.bandwidth.to_string(),
            reason: self.link.describe(),
        };
        let rtt = self.link.rtt.map_or_else(|| "unknown".to_owned(), |rtt| rtt.to_string());
        let policy = Row { name: "policy", value: self.policy.to_string(), reason: rtt };
        let segment = self.segment.value.is_some().then(|| {
            row("longest segment", &self.segment, |bytes| {
                bytes.map_or_else(|| "the kernel's".to_owned(), |bytes| format!("{bytes} bytes"))
            })
        });
        let rows = vec![
            policy,
            link,
            row("send buffer", &self.send_buffer, Buffer::to_string),
            row("receive buffer", &self.receive_buffer, Buffer::to_string),
            row("small segments", &self.no_delay, |no_delay| {
                if *no_delay { "immediately" } else { "Nagle" }.to_owned()
            }),
            row("sends", &self.sends, |sends| {
                match sends {
                    Sends::OnePage => "one page",
                    Sends::ManyPages => "many pages",
                }
                .to_owned()
            }),
            row("cork", &self.cork, |cork| if *cork { "on" } else { "off" }.to_owned()),
            row("send size", &self.send_size, bytes_or_none),
            row("not-sent low water", &self.not_sent_low_water, bytes_or_none),
            row("receive low water", &self.receive_low_water, bytes_or_none),
            row("congestion control", &self.congestion_control, |name| {
                name.clone().unwrap_or_else(|| "the kernel's".to_owned())
            }),
            row("connections", &self.connections, u32::to_string),
            row("I/O size", &self.io_size, |bytes| Size(*bytes).to_string()),
            row("queue depth", &self.queue_depth, u32::to_string),
            row("read size", &self.read_size, |bytes| Size(*bytes).to_string()),
            row("read depth", &self.read_depth, u32::to_string),
            row("offer", &self.offer, TransferOffer::to_string),
        ];
        rows.into_iter().chain(segment).collect()
    }
}

/// Returns the number of transfers that should be in flight, with its reason.
pub(crate) fn queue_depth(terms: &TransferTerms, queue: &TransferQueue) -> Choice<u32> {
    let depth = u32::try_from(queue.depth).unwrap_or(u32::MAX);
    let mut reason = queue.describe();
    if terms.window.is_some_and(|window| window <= depth) {
        reason.push_str(", all that the peer accepts");
    } else {
        reason.push_str(&format!(", {} on the link", Size(queue.in_flight())));
    }
    Choice::new(depth, reason)
}

fn bytes_or_none(bytes: &Option<u32>) -> String {
    bytes.map_or_else(|| "none".to_owned(), |bytes| Size(bytes.into()).to_string())
}

fn row<T>(name: &'static str, choice: &Choice<T>, show: impl Fn(&T) -> String) -> Row {
    Row { name, value: show(&choice.value), reason: choice.reason.clone() }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(f, &self.rows())
    }
}

impl Buffer {
    /// Returns the size in bytes; `None` for a buffer that the kernel tunes.
    #[must_use]
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Autotuned => None,
            Self::Set(bytes) | Self::Forced(bytes) => Some(bytes),
        }
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Autotuned => f.write_str("autotuned"),
            Self::Set(bytes) => write!(f, "{}", Size(*bytes)),
            Self::Forced(bytes) => write!(f, "{} forced", Size(*bytes)),
        }
    }
}

impl fmt::Display for TransferOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { initial_request, first_burst, burst, bursts_at_once } = *self;
        let asked = if initial_request { "asked for" } else { "unasked" };
        let (first_burst, burst) = (Size(first_burst.into()), Size(burst.into()));
        write!(f, "{first_burst} {asked}, then {bursts_at_once} x {burst}")
    }
}
