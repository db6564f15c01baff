//! What was agreed at login.

use iscsi_pdu::Digest;

/// The operational parameters in force on a connection and its session (RFC 7143 §13).
///
/// The two MaxRecvDataSegmentLengths are declarations, one a direction, and are never mixed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Negotiated {
    /// HeaderDigest of this connection (§13.1).
    pub header_digest: Digest,
    /// DataDigest of this connection (§13.1).
    pub data_digest: Digest,
    /// The longest data segment the target may send on this connection, bytes (§13.12).
    pub initiator_max_recv_data_segment_length: u32,
    /// The longest data segment the initiator may send on this connection, bytes (§13.12).
    pub target_max_recv_data_segment_length: u32,
    /// MaxConnections (§13.2).
    pub max_connections: u16,
    /// InitialR2T (§13.10).
    pub initial_r2t: bool,
    /// ImmediateData (§13.11).
    pub immediate_data: bool,
    /// MaxBurstLength, bytes (§13.13).
    pub max_burst_length: u32,
    /// FirstBurstLength, bytes (§13.14).
    pub first_burst_length: u32,
    /// DefaultTime2Wait, seconds (§13.15).
    pub default_time2wait: u16,
    /// DefaultTime2Retain, seconds (§13.16).
    pub default_time2retain: u16,
    /// MaxOutstandingR2T (§13.17).
    pub max_outstanding_r2t: u16,
    /// DataPDUInOrder (§13.18).
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder (§13.19).
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel (§13.20).
    pub error_recovery_level: u8,
    /// iSCSIProtocolLevel; 1 unless both sides agreed on more (RFC 7144).
    pub protocol_level: u8,
    /// TargetPortalGroupTag, if the target said it (§13.9).
    pub target_portal_group_tag: Option<u16>,
    /// TargetAlias, if the target said it (§13.6).
    pub target_alias: Option<String>,
}

impl Default for Negotiated {
    /// The defaults of RFC 7143 §13, in force for every key that was never declared.
    fn default() -> Self {
        Self {
            header_digest: Digest::None,
            data_digest: Digest::None,
            initiator_max_recv_data_segment_length: 8192,
            target_max_recv_data_segment_length: 8192,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            default_time2wait: 2,
            default_time2retain: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            protocol_level: 1,
            target_portal_group_tag: None,
            target_alias: None,
        }
    }
}
