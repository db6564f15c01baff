//! What the initiator asks for: identity, operational parameters, credentials, time limits.

use std::time::Duration;

use iscsi_pdu::keys::ChapAlgorithm;
use iscsi_pdu::scsi::Cdb;
use iscsi_pdu::{CmdSn, IscsiName, Isid};

use crate::chap::{IssuedChallenges, Secret};

/// Everything a session needs to know before its first connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The initiator's node name, sent as InitiatorName (RFC 7143 §13.5).
    pub initiator_name: IscsiName,
    /// A display name, sent as InitiatorAlias (RFC 7143 §13.7).
    pub initiator_alias: Option<String>,
    /// The initiator's part of the session identifier (RFC 7143 §11.12.5).
    pub isid: Isid,
    /// Discovery, or commands to one target.
    pub kind: SessionKind,
    /// CmdSN of the login requests and of the first command; any value is legal.
    pub first_cmd_sn: CmdSn,
    /// The upper 18 bits of the first task tags: how often each tag counts as used before. They go round at 262,143, and any
    /// value is legal.
    pub first_tag_generation: u32,
    /// Operational parameters to propose.
    pub offer: Offer,
    /// Credentials; without them the login skips the security stage (RFC 7143 §6.3).
    pub chap: Option<Chap>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// The most tasks of any kind that may be outstanding, 1 to 4096.
    pub max_tasks: usize,
    /// TargetPortalGroupTag to insist on, if any (RFC 7143 §13.9).
    pub expected_portal_group_tag: Option<u16>,
    /// The most redirections in a row that are followed before the login fails.
    pub max_redirects: u8,
    /// Challenges issued by the sessions of this process, so that a reflected one is seen.
    pub issued_challenges: IssuedChallenges,
}

impl Config {
    /// A configuration with this project's offers for long links.
    pub fn new(initiator_name: IscsiName, isid: Isid, kind: SessionKind) -> Self {
        Self {
            initiator_name,
            initiator_alias: None,
            isid,
            kind,
            first_cmd_sn: CmdSn::new(1),
            first_tag_generation: 0,
            offer: Offer::default(),
            chap: None,
            timeouts: Timeouts::default(),
            max_tasks: 1024,
            expected_portal_group_tag: None,
            max_redirects: 8,
            issued_challenges: IssuedChallenges::default(),
        }
    }
}

/// The two kinds of session (RFC 7143 §4.3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SessionKind {
    /// Only SendTargets and logout.
    Discovery,
    /// SCSI commands to the logical units of one target.
    Normal {
        /// The target's node name, sent as TargetName (RFC 7143 §13.4).
        target_name: IscsiName,
    },
}

/// The operational parameters to propose (RFC 7143 §13).
///
/// A proposal is not a result: what holds after login is in [`crate::Negotiated`].
/// ErrorRecoveryLevel is always proposed as 0.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Offer {
    /// HeaderDigest (§13.1). Discovery sessions always propose None.
    pub header_digest: DigestOffer,
    /// DataDigest (§13.1). Discovery sessions always propose None.
    pub data_digest: DigestOffer,
    /// MaxConnections, 1 to 65535 (§13.2).
    pub max_connections: u16,
    /// InitialR2T (§13.10); No lets writes start without a round trip.
    pub initial_r2t: bool,
    /// ImmediateData (§13.11).
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength declared to the target, bytes, 512 to 2^24-1 (§13.12).
    pub max_recv_data_segment_length: u32,
    /// MaxBurstLength, bytes, 512 to 2^24-1 (§13.13).
    pub max_burst_length: u32,
    /// FirstBurstLength, bytes, 512 to 2^24-1, at most `max_burst_length` (§13.14).
    pub first_burst_length: u32,
    /// DefaultTime2Wait, seconds, 0 to 3600 (§13.15).
    pub default_time2wait: u16,
    /// DefaultTime2Retain, seconds, 0 to 3600 (§13.16).
    pub default_time2retain: u16,
    /// MaxOutstandingR2T, 1 to 65535 (§13.17).
    pub max_outstanding_r2t: u16,
    /// DataPDUInOrder (§13.18).
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder (§13.19).
    pub data_sequence_in_order: bool,
    /// iSCSIProtocolLevel to propose, 0 to 31; `None` does not send the key (RFC 7144).
    pub protocol_level: Option<u8>,
}

