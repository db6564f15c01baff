//! The policies: what each decides, from the same facts.

mod buffers;
mod congestion;
mod connections;
mod thesis;

use std::time::Duration;

use crate::limits::Limits;
use crate::link::{Basis, Link, Measurement};
use crate::plan::{Buffer, Choice, Offer, Plan};
use crate::size::Size;
use crate::transfers::{Shape, Terms};
use crate::tuning::{Policy, Sends, Tuning};

use buffers::Side;

pub(crate) use congestion::{BBR, LOSSY};

/// What a policy decides about the socket.
#[derive(Debug)]
struct Decision {
    send_buffer: Choice<Buffer>,
    receive_buffer: Choice<Buffer>,
    no_delay: Choice<bool>,
    sends: Choice<Sends>,
    cork: Choice<bool>,
    not_sent_low_water: Choice<Option<u32>>,
}

/// What every policy decides from.
#[derive(Debug)]
struct Facts<'a> {
    link: Link,
    send: Side,
    receive: Side,
    tuning: &'a Tuning,
}

pub(crate) fn decide(measurement: &Measurement, limits: &Limits, tuning: &Tuning) -> Plan {
    let link = Link::new(measurement, tuning);
    let facts = Facts { link, send: Side::send(limits), receive: Side::receive(limits), tuning };
    let decision = facts.by_policy().with_wishes(tuning);
    let terms = measurement.terms.unwrap_or_default();
    let in_flight = facts.in_flight(&decision, measurement);
    let way = link.way(in_flight);
    let (shape, reads) = (terms.shape_for(way), terms.read_shape_for(way));
    let Decision { send_buffer, receive_buffer, no_delay, sends, cork, not_sent_low_water } =
        decision;
    let congestion_control = congestion::choose(&link, limits, tuning);
    Plan {
        policy: tuning.policy,
        link,
        connections: connections::choose(
            &link,
            facts.reach(&send_buffer),
            measurement,
            congestion_control.value.as_deref().or(limits.congestion_control.as_deref()),
        ),
        send_buffer,
        receive_buffer,
        no_delay,
        sends,
        cork,
        not_sent_low_water,
        congestion_control,
        io_size: io_size(&link, &shape),
        queue_depth: queue_depth(&terms, &shape),
        read_size: Choice::new(reads.io_size, "one round trip, whatever its length"),
        read_depth: queue_depth(&terms, &reads),
        terms,
        in_flight,
        offer: offer(),
    }
}

impl Facts<'_> {
    fn by_policy(&self) -> Decision {
        match self.tuning.policy {
            Policy::Auto => self.modern(Side::beyond_autotuning),
            Policy::Static => self.modern(Side::fixed),
            Policy::Autotune => self.modern(|_, _, _| {
                Choice::new(Buffer::Autotuned, "left to the kernel, as asked for")
            }),
            Policy::Thesis => self.thesis(),
            Policy::Off => Decision::untouched(),
        }
    }

    /// What policies for today's kernels have in common.
    fn modern(&self, buffer: impl Fn(&Side, &Link, Option<u64>) -> Choice<Buffer>) -> Decision {
        let memory = self.tuning.memory;
        Decision {
            send_buffer: buffer(&self.send, &self.link, memory),
            receive_buffer: match self.link.basis {
                Basis::Assumed => Choice::new(
                    Buffer::Autotuned,
                    "the link's rate is only assumed: no reason to connect again for more",
                ),
                Basis::Declared | Basis::Estimated => buffer(&self.receive, &self.link, memory),
            },
            no_delay: Choice::new(true, "a command must not wait for an acknowledgement"),
            sends: Choice::new(Sends::ManyPages, "fewer system calls, full segments"),
            cork: Choice::new(true, "no short segment between two sends of one burst"),
            not_sent_low_water: self.low_water(),
        }
    }

    /// What waits unsent in the kernel can no longer be overtaken.
    fn low_water(&self) -> Choice<Option<u32>> {
        /// Enough for the sender to sleep so long.
        const NAP: Duration = Duration::from_millis(10);
        /// Enough for a system call to be worth it.
        const LEAST: u64 = 128 << 10;
        const MOST: u64 = 4 << 20;
        if self.link.is_local() {
            return Choice::new(None, "what waits is gone within a millisecond");
        }
        let bytes = self.link.bandwidth.bytes_in(NAP).clamp(LEAST, MOST);
        let seconds = self.link.bandwidth.time_for(bytes).as_secs_f64();
        let reason =
            format!("{:.0} ms of the link: no command, no ping waits longer", seconds * 1e3);
        Choice::new(u32::try_from(bytes).ok(), reason)
    }

    /// What one connection can have in flight with that send buffer.
    fn reach(&self, send_buffer: &Choice<Buffer>) -> u64 {
        send_buffer.value.bytes().unwrap_or(self.send.reach)
    }

    /// What the link holds, as far as one connection reaches in either direction.
    fn in_flight(&self, decision: &Decision, measurement: &Measurement) -> u64 {
        let sends = self.reach(&decision.send_buffer).min(connections::peer_reach(measurement));
        let receives = decision.receive_buffer.value.bytes().unwrap_or(self.receive.reach);
        self.link.max_benefit().min(sends.max(receives))
    }
}

