//! Makes plans: each policy decides from the same inputs.

mod buffers;
mod congestion;
mod connections;
mod decision;
mod modern;
mod thesis;

use buffers::Side;
use decision::{Decision, Inputs};

use crate::limits::Limits;
use crate::link::model::{LinkModel, Measurement};
use crate::plan::{Buffer, Choice, Plan, TransferOffer, queue_depth};
use crate::transfers::TransferQueue;
use crate::tuning::{Policy, Tuning};

/// Makes the plan for a link.
///
/// There is a plan for any input, even if values are unknown, absurd or not permitted. In the worst case the
/// plan leaves everything to the kernel and says so. Buffers and queues grow with round-trip time and
/// bandwidth, and stay within the limits.
///
/// ```
/// use std::time::Duration;
/// use iscsi_tuner::{Buffer, Limits, Measurement, Rtt, Tuning, plan};
///
/// let mut measurement = Measurement::default();
/// measurement.rtt = Some(Rtt::first(Duration::from_millis(100)));
/// let mut tuning = Tuning::default();
/// tuning = tuning.with_bandwidth(Some("100mbit".parse()?));
/// let plan = plan(&measurement, &Limits::default(), &tuning);
/// assert_eq!(plan.send_buffer.value, Buffer::Autotuned);
/// println!("{plan}");
/// # Ok::<(), iscsi_tuner::RateError>(())
/// ```
#[doc(alias = "tune")]
#[must_use]
pub fn plan(measurement: &Measurement, limits: &Limits, tuning: &Tuning) -> Plan {
    let inputs = Inputs::new(measurement, limits, tuning);
    let link = inputs.link;
    let decision = decide(&inputs).with_wishes(tuning);
    let terms = measurement.terms.unwrap_or_default();
    let in_flight = inputs.in_flight(&decision, measurement);
    let traits = link.traits(in_flight);
    let (writes, reads) = (terms.write_queue(traits), terms.read_queue(traits));
    let congestion_control = congestion::choose(&link, limits, tuning);
    Plan {
        policy: tuning.policy,
        link,
        connections: connections::choose(
            &link,
            inputs.reach(&decision.send_buffer),
            measurement,
            congestion_control.value.as_deref().or(limits.congestion_control.as_deref()),
        ),
        send_buffer: decision.send_buffer,
        receive_buffer: decision.receive_buffer,
        no_delay: decision.no_delay,
        sends: decision.sends,
        cork: decision.cork,
        send_size: decision.send_size,
        not_sent_low_water: decision.not_sent_low_water,
        receive_low_water: decision.receive_low_water,
        congestion_control,
        segment: segment(measurement),
        io_size: io_size(&link, &writes),
        queue_depth: queue_depth(&terms, &writes),
        read_size: Choice::new(reads.io_size, "one round trip, whatever its length"),
        read_depth: queue_depth(&terms, &reads),
        terms,
        in_flight,
        offer: offer(),
    }
}

/// Returns the decision of the policy, before the user's own settings.
fn decide(inputs: &Inputs<'_>) -> Decision {
    match inputs.tuning.policy {
        Policy::Auto => inputs.modern(Side::beyond_autotuning),
        Policy::Static => inputs.modern(Side::fixed),
        Policy::Autotune => inputs
            .modern(|_, _, _| Choice::new(Buffer::Autotuned, "left to the kernel, as asked for")),
        Policy::Thesis => inputs.thesis(),
        Policy::Off => Decision::untouched(),
    }
}

fn io_size(link: &LinkModel, queue: &TransferQueue) -> Choice<u64> {
    let reason = match (link.is_local(), queue.round_trips) {
        (true, _) => "long enough to be worth a command; round trips cost nothing here".to_owned(),
        (false, 1) => "a write takes one round trip, the last one too".to_owned(),
        (false, trips) => format!("a write takes {trips} round trips, the last one too"),
    };
    Choice::new(queue.io_size, reason)
}

/// Returns the longest segment, independent of the policy: no other setting helps where data does not arrive.
fn segment(measurement: &Measurement) -> Choice<Option<u32>> {
    match measurement.segment_limit {
        Some(limit) => Choice::new(Some(limit.segment), limit.reason()),
        None => Choice::new(None, "as long as both ends take"),
    }
}

/// Returns the terms of transfers to propose; the peer selects the smaller of its own values and these.
fn offer() -> Choice<TransferOffer> {
    /// The largest multiple of 4096 that 24 bits can hold.
    const PROPOSED_BURST: u32 = 4095 * 4096;
    let offer = TransferOffer {
        initial_request: false,
        first_burst: PROPOSED_BURST,
        burst: PROPOSED_BURST,
        bursts_at_once: 32,
    };
    Choice::new(offer, "the most there is: each limit of the peer costs round trips, not ours")
}