/// The greatest length of a burst that is proposed, bytes: the largest multiple of 4096 that a 24-bit length can hold.
pub(crate) const PROPOSED_BURST: u32 = 4095 * 4096;

impl Default for Offer {
    /// For long links: no round trip before the first burst, bursts of up to 16 MiB, 32 R2Ts.
    fn default() -> Self {
        Self {
            header_digest: DigestOffer::NoneFirst,
            data_digest: DigestOffer::NoneFirst,
            max_connections: 1,
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length: 256 * 1024,
            max_burst_length: PROPOSED_BURST,
            first_burst_length: PROPOSED_BURST,
            default_time2wait: 2,
            default_time2retain: 20,
            max_outstanding_r2t: 32,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            protocol_level: None,
        }
    }
}

/// The digests to propose: the list, in order of preference (RFC 7143 §13.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DigestOffer {
    /// `None`: never a digest.
    Never,
    /// `None,CRC32C`: a digest only if the target insists.
    #[default]
    NoneFirst,
    /// `CRC32C,None`: a digest if the target can.
    Crc32cFirst,
    /// `CRC32C`: no session without a digest.
    Required,
}

impl DigestOffer {
    /// The list value as sent.
    pub const fn as_list(self) -> &'static str {
        match self {
            Self::Never => "None",
            Self::NoneFirst => "None,CRC32C",
            Self::Crc32cFirst => "CRC32C,None",
            Self::Required => "CRC32C",
        }
    }
}

/// CHAP credentials (RFC 7143 §12.1.3, §9.2.1).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chap {
    /// CHAP_N of the initiator, 1 to 255 bytes.
    pub user: String,
    /// The secret that proves the initiator to the target.
    pub secret: Secret,
    /// The credentials that the target must prove; `None` is one-way CHAP.
    pub target: Option<TargetCredentials>,
    /// CHAP_A list, in order of preference; not empty.
    pub algorithms: Vec<ChapAlgorithm>,
    /// Whether a secret shorter than 96 bits may be used (RFC 7143 §9.2.1).
    pub allow_short_secret: bool,
}

impl Chap {
    /// One-way CHAP with every algorithm, the strongest first.
    pub fn new(user: impl Into<String>, secret: Secret) -> Self {
        Self {
            user: user.into(),
            secret,
            target: None,
            algorithms: ChapAlgorithm::ALL.to_vec(),
            allow_short_secret: true,
        }
    }
}

/// The name and secret that a target must prove in mutual CHAP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetCredentials {
    /// CHAP_N the target must answer with; `None` accepts any name, the response decides.
    pub user: Option<String>,
    /// The secret that proves the target to the initiator; must differ from the initiator's.
    pub secret: Secret,
}

impl TargetCredentials {
    /// Any name is accepted if the response proves the secret.
    pub const fn new(secret: Secret) -> Self {
        Self { user: None, secret }
    }

    /// The target must answer with this name, too.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }
}

/// Time limits; `None` waits for ever.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Timeouts {
    /// From the request for a connection to full feature phase.
    pub login: Duration,
    /// From submission of a command to its status, unless the command says otherwise. SYNCHRONIZE CACHE may take ten
    /// times as long: what it takes depends on all that lies in the cache, and one that is given up has to begin again.
    pub command: Option<Duration>,
    /// From a task management request to its response, before the session is dropped.
    pub task_management: Duration,
    /// Silence from the target before a NOP-Out asks for a sign of life.
    pub nop_interval: Option<Duration>,
    /// From that NOP-Out to any PDU from the target, before the connection counts as lost; but see
    /// [`Session::host_acknowledges`](crate::Session::host_acknowledges).
    pub nop_response: Duration,
    /// From the logout request to its response.
    pub logout: Duration,
}

impl Timeouts {
    /// How much longer than another command SYNCHRONIZE CACHE may take.
    const FLUSH_FACTOR: u32 = 10;

    /// How long a command may take that does not say so itself.
    pub(crate) fn of(&self, cdb: &Cdb) -> Option<Duration> {
        let factor = if cdb.synchronizes_cache() { Self::FLUSH_FACTOR } else { 1 };
        self.command.map(|limit| limit.saturating_mul(factor))
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            login: Duration::from_secs(15),
            command: Some(Duration::from_secs(60)),
            task_management: Duration::from_secs(10),
            nop_interval: Some(Duration::from_secs(15)),
            nop_response: Duration::from_secs(30),
            logout: Duration::from_secs(5),
        }
    }
}
