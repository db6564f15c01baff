//! Result files: what was measured, where, and under which settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of one run, as JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResultFile {
    /// Subject of the run, one line.
    pub title: String,
    /// Command that makes this result file again.
    pub command: String,
    /// Start of the run, RFC 3339, UTC.
    pub date: String,
    /// Commit of the project, followed by `+` if the tree had changes.
    pub commit: String,
    /// The machine on which the run was made.
    pub machine: Machine,
    /// Settings of all figures: system limits, target keys, versions of the peers.
    pub settings: BTreeMap<String, String>,
    /// The figures, in the order of their measurement.
    pub figures: Vec<Figure>,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Number of processors.
    pub processors: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Release of the machine's kernel.
    pub kernel: String,
    /// Release of the kernel that ran the link and the target: the guest's, or the machine's own.
    pub lab_kernel: String,
    /// `guest` or `host`.
    #[serde(rename = "place")]
    pub environment: String,
    /// Share of the processors' time that the hypervisor gave to other machines during the run, 0 to 1
    /// (`steal` of `/proc/stat`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen: Option<f64>,
}

/// The result of one measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The link.
    pub link: LinkConditions,
    /// The program that moved the bytes: `block-copy`, `iperf3`, ...
    pub who: String,
    /// Parameters of the measurement: `variant`, `send_buffer`, `direction`, `repetition`, ...
    pub parameters: BTreeMap<String, String>,
    /// How the measurement ended.
    pub outcome: Outcome,
    /// Bytes of payload to be moved. For iperf3, the bytes that its receiver counted.
    pub bytes: u64,
    /// Seconds from the start of the program to its exit; `None` if the measurement did not complete. For
    /// open-iscsi, the program is `dd`, after the login.
    pub seconds: Option<f64>,
    /// `bytes` per `seconds`, in 10^6 bits per second. For a measurement of fixed duration, the bytes that its
    /// receiver counted in that time.
    pub goodput_mbit_per_s: Option<f64>,
    /// Rate from the fifth second on, in 10^6 bits per second (see [`steady`](crate::rate::steady)). `None`
    /// without samples, and for a run that is too short.
    pub steady_mbit_per_s: Option<f64>,
    /// Time of the run beyond the time that its bytes need at the link's rate, seconds. `None` without a rate.
    pub start_seconds: Option<f64>,
    /// Rate in each full second, by the bytes that arrived, in 10^6 bits per second. Empty for a program that
    /// does not report it.
    pub samples_mbit_per_s: Vec<f64>,
    /// Bytes that crossed the link during the measurement; `None` if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
    /// Memory that the unit's file takes afterwards, bytes; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// The program's own report. `told_mbit_per_s` is the rate that the program printed. If the time limit
    /// ended the program, the detail has `limit_seconds`.
    #[serde(default)]
    pub detail: Value,
}

/// Bytes that crossed a link, with the headers of Ethernet, IP, TCP and iSCSI.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Bytes sent by the initiator's host.
    pub sent: u64,
    /// Bytes received by the initiator's host.
    pub received: u64,
}

impl Carried {
    /// Returns the bytes that crossed the link since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
        }
    }
}

/// The conditions of a link.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConditions {
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// Rate in each direction, 10^6 bits per second; `None` if it is not limited.
    pub rate_mbit_per_s: Option<f64>,
    /// Lost packets in each direction, percent.
    pub loss_percent: f64,
}

/// How a measurement ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All bytes were moved.
    Complete,
    /// The time limit ended the measurement.
    TimedOut,
    /// The measurement failed, for this reason.
    Failed(String),
    /// The measurement was not possible here, for this reason.
    Skipped(String),
}
