//! Renders the report as JSON.

use std::time::Duration;

use iscsi_tuner::{
    Autotuning, Buffer, Choice, Diagnosis, Granted, Interface, Limits, Plan, Rate, Rtt, TcpInfo,
};
use serde_json::{Value, json};

use super::Report;
use crate::ceiling::Ceiling;
use crate::read_test::ReadTest;
use crate::unit::Unit;
use crate::writes::Writes;

impl Report {
    /// Returns the report as a JSON object. Times are in milliseconds or seconds, rates in Mbit/s (10^6 bits),
    /// sizes in bytes. Unknown values are null.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "target": self.who.target,
            "alias": self.who.alias,
            "portal": self.who.portal,
            "redirected_from": self.who.redirected_from,
            "initiator": self.who.initiator,
            "unit": self.unit.as_ref().map(Unit::to_json),
            "negotiated": self.agreed.to_json(),
            "rtt": {
                "tcp": self.tcp.map(rtt),
                "ping": self.ping().map(rtt),
                "pings_ms": self.pings.iter().copied().map(millis).collect::<Vec<_>>(),
            },
            "tcp": tcp(&self.facts.info, self.facts.measurement.loss),
            "path": self.path.to_json(&self.who.portal),
            "interface": self.facts.interface.as_ref().map(interface),
            "encryption": self.facts.encryption,
            "host": host(&self.facts.limits),
            "plan": plan(&self.facts.plan),
            "granted": granted(&self.facts.granted),
            "read": self.read.as_ref().map(|test| self.read_json(test)),
            "write": writes(&self.writes),
            "complete": self.end.is_none(),
            "error": self.end.as_ref().map(ToString::to_string),
            "kind": self.end.as_ref().map(|error| error.kind().name()),
        })
    }

    fn read_json(&self, test: &ReadTest) -> Value {
        let limit = self.reads.map(|reads| reads.limit(&self.facts.plan.link));
        let (verdict, remedy) = self.verdict().unzip();
        json!({
            "seconds": test.time.as_secs_f64(),
            "bytes": test.bytes,
            "goodput_mbit_per_s": test.goodput().map(|rate| rate.mbit_per_second()),
            "steady_mbit_per_s": test.steady().map(|rate| rate.mbit_per_second()),
            "samples_mbit_per_s":
                test.samples.iter().map(|rate| rate.map_or(0.0, Rate::mbit_per_second)).collect::<Vec<_>>(),
            "io_size_bytes": test.workload.io_size,
            "queue_depth": test.workload.depth,
            "pings_ms": test.pings.iter().copied().map(millis).collect::<Vec<_>>(),
            "tcp_rtt_ms": self.facts.info.smoothed_rtt.map(millis),
            "limit": limit.map(|limit| limit.name()),
            "verdict": verdict,
            "remedy": remedy.flatten(),
            "diagnosis": diagnosis(&test.diagnosis()),
        })
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn rtt(rtt: Rtt) -> Value {
    json!({
        "min_ms": millis(rtt.min),
        "mean_ms": millis(rtt.smoothed),
        "deviation_ms": millis(rtt.deviation),
        "samples": rtt.samples,
        "variable": rtt.is_variable(),
    })
}

fn tcp(info: &TcpInfo, loss: Option<f64>) -> Value {
    json!({
        "mss_bytes": info.send_mss,
        "path_mtu_bytes": info.path_mtu,
        "window_scaling": info.window_scaling,
        "timestamps": info.timestamps,
        "selective_acknowledgement": info.selective_acknowledgement,
        "peer_window_bytes": info.peer_window,
        "receive_window_bytes": info.receive_window,
        "data_segments_sent": info.data_segments_sent,
        "segments_retransmitted": info.segments_retransmitted,
        "loss": loss,
        "delivery_rate_mbit_per_s": info.delivery_rate.map(|rate| rate.mbit_per_second()),
        "delivery_rate_app_limited": info.delivery_rate_app_limited,
    })
}

fn interface(interface: &Interface) -> Value {
    json!({
        "name": interface.name,
        "mtu_bytes": interface.mtu,
        "tso": interface.offload.tcp_segmentation,
        "gso": interface.offload.generic_segmentation,
        "gro": interface.offload.generic_receive,
    })
}

fn host(limits: &Limits) -> Value {
    let range = |range: Autotuning| [range.min, range.default, range.max];
    json!({
        "wmem_max_bytes": limits.wmem_max,
        "rmem_max_bytes": limits.rmem_max,
        "tcp_wmem_bytes": limits.tcp_wmem.map(range),
        "tcp_rmem_bytes": limits.tcp_rmem.map(range),
        "may_force": limits.may_force,
        "congestion_control": limits.congestion_control,
        "available_congestion_controls": limits.available_congestion_controls,
        "allowed_congestion_controls": limits.allowed_congestion_controls,
    })
}

fn plan(plan: &Plan) -> Value {
    let offer = plan.offer.value;
    json!({
        "policy": plan.policy.name(),
        "bandwidth_mbit_per_s": plan.link.bandwidth.mbit_per_second(),
        "bandwidth_basis": format!("{:?}", plan.link.basis).to_lowercase(),
        "bandwidth_delay_product_bytes": plan.link.bandwidth_delay_product(),
        "send_buffer_bytes": choice(&plan.send_buffer, buffer),
        "receive_buffer_bytes": choice(&plan.receive_buffer, buffer),
        "no_delay": choice(&plan.no_delay, |no_delay| json!(no_delay)),
        "send_size_bytes": choice(&plan.send_size, |bytes| json!(bytes)),
        "not_sent_low_water_bytes": choice(&plan.not_sent_low_water, |bytes| json!(bytes)),
        "receive_low_water_bytes": choice(&plan.receive_low_water, |bytes| json!(bytes)),
        "congestion_control": choice(&plan.congestion_control, |name| json!(name)),
        "connections": choice(&plan.connections, |count| json!(count)),
        "io_size_bytes": choice(&plan.io_size, |bytes| json!(bytes)),
        "queue_depth": choice(&plan.queue_depth, |depth| json!(depth)),
        "offer": choice(&plan.offer, |_| json!({
            "InitialR2T": offer.initial_request,
            "FirstBurstLength": offer.first_burst,
            "MaxBurstLength": offer.burst,
            "MaxOutstandingR2T": offer.bursts_at_once,
        })),
    })
}

fn choice<T>(choice: &Choice<T>, value: impl Fn(&T) -> Value) -> Value {
    json!({ "value": value(&choice.value), "reason": choice.reason })
}

/// Returns the size of a buffer in bytes, or null if the kernel chooses it.
fn buffer(buffer: &Buffer) -> Value {
    json!(buffer.bytes())
}

fn granted(granted: &Granted) -> Value {
    let refused = granted.refused.iter();
    json!({
        "send_buffer_bytes": granted.send_buffer,
        "receive_buffer_bytes": granted.receive_buffer,
        "no_delay": granted.no_delay,
        "not_sent_low_water_bytes": granted.not_sent_low_water,
        "congestion_control": granted.congestion_control,
        "refused": refused
            .map(|refusal| json!({ "option": refusal.option, "reason": refusal.reason }))
            .collect::<Vec<_>>(),
    })
}

fn diagnosis(diagnosis: &Diagnosis) -> Value {
    let findings = diagnosis.findings.iter();
    findings
        .map(|finding| {
            json!({
                "limiter": finding.limiter.name(),
                "share": finding.share,
                "evidence": finding.evidence,
                "remedy": finding.remedy,
            })
        })
        .collect()
}

fn writes(writes: &Writes) -> Value {
    let lowest = writes.lowest();
    json!({
        "io_size_bytes": writes.io_size,
        "queue_depth": writes.depth,
        "round_trips": writes.round_trips,
        "rtt_ms": millis(writes.round_trip),
        "write_ms": millis(writes.time()),
        "one_at_a_time_mbit_per_s": writes.one_at_a_time.mbit_per_second(),
        "ceilings": writes.ceilings.iter().map(ceiling).collect::<Vec<_>>(),
        "lowest": lowest.map(|ceiling| ceiling.limit.name()),
        "remedy": lowest.and_then(|ceiling| ceiling.remedy.as_deref()),
    })
}

fn ceiling(ceiling: &Ceiling) -> Value {
    json!({
        "limit": ceiling.limit.name(),
        "mbit_per_s": ceiling.rate.mbit_per_second(),
        "because": ceiling.because,
        "remedy": ceiling.remedy,
    })
}
