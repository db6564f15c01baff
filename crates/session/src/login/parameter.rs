//! One negotiated key: the initiator's value, and the result (RFC 7143 §6.2).

use std::fmt;

use iscsi_pdu::keys::{
    IRRELEVANT, Key, Kind, NOT_UNDERSTOOD, REJECT, RFC3720, TextError, format_boolean, list_values,
    parse_boolean,
};

use super::error::NegotiationFault;
use crate::config::{Config, DigestOffer, Offer, SessionKind};

/// A value as the initiator sends it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Number(u32),
    Boolean(bool),
    /// One or more values, comma separated, in order of preference.
    List(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Boolean(boolean) => f.write_str(format_boolean(*boolean)),
            Self::List(list) => f.write_str(list),
        }
    }
}

/// Returns whether a value is one of the reserved answers, which must not be used as a proposal (RFC 7143
/// §6.2).
pub(super) fn is_reserved_answer(value: &str) -> bool {
    [REJECT, IRRELEVANT, NOT_UNDERSTOOD].contains(&value)
}

/// A key for which the initiator has a value.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) key: Key,
    pub(super) own: Value,
    /// Whether the initiator proposes its value, so that the target's value is an answer.
    pub(super) proposed: bool,
    /// The result; if there is none, the default applies.
    pub(super) outcome: Option<Value>,
}

impl Parameter {
    fn proposed(key: Key, own: Value) -> Self {
        Self { key, own: in_range(key, own), proposed: true, outcome: None }
    }

    fn kind(&self) -> &'static Kind {
        &self.key.definition().kind
    }

    /// Records the target's answer to the initiator's proposal. The answer is the result, if the proposal
    /// allows it.
    pub(super) fn take_answer(&mut self, answer: &str) -> Result<(), NegotiationFault> {
        if self.keeps_value(answer)? {
            return Ok(());
        }
        let outcome = match self.own {
            Value::Number(own) => {
                let answered = self.kind().check_number(answer)?;
                let legal = self.kind().number_result(own, answered) == answered;
                legal.then_some(Value::Number(answered))
            }
            Value::Boolean(own) => {
                let answered = parse_boolean(answer)?;
                let legal = self.kind().boolean_result(own, answered) == answered;
                legal.then_some(Value::Boolean(answered))
            }
            Value::List(own) => pick(own, answer),
        };
        self.outcome = Some(outcome.ok_or_else(|| self.not_offered(answer))?);
        Ok(())
    }

    /// Returns whether a reserved answer leaves the value unchanged.
    fn keeps_value(&self, answer: &str) -> Result<bool, NegotiationFault> {
        let negotiated = !matches!(self.kind(), Kind::DeclaredNumber { .. });
        match answer {
            REJECT | IRRELEVANT => Ok(negotiated),
            // Only this key is newer than RFC 7143, so a target may not understand it.
            NOT_UNDERSTOOD if self.key == Key::ISCSIProtocolLevel => Ok(true),
            NOT_UNDERSTOOD if negotiated => Err(NegotiationFault::NotUnderstood),
            _ => Ok(false),
        }
    }

    fn not_offered(&self, answer: &str) -> NegotiationFault {
        let answered = answer.chars().take(64).collect();
        NegotiationFault::NotOffered { proposed: self.own.to_string(), answered }
    }

    /// Records the target's proposal, and returns the result, which is sent as the answer; `None` if there is
    /// no possible result.
    pub(super) fn take_proposal(&mut self, proposal: &str) -> Result<Option<Value>, TextError> {
        self.outcome = match self.own {
            Value::Number(own) => {
                let theirs = self.kind().check_number(proposal)?;
                Some(Value::Number(self.kind().number_result(own, theirs)))
            }
            Value::Boolean(own) => {
                let theirs = parse_boolean(proposal)?;
                Some(Value::Boolean(self.kind().boolean_result(own, theirs)))
            }
            Value::List(own) => list_values(proposal).find_map(|item| pick(own, item)),
        };
        Ok(self.outcome)
    }
}

/// Returns the value in a list that equals `item`.
fn pick(list: &'static str, item: &str) -> Option<Value> {
    list_values(list).find(|own| *own == item).map(Value::List)
}

fn in_range(key: Key, value: Value) -> Value {
    match (value, key.definition().kind.range()) {
        (Value::Number(number), Some((min, max))) => Value::Number(number.clamp(min, max)),
        _ => value,
    }
}

/// Returns the keys for which a login has a value: the keys of the connection, and on the leading connection
/// also the keys of the session.
pub(super) fn parameters(config: &Config, leading: bool) -> Vec<Parameter> {
    let discovery = config.kind == SessionKind::Discovery;
    let mut parameters = of_connection(&config.offer, discovery);
    if leading {
        parameters.extend(of_session(&config.offer, discovery));
    }
    parameters
}

