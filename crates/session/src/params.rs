//! Parameters agreed at login.

use iscsi_pdu::Digest;
use iscsi_pdu::keys::Key;

/// The operational parameters in force on a connection and its session (RFC 7143 §13).
///
/// The two MaxRecvDataSegmentLengths are declarations, one per direction, and may differ.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Negotiated {
    /// HeaderDigest of this connection (§13.1).
    pub header_digest: Digest,
    /// DataDigest of this connection (§13.1).
    pub data_digest: Digest,
    /// MaxRecvDataSegmentLength of the initiator: the longest data segment that the target may send on this
    /// connection, bytes (§13.12).
    pub initiator_max_recv_data_segment_length: u32,
    /// MaxRecvDataSegmentLength of the target: the longest data segment that the initiator may send on this
    /// connection, bytes (§13.12).
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
    /// TargetPortalGroupTag, if the target sent one (§13.9).
    pub target_portal_group_tag: Option<u16>,
    /// TargetAlias, if the target sent one (§13.6), as [printable](iscsi_pdu::keys::printable) text.
    pub target_alias: Option<String>,
}

impl Default for Negotiated {
    /// Returns the defaults of RFC 7143 §13, which apply to every key that is not negotiated.
    fn default() -> Self {
        Self {
            header_digest: Digest::None,
            data_digest: Digest::None,
            initiator_max_recv_data_segment_length: number(Key::MaxRecvDataSegmentLength),
            target_max_recv_data_segment_length: number(Key::MaxRecvDataSegmentLength),
            max_connections: narrow(number(Key::MaxConnections)),
            initial_r2t: boolean(Key::InitialR2T),
            immediate_data: boolean(Key::ImmediateData),
            max_burst_length: number(Key::MaxBurstLength),
            first_burst_length: number(Key::FirstBurstLength),
            default_time2wait: narrow(number(Key::DefaultTime2Wait)),
            default_time2retain: narrow(number(Key::DefaultTime2Retain)),
            max_outstanding_r2t: narrow(number(Key::MaxOutstandingR2T)),
            data_pdu_in_order: boolean(Key::DataPDUInOrder),
            data_sequence_in_order: boolean(Key::DataSequenceInOrder),
            error_recovery_level: narrow(number(Key::ErrorRecoveryLevel)),
            protocol_level: narrow(number(Key::ISCSIProtocolLevel)),
            target_portal_group_tag: None,
            target_alias: None,
        }
    }
}

fn number(key: Key) -> u32 {
    key.definition().kind.default_number().unwrap_or_default()
}

fn boolean(key: Key) -> bool {
    key.definition().kind.default_boolean().unwrap_or_default()
}

/// Converts a default of the table to the type of its field. Invariant: the default is in the range of that
/// type.
fn narrow<T: TryFrom<u32> + Default>(number: u32) -> T {
    T::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 §13.2-13.20: every default of the table is in its field.
    #[test]
    fn defaults_are_those_of_the_standard() {
        let Negotiated {
            initiator_max_recv_data_segment_length: receive,
            target_max_recv_data_segment_length: send,
            max_burst_length: burst,
            first_burst_length: first,
            ..
        } = Negotiated::default();
        assert_eq!([receive, send, burst, first], [8192, 8192, 262_144, 65_536]);
        let terms = Negotiated::default();
        let times = (terms.default_time2wait, terms.default_time2retain);
        assert_eq!((terms.max_connections, terms.max_outstanding_r2t, times), (1, 1, (2, 20)));
        assert!(terms.initial_r2t && terms.immediate_data);
        assert!(terms.data_pdu_in_order && terms.data_sequence_in_order);
        assert_eq!((terms.error_recovery_level, terms.protocol_level), (0, 1));
    }
}
