//! Reports the tuning of the connection to a unit as JSON.

use iscsi_tuner::{Buffer, Choice, Plan, Sends, TransferOffer};
use serde_json::{Value, json};

/// Returns each number of the plan with its reason. The name of a number ends with its unit of measurement. A
/// number that the kernel chooses is `null`.
pub(super) fn to_json(plan: &Plan) -> Value {
    let Plan { link, .. } = plan;
    let rows = plan.rows();
    let why = rows.iter().find(|row| row.name == "link").map(|row| &*row.reason);
    let rtt = link.rtt.map_or_else(|| "unknown".to_owned(), |rtt| rtt.to_string());
    json!({
        "policy": { "value": plan.policy.to_string(), "reason": rtt },
        "link_mbit_per_s": { "value": link.bandwidth.mbit_per_second(), "reason": why },
        "send_buffer_bytes": choice(&plan.send_buffer, |buffer| bytes(*buffer).into()),
        "receive_buffer_bytes": choice(&plan.receive_buffer, |buffer| bytes(*buffer).into()),
        "no_delay": choice(&plan.no_delay, |is_on| (*is_on).into()),
        "sends": choice(&plan.sends, |sends| match sends {
            Sends::OnePage => "one page".into(),
            Sends::ManyPages => "many pages".into(),
        }),
        "cork": choice(&plan.cork, |is_on| (*is_on).into()),
        "send_size_bytes": choice(&plan.send_size, |bytes| (*bytes).into()),
        "not_sent_low_water_bytes": choice(&plan.not_sent_low_water, |bytes| (*bytes).into()),
        "receive_low_water_bytes": choice(&plan.receive_low_water, |bytes| (*bytes).into()),
        "congestion_control": choice(&plan.congestion_control, |name| name.clone().into()),
        "segment_bytes": choice(&plan.segment, |bytes| (*bytes).into()),
        "connections": choice(&plan.connections, |count| (*count).into()),
        "io_size_bytes": choice(&plan.io_size, |bytes| (*bytes).into()),
        "queue_depth": choice(&plan.queue_depth, |depth| (*depth).into()),
        "read_size_bytes": choice(&plan.read_size, |bytes| (*bytes).into()),
        "read_depth": choice(&plan.read_depth, |depth| (*depth).into()),
        "offer": choice(&plan.offer, |offer| offer_to_json(*offer)),
    })
}

fn choice<T>(Choice { value, reason, .. }: &Choice<T>, shown: impl Fn(&T) -> Value) -> Value {
    json!({ "value": shown(value), "reason": reason })
}

const fn bytes(buffer: Buffer) -> Option<u64> {
    match buffer {
        Buffer::Autotuned => None,
        Buffer::Set(bytes) | Buffer::Forced(bytes) => Some(bytes),
    }
}

/// Returns the offered parameters by their names in the standard, like the negotiated parameters.
fn offer_to_json(offer: TransferOffer) -> Value {
    json!({
        "InitialR2T": offer.initial_request,
        "FirstBurstLength": offer.first_burst,
        "MaxBurstLength": offer.burst,
        "MaxOutstandingR2T": offer.bursts_at_once,
    })
}
