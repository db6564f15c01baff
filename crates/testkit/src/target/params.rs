//! The negotiated parameters, and the target's answer to each key (RFC 7143 §13).

use crate::config::{DigestPolicy, Keys};
use crate::text::{boolean, number};

/// The parameters in force; before any negotiation the defaults of RFC 7143 §13.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    pub(crate) initiator_segment: u32,
    pub(crate) max_connections: u32,
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    pub(crate) max_burst: u32,
    pub(crate) first_burst: u32,
    pub(crate) max_outstanding_r2t: u32,
    pub(crate) data_pdu_in_order: bool,
    pub(crate) data_sequence_in_order: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            initiator_segment: 8192,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst: 262_144,
            first_burst: 65_536,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
        }
    }
}

impl Params {
    /// Sets a parameter to the result of its negotiation. An answer that is not a value (Reject, Irrelevant)
    /// changes nothing.
    pub(crate) fn apply(&mut self, key: &str, value: &str) {
        match key {
            "HeaderDigest" => self.header_digest = value == "CRC32C",
            "DataDigest" => self.data_digest = value == "CRC32C",
            "InitialR2T" => set(&mut self.initial_r2t, boolean(value)),
            "ImmediateData" => set(&mut self.immediate_data, boolean(value)),
            "DataPDUInOrder" => set(&mut self.data_pdu_in_order, boolean(value)),
            "DataSequenceInOrder" => set(&mut self.data_sequence_in_order, boolean(value)),
            "MaxRecvDataSegmentLength" => set(&mut self.initiator_segment, number(value)),
            "MaxConnections" => set(&mut self.max_connections, number(value)),
            "MaxBurstLength" => set(&mut self.max_burst, number(value)),
            "FirstBurstLength" => set(&mut self.first_burst, number(value)),
            "MaxOutstandingR2T" => set(&mut self.max_outstanding_r2t, number(value)),
            _ => {}
        }
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

/// The target's answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The answer is this value.
    Value(String),
    /// No answer: the key is a declaration.
    Declared,
    /// The target requires another value and refuses the login.
    Refused,
}

/// Returns the target's answer to `key`, by the result function of the key.
pub(crate) fn respond(keys: &Keys, key: &str, offered: &str) -> Response {
    match key {
        "HeaderDigest" => digest(keys.header_digest, offered),
        "DataDigest" => digest(keys.data_digest, offered),
        "InitialR2T" => either(keys.initial_r2t, offered),
        "DataPDUInOrder" => either(keys.data_pdu_in_order, offered),
        "DataSequenceInOrder" => either(keys.data_sequence_in_order, offered),
        "ImmediateData" => both(keys.immediate_data, offered),
        "MaxConnections" => smaller(keys.max_connections, offered),
        "MaxBurstLength" => smaller(keys.max_burst_length, offered),
        "FirstBurstLength" => smaller(keys.first_burst_length, offered),
        "DefaultTime2Retain" => smaller(keys.default_time2retain, offered),
        "MaxOutstandingR2T" => smaller(keys.max_outstanding_r2t, offered),
        "ErrorRecoveryLevel" => smaller(keys.error_recovery_level, offered),
        "DefaultTime2Wait" => numeric(offered, |wait| wait.max(keys.default_time2wait)),
        "iSCSIProtocolLevel" => match keys.protocol_level {
            Some(level) => smaller(level, offered),
            None => value("NotUnderstood"),
        },
        "TaskReporting" => value("RFC3720"),
        "IFMarker" | "OFMarker" => value("No"),
        "IFMarkInt" | "OFMarkInt" => value("Reject"),
        "InitiatorName"
        | "InitiatorAlias"
        | "TargetName"
        | "SessionType"
        | "MaxRecvDataSegmentLength" => Response::Declared,
        _ => value("NotUnderstood"),
    }
}

fn value(text: impl Into<String>) -> Response {
    Response::Value(text.into())
}

fn yes_no(yes: bool) -> Response {
    value(if yes { "Yes" } else { "No" })
}

fn either(own: bool, offered: &str) -> Response {
    boolean(offered).map_or_else(|| value("Reject"), |offer| yes_no(offer || own))
}

fn both(own: bool, offered: &str) -> Response {
    boolean(offered).map_or_else(|| value("Reject"), |offer| yes_no(offer && own))
}

fn smaller(own: u32, offered: &str) -> Response {
    numeric(offered, |offer| offer.min(own))
}

fn numeric(offered: &str, result: impl FnOnce(u32) -> u32) -> Response {
    number(offered).map_or_else(|| value("Reject"), |offer| value(result(offer).to_string()))
}

fn digest(policy: DigestPolicy, offered: &str) -> Response {
    let wanted = |name: &&str| match policy {
        DigestPolicy::Never => *name == "None",
        DigestPolicy::Require => *name == "CRC32C",
        DigestPolicy::Accept => matches!(*name, "None" | "CRC32C"),
    };
    offered.split(',').find(wanted).map_or(Response::Refused, value)
}