impl Decision {
    /// A socket as the kernel makes it; without `TCP_NODELAY` no initiator is usable.
    fn untouched() -> Self {
        let left = "left to the kernel, as asked for";
        Self {
            send_buffer: Choice::new(Buffer::Autotuned, left),
            receive_buffer: Choice::new(Buffer::Autotuned, left),
            no_delay: Choice::new(true, "a command must not wait for an acknowledgement"),
            sends: Choice::new(Sends::ManyPages, "as the caller hands them in"),
            cork: Choice::new(false, left),
            not_sent_low_water: Choice::new(None, left),
        }
    }

    /// What the user asks for comes before any policy.
    fn with_wishes(mut self, tuning: &Tuning) -> Self {
        const ASKED: &str = "as asked for";
        if let Some(bytes) = tuning.send_buffer {
            self.send_buffer = buffers::asked_for(bytes);
            self.not_sent_low_water = Choice::new(None, "the send buffer is as asked for");
        }
        if let Some(bytes) = tuning.receive_buffer {
            self.receive_buffer = buffers::asked_for(bytes);
        }
        if let Some(no_delay) = tuning.no_delay {
            self.no_delay = Choice::new(no_delay, ASKED);
        }
        if let Some(sends) = tuning.sends {
            self.sends = Choice::new(sends, ASKED);
        }
        if tuning.sends == Some(Sends::OnePage) {
            self.cork = Choice::new(false, "each page goes by itself");
        }
        self
    }
}

fn io_size(link: &Link, shape: &Shape) -> Choice<u64> {
    let reason = match (link.is_local(), shape.round_trips) {
        (true, _) => "long enough to be worth a command; round trips cost nothing here".to_owned(),
        (false, 1) => "a write takes one round trip, the last one too".to_owned(),
        (false, trips) => format!("a write takes {trips} round trips, the last one too"),
    };
    Choice::new(shape.io_size, reason)
}

pub(crate) fn queue_depth(terms: &Terms, shape: &Shape) -> Choice<u32> {
    let depth = u32::try_from(shape.depth).unwrap_or(u32::MAX);
    let mut reason = shape.describe();
    if terms.window.is_some_and(|window| window <= depth) {
        reason.push_str(", all that the peer takes at once");
    } else {
        reason.push_str(&format!(", {} on the link", Size(shape.in_flight())));
    }
    Choice::new(depth, reason)
}

/// The peer takes the smaller of its own and these.
fn offer() -> Choice<Offer> {
    /// The largest multiple of 4096 that 24 bits can hold.
    const LONGEST_BURST: u32 = 4095 * 4096;
    let offer = Offer {
        initial_request: false,
        first_burst: LONGEST_BURST,
        burst: LONGEST_BURST,
        bursts_at_once: 32,
    };
    Choice::new(offer, "the most there is: each limit of the peer costs round trips, not ours")
}
