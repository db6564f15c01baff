//! Lists the parameters agreed at login, by their names in the standard.

use iscsi_initiator::Negotiated;
use iscsi_pdu::Digest;
use serde_json::{Map, Value};

use crate::table::Line;

/// The parameters of a session (RFC 7143 §13), and the command window.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreed(Vec<Term>);

#[derive(Clone, Debug, PartialEq)]
struct Term {
    name: &'static str,
    value: Value,
    meaning: &'static str,
}

impl Agreed {
    /// Creates the list from the negotiated values, and from the number of commands that the target accepts, if
    /// the target has reported it.
    #[must_use]
    pub fn new(negotiated: &Negotiated, window: Option<u32>) -> Self {
        let mut terms = transfers(negotiated);
        terms.extend(rest(negotiated));
        terms.push(term("CommandWindow", window, "commands that the target accepts"));
        Self(terms)
    }

    /// Returns the parameters as lines of text.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.0.iter().map(|term| Line::new(term.name, spelled(&term.value), term.meaning)).collect()
    }

    /// Returns the parameters as JSON: numbers as numbers, Yes and No as booleans.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let pairs = self.0.iter().map(|term| (term.name.to_owned(), term.value.clone()));
        pairs.collect::<Map<_, _>>().into()
    }
}

fn term(name: &'static str, value: impl Into<Value>, meaning: &'static str) -> Term {
    Term { name, value: value.into(), meaning }
}

/// Returns the parameters that determine how a write is sent.
fn transfers(agreed: &Negotiated) -> Vec<Term> {
    vec![
        term("InitialR2T", agreed.initial_r2t, "Yes: only immediate data go unasked"),
        term("ImmediateData", agreed.immediate_data, "data travel with the command"),
        term("FirstBurstLength", agreed.first_burst_length, "bytes of a write that go unasked"),
        term("MaxBurstLength", agreed.max_burst_length, "bytes that one R2T asks for"),
        term("MaxOutstandingR2T", agreed.max_outstanding_r2t, "R2Ts open for one write"),
        term(
            "TargetMaxRecvDataSegmentLength",
            agreed.target_max_recv_data_segment_length,
            "bytes of one PDU to the target",
        ),
        term(
            "InitiatorMaxRecvDataSegmentLength",
            agreed.initiator_max_recv_data_segment_length,
            "bytes of one PDU from the target",
        ),
    ]
}

fn rest(agreed: &Negotiated) -> Vec<Term> {
    vec![
        term("HeaderDigest", digest(agreed.header_digest), ""),
        term("DataDigest", digest(agreed.data_digest), ""),
        term("MaxConnections", agreed.max_connections, "connections of one session"),
        term("ErrorRecoveryLevel", agreed.error_recovery_level, ""),
    ]
}

const fn digest(digest: Digest) -> &'static str {
    match digest {
        Digest::None => "None",
        Digest::Crc32c => "CRC32C",
    }
}

/// Returns a value in the notation of the standard.
fn spelled(value: &Value) -> String {
    match (value.as_str(), value.as_bool()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(true)) => "Yes".to_owned(),
        (None, Some(false)) => "No".to_owned(),
        (None, None) if value.is_null() => "unknown".to_owned(),
        (None, None) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_spelled_as_in_the_standard_and_typed_for_programs() {
        let mut negotiated = Negotiated::default();
        negotiated.initial_r2t = false;
        negotiated.header_digest = Digest::Crc32c;
        let agreed = Agreed::new(&negotiated, None);
        let shown = |name: &str| {
            let line = agreed.lines().into_iter().find(|line| line.name == name);
            line.map(|line| line.value)
        };
        assert_eq!(shown("InitialR2T").as_deref(), Some("No"));
        assert_eq!(shown("ImmediateData").as_deref(), Some("Yes"));
        assert_eq!(shown("HeaderDigest").as_deref(), Some("CRC32C"));
        assert_eq!(shown("CommandWindow").as_deref(), Some("unknown"));
        let object = agreed.to_json();
        assert_eq!(object["InitialR2T"], false);
        assert_eq!(object["MaxBurstLength"], 262_144);
        assert_eq!(object["CommandWindow"], Value::Null);
        assert_eq!(Agreed::new(&negotiated, Some(64)).to_json()["CommandWindow"], 64);
    }
}
