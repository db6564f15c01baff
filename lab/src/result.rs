//! Result files: what was measured, where, and under which settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything that came of one run, as JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResultFile {
    /// What the run was about, one line.
    pub title: String,
    /// The command that makes such a file.
    pub command: String,
    /// When it began, RFC 3339, UTC.
    pub date: String,
    /// The commit of the project, with `+` behind it if the tree had changes.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// What was in force for all figures: system limits, target keys, versions of the peers.
    pub settings: BTreeMap<String, String>,
    /// The figures, in the order of their measurement.
    pub figures: Vec<Figure>,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// How many processors the machine has.
    pub processors: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The kernel of the machine.
    pub kernel: String,
    /// The kernel that carried the link and the target: the guest's, or the machine's own.
    pub lab_kernel: String,
    /// `guest` or `host`.
    #[serde(rename = "place")]
    pub environment: String,
    /// The share of the processors' time that the machine below gave to others during the run, 0 to 1
    /// (`steal` of `/proc/stat`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen: Option<f64>,
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The link it was measured over.
    pub link: LinkConditions,
    /// Who moved the bytes: `block-copy`, `iperf3`, ...
    pub who: String,
    /// What was special about it: `variant`, `send_buffer`, `direction`, `repetition`, ...
    pub parameters: BTreeMap<String, String>,
    /// Whether it came to its end.
    pub outcome: Outcome,
    /// Bytes of payload that were to be moved; of iperf3 those that its receiver counted.
    pub bytes: u64,
    /// From the start of the program to its end; `None` if it did not come to its end. Of
    /// open-iscsi the program is `dd`, after the login.
    pub seconds: Option<f64>,
    /// `bytes` by `seconds`, 10^6 bits a second; of a measure by time, what its receiver counted in
    /// that time.
    pub goodput_mbit_per_s: Option<f64>,
    /// The rate from the fifth second on, 10^6 bits a second (see [`steady`](crate::rate::steady));
    /// `None` without samples, and for a run too short to have such a part.
    pub steady_mbit_per_s: Option<f64>,
    /// What the whole took beyond its bytes at the link's rate, seconds; `None` without a rate.
    pub start_seconds: Option<f64>,
    /// The rate of each full second at which bytes arrived, 10^6 bits a second; empty for a program
    /// that does not tell it.
    pub samples_mbit_per_s: Vec<f64>,
    /// What crossed the link meanwhile; `None` where it was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
    /// The memory that the unit's file takes afterwards, bytes; `None` where it is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// What the program itself reported: `told_mbit_per_s` is the rate that it printed. For a
    /// program that the time limit ended, `limit_seconds`.
    #[serde(default)]
    pub detail: Value,
}

/// What crossed a link, in bytes with the headers of Ethernet, IP, TCP and iSCSI.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// From the initiator's host.
    pub sent: u64,
    /// To it.
    pub received: u64,
}

impl Carried {
    /// What crossed it since it had carried `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
        }
    }
}

/// What a link was like.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConditions {
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// Rate, 10^6 bits a second, each way; `None` is as fast as it can be.
    pub rate_mbit_per_s: Option<f64>,
    /// Packets lost, percent, each way.
    pub loss_percent: f64,
}

/// How a measurement ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All bytes were moved.
    Complete,
    /// The time limit ended it.
    TimedOut,
    /// It failed; the reason.
    Failed(String),
    /// It could not be tried here; the reason.
    Skipped(String),
}
