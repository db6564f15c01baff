//! Operational keys: the values of the target, and wrong answers.

use std::collections::BTreeMap;

/// Values of the target for the keys of RFC 7143 §13, and deviations from the rules of that section.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Keys {
    /// `HeaderDigest`.
    pub header_digest: DigestPolicy,
    /// `DataDigest`.
    pub data_digest: DigestPolicy,
    /// `MaxConnections`, 1 to 65535.
    pub max_connections: u32,
    /// `InitialR2T`.
    pub initial_r2t: bool,
    /// `ImmediateData`.
    pub immediate_data: bool,
    /// `MaxRecvDataSegmentLength` of the target in bytes, 512 to 2^24-1; `None` declares nothing, which means
    /// 8192.
    pub max_recv_data_segment_length: Option<u32>,
    /// `MaxBurstLength` in bytes, 512 to 2^24-1.
    pub max_burst_length: u32,
    /// `FirstBurstLength` in bytes, 512 to 2^24-1.
    pub first_burst_length: u32,
    /// `DefaultTime2Wait` in seconds, 0 to 3600.
    pub default_time2wait: u32,
    /// `DefaultTime2Retain` in seconds, 0 to 3600.
    pub default_time2retain: u32,
    /// `MaxOutstandingR2T`, 1 to 65535.
    pub max_outstanding_r2t: u32,
    /// `DataPDUInOrder`.
    pub data_pdu_in_order: bool,
    /// `DataSequenceInOrder`.
    pub data_sequence_in_order: bool,
    /// `ErrorRecoveryLevel` that the target announces, 0 to 2; the target implements level 0 only.
    pub error_recovery_level: u32,
    /// `iSCSIProtocolLevel` (RFC 7144); `None` answers NotUnderstood.
    pub protocol_level: Option<u32>,
    /// Answers that replace the right answer, by key. They also replace CHAP and AuthMethod values.
    pub answers: BTreeMap<String, Answer>,
    /// Pairs that the target adds without an offer, once each.
    pub originate: Vec<Origination>,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            header_digest: DigestPolicy::Accept,
            data_digest: DigestPolicy::Accept,
            max_connections: 8,
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length: Some(256 * 1024),
            max_burst_length: 1024 * 1024,
            first_burst_length: 256 * 1024,
            default_time2wait: 2,
            default_time2retain: 20,
            max_outstanding_r2t: 8,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            protocol_level: None,
            answers: BTreeMap::new(),
            originate: Vec::new(),
        }
    }
}

impl Keys {
    /// Replaces the target's answer to one key.
    pub fn answer(&mut self, key: impl Into<String>, answer: Answer) -> &mut Self {
        self.answers.insert(key.into(), answer);
        self
    }

    /// Adds a pair that the target sends without an offer.
    pub fn originate(&mut self, stage: Stage, key: &str, value: &str) -> &mut Self {
        self.originate.push(Origination { stage, key: key.into(), value: value.into() });
        self
    }
}

/// Digests that the target accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestPolicy {
    /// Answers None; refuses the login if None is not offered.
    Never,
    /// Takes the first offered digest that it knows.
    Accept,
    /// Answers CRC32C; refuses the login if CRC32C is not offered.
    Require,
}

/// An answer that replaces the target's correct answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The answer is omitted.
    Omit,
    /// This value is the answer, whatever was offered.
    Literal(String),
}

impl From<&str> for Answer {
    fn from(value: &str) -> Self {
        Self::Literal(value.into())
    }
}

/// The login response to which the target adds a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// The first response of the security stage.
    Security,
    /// The first response of the operational stage.
    Operational,
}

/// A pair that the target adds without an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origination {
    /// The stage in which the pair is added.
    pub stage: Stage,
    /// The key, valid or not.
    pub key: String,
    /// The value.
    pub value: String,
}