fn of_connection(offer: &Offer, discovery: bool) -> Vec<Parameter> {
    let digest = |wanted: DigestOffer| {
        // Some targets agree to a digest for a discovery session and then do not use it, so none is proposed.
        let offered = if discovery { DigestOffer::Never } else { wanted };
        Value::List(offered.as_list())
    };
    let receive = Value::Number(offer.max_recv_data_segment_length);
    vec![
        Parameter::proposed(Key::HeaderDigest, digest(offer.header_digest)),
        Parameter::proposed(Key::DataDigest, digest(offer.data_digest)),
        Parameter::proposed(Key::MaxRecvDataSegmentLength, receive),
    ]
}

/// Returns the keys of a session. A discovery session proposes none of them, but answers those that the
/// target proposes.
fn of_session(offer: &Offer, discovery: bool) -> impl Iterator<Item = Parameter> {
    let first_burst = offer.first_burst_length.min(offer.max_burst_length);
    let level = offer.protocol_level.unwrap_or(1);
    let rows = [
        (Key::MaxConnections, Value::Number(offer.max_connections.into()), true),
        (Key::InitialR2T, Value::Boolean(offer.initial_r2t), true),
        (Key::ImmediateData, Value::Boolean(offer.immediate_data), true),
        (Key::MaxBurstLength, Value::Number(offer.max_burst_length), true),
        (Key::FirstBurstLength, Value::Number(first_burst), true),
        (Key::DefaultTime2Wait, Value::Number(offer.default_time2wait.into()), true),
        (Key::DefaultTime2Retain, Value::Number(offer.default_time2retain.into()), true),
        (Key::MaxOutstandingR2T, Value::Number(offer.max_outstanding_r2t.into()), true),
        (Key::DataPDUInOrder, Value::Boolean(offer.data_pdu_in_order), true),
        (Key::DataSequenceInOrder, Value::Boolean(offer.data_sequence_in_order), true),
        (Key::ErrorRecoveryLevel, Value::Number(0), true),
        (Key::ISCSIProtocolLevel, Value::Number(level.into()), offer.protocol_level.is_some()),
        (Key::TaskReporting, Value::List(RFC3720), false),
    ];
    rows.into_iter().map(move |(key, own, proposed)| Parameter {
        proposed: proposed && !discovery,
        ..Parameter::proposed(key, own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(key: Key, own: Value) -> Parameter {
        Parameter::proposed(key, own)
    }

    /// KEY-14, KEY-16: the answer to MaxBurstLength must be the lesser number, and to DefaultTime2Wait the
    /// greater.
    #[test]
    fn key_14_16_answers_keep_to_the_result_function() {
        let mut burst = parameter(Key::MaxBurstLength, Value::Number(8192));
        burst.take_answer("4096").unwrap();
        assert_eq!(burst.outcome, Some(Value::Number(4096)));
        assert!(burst.take_answer("8193").is_err());

        let mut wait = parameter(Key::DefaultTime2Wait, Value::Number(2));
        wait.take_answer("0x5").unwrap();
        assert_eq!(wait.outcome, Some(Value::Number(5)));
        assert!(wait.take_answer("1").is_err());
    }

    /// TXT-15: of the values that are in both lists, the one that is first in the target's list is chosen.
    #[test]
    fn txt_15_first_supported_value_of_a_proposed_list() {
        let mut digest = parameter(Key::HeaderDigest, Value::List("None,CRC32C"));
        let picked = digest.take_proposal("X-foo,CRC32C,None").unwrap();
        assert_eq!(picked, Some(Value::List("CRC32C")));
        assert_eq!(digest.take_proposal("X-foo").unwrap(), None);
    }

    /// UNH login 16.3, QRK-05: whatever is configured, FirstBurstLength does not exceed MaxBurstLength, and
    /// both are in range.
    #[test]
    fn unh_16_3_own_offer_is_legal() {
        let offer = Offer {
            max_burst_length: 1,
            first_burst_length: u32::MAX,
            max_connections: 0,
            ..Offer::default()
        };
        let rows: Vec<_> = of_session(&offer, false).collect();
        let own = |key| rows.iter().find(|row| row.key == key).map(|row| row.own);
        assert_eq!(own(Key::MaxBurstLength), Some(Value::Number(512)));
        assert_eq!(own(Key::FirstBurstLength), Some(Value::Number(512)));
        assert_eq!(own(Key::MaxConnections), Some(Value::Number(1)));
    }
}
