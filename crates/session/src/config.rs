//! Configuration of a session: identity, operational parameters, credentials, time limits.

use std::time::Duration;

use iscsi_pdu::keys::ChapAlgorithm;
use iscsi_pdu::scsi::Cdb;
use iscsi_pdu::{CmdSn, IscsiName, Isid};

use crate::chap::{IssuedChallenges, Secret};

/// Everything that a session must know before its first connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The initiator's node name, sent as InitiatorName (RFC 7143 §13.5).
    pub initiator_name: IscsiName,
    /// A display name, sent as InitiatorAlias (RFC 7143 §13.7).
    pub initiator_alias: Option<String>,
    /// The initiator's part of the session identifier (RFC 7143 §11.12.5).
    pub isid: Isid,
    /// The kind of session: discovery, or commands to one target.
    pub kind: SessionKind,
    /// CmdSN of the login requests and of the first command; any value is legal.
    pub first_cmd_sn: CmdSn,
    /// The first value of the upper 18 bits of the task tags. These bits count how often the slot (index in
    /// the task table) in the lower 14 bits was used. Any value is legal; it is taken modulo 262,143.
    pub first_tag_generation: u32,
    /// Operational parameters to propose.
    pub offer: Offer,
    /// Credentials; without them the login skips the security stage (RFC 7143 §6.3).
    pub chap: Option<Chap>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// The number of outstanding tasks of any kind at which further requests of the caller are refused, 1 to
    /// 4096.
    pub max_tasks: usize,
    /// The only TargetPortalGroupTag that is accepted, if the target declares one; `None` accepts any (RFC
    /// 7143 §13.9).
    pub expected_portal_group_tag: Option<u16>,
    /// The most redirections in a row that are followed before the login fails.
    pub max_redirects: u8,
    /// Challenges issued by the sessions of this process, so that a reflected one is detected.
    pub issued_challenges: IssuedChallenges,
}

impl Config {
    /// Creates a configuration whose offers suit long links.
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
    /// A discovery session: it sends only SendTargets and a logout.
    Discovery,
    /// A normal session: it sends SCSI commands to the logical units of one target.
    Normal {
        /// The target's node name, sent as TargetName (RFC 7143 §13.4).
        target_name: IscsiName,
    },
}

/// The operational parameters to propose (RFC 7143 §13).
///
/// A proposal is not a result: the values in force after the login are in [`crate::Negotiated`].
/// ErrorRecoveryLevel is always proposed as 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Offer {
    pub(crate) header_digest: DigestOffer,
    pub(crate) data_digest: DigestOffer,
    pub(crate) max_connections: u16,
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    pub(crate) max_recv_data_segment_length: u32,
    pub(crate) max_burst_length: u32,
    pub(crate) first_burst_length: u32,
    pub(crate) default_time2wait: u16,
    pub(crate) default_time2retain: u16,
    pub(crate) max_outstanding_r2t: u16,
    pub(crate) data_pdu_in_order: bool,
    pub(crate) data_sequence_in_order: bool,
    pub(crate) protocol_level: Option<u8>,
}

impl Offer {
    /// Sets HeaderDigest (§13.1). Discovery sessions always propose None.
    #[must_use]
    pub const fn with_header_digest(mut self, header_digest: DigestOffer) -> Self {
        self.header_digest = header_digest;
        self
    }

    /// Sets DataDigest (§13.1). Discovery sessions always propose None.
    #[must_use]
    pub const fn with_data_digest(mut self, data_digest: DigestOffer) -> Self {
        self.data_digest = data_digest;
        self
    }

    /// Sets MaxConnections, 1 to 65535 (§13.2).
    #[must_use]
    pub const fn with_max_connections(mut self, max_connections: u16) -> Self {
        self.max_connections = max_connections;
        self
    }

    /// Sets InitialR2T (§13.10). With No, a write starts without a round trip.
    #[must_use]
    pub const fn with_initial_r2t(mut self, initial_r2t: bool) -> Self {
        self.initial_r2t = initial_r2t;
        self
    }

    /// Sets ImmediateData (§13.11).
    #[must_use]
    pub const fn with_immediate_data(mut self, immediate_data: bool) -> Self {
        self.immediate_data = immediate_data;
        self
    }

    /// Sets MaxRecvDataSegmentLength as declared to the target, bytes, 512 to 2^24-1 (§13.12).
    #[must_use]
    pub const fn with_max_recv_data_segment_length(
        mut self,
        max_recv_data_segment_length: u32,
    ) -> Self {
        self.max_recv_data_segment_length = max_recv_data_segment_length;
        self
    }

    /// Sets MaxBurstLength, bytes, 512 to 2^24-1 (§13.13).
    #[must_use]
    pub const fn with_max_burst_length(mut self, max_burst_length: u32) -> Self {
        self.max_burst_length = max_burst_length;
        self
    }

    /// Sets FirstBurstLength, bytes, 512 to 2^24-1, at most MaxBurstLength (§13.14).
    #[must_use]
    pub const fn with_first_burst_length(mut self, first_burst_length: u32) -> Self {
        self.first_burst_length = first_burst_length;
        self
    }

    /// Sets DefaultTime2Wait, seconds, 0 to 3600 (§13.15).
    #[must_use]
    pub const fn with_default_time2wait(mut self, default_time2wait: u16) -> Self {
        self.default_time2wait = default_time2wait;
        self
    }

    /// Sets DefaultTime2Retain, seconds, 0 to 3600 (§13.16).
    #[must_use]
    pub const fn with_default_time2retain(mut self, default_time2retain: u16) -> Self {
        self.default_time2retain = default_time2retain;
        self
    }

    /// Sets MaxOutstandingR2T, 1 to 65535 (§13.17).
    #[must_use]
    pub const fn with_max_outstanding_r2t(mut self, max_outstanding_r2t: u16) -> Self {
        self.max_outstanding_r2t = max_outstanding_r2t;
        self
    }

    /// Sets DataPDUInOrder (§13.18).
    #[must_use]
    pub const fn with_data_pdu_in_order(mut self, data_pdu_in_order: bool) -> Self {
        self.data_pdu_in_order = data_pdu_in_order;
        self
    }

    /// Sets DataSequenceInOrder (§13.19).
    #[must_use]
    pub const fn with_data_sequence_in_order(mut self, data_sequence_in_order: bool) -> Self {
        self.data_sequence_in_order = data_sequence_in_order;
        self
    }

    /// Sets the iSCSIProtocolLevel to propose, 0 to 31; `None` does not send the key (RFC 7144).
    #[must_use]
    pub const fn with_protocol_level(mut self, protocol_level: Option<u8>) -> Self {
        self.protocol_level = protocol_level;
        self
    }

    /// Returns MaxConnections.
    #[must_use]
    pub const fn max_connections(&self) -> u16 {
        self.max_connections
    }

    /// Returns InitialR2T.
    #[must_use]
    pub const fn initial_r2t(&self) -> bool {
        self.initial_r2t
    }

    /// Returns MaxRecvDataSegmentLength, bytes.
    #[must_use]
    pub const fn max_recv_data_segment_length(&self) -> u32 {
        self.max_recv_data_segment_length
    }

    /// Returns MaxBurstLength, bytes.
    #[must_use]
    pub const fn max_burst_length(&self) -> u32 {
        self.max_burst_length
    }

    /// Returns FirstBurstLength, bytes.
    #[must_use]
    pub const fn first_burst_length(&self) -> u32 {
        self.first_burst_length
    }

    /// Returns MaxOutstandingR2T.
    #[must_use]
    pub const fn max_outstanding_r2t(&self) -> u16 {
        self.max_outstanding_r2t
    }
}

/// The longest burst that is proposed, bytes: the largest multiple of 4096 that fits into 24 bits.
pub(crate) const PROPOSED_BURST: u32 = 4095 * 4096;

impl Default for Offer {
    /// Returns an offer for long links: no round trip before the first burst, bursts of up to 16 MiB, 32
    /// R2Ts.
    fn default() -> Self {
        // `iscsi-initiator` proposes the bursts and the R2Ts of its plan instead: `offer` in `policy.rs` of
        // `iscsi-tuner`.
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
    /// `None,CRC32C`: a digest only if the target requires it.
    #[default]
    NoneFirst,
    /// `CRC32C,None`: a digest if the target supports it.
    Crc32cFirst,
    /// `CRC32C`: no session without a digest.
    Required,
}

impl DigestOffer {
    /// Returns the list value as it is sent.
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
    /// The secret with which the initiator authenticates to the target.
    pub secret: Secret,
    /// The credentials with which the target must authenticate; `None` is one-way CHAP.
    pub target: Option<TargetCredentials>,
    /// CHAP_A list, in order of preference; not empty.
    pub algorithms: Vec<ChapAlgorithm>,
    /// Whether a secret shorter than 96 bits may be used (RFC 7143 §9.2.1).
    pub allow_short_secret: bool,
}

impl Chap {
    /// Creates one-way CHAP with every algorithm, the strongest first.
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

/// The name and secret with which a target must authenticate in mutual CHAP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetCredentials {
    /// CHAP_N that the target must send; `None` accepts any name, so that only the response is checked.
    pub user: Option<String>,
    /// The secret of the target; must differ from the initiator's.
    pub secret: Secret,
}

impl TargetCredentials {
    /// Creates credentials without a name: any name is accepted if the response is right.
    pub const fn new(secret: Secret) -> Self {
        Self { user: None, secret }
    }

    /// Sets the CHAP_N that the target must send.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }
}

/// Time limits; `None` means no limit. If the process is stopped when the time limit of a login or a request
/// ends, the time limit starts again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    pub(crate) login: Duration,
    pub(crate) command: Option<Duration>,
    pub(crate) task_management: Duration,
    pub(crate) nop_interval: Option<Duration>,
    pub(crate) nop_response: Duration,
    pub(crate) logout: Duration,
}

impl Timeouts {
    /// Sets the time limit from the request for a connection to full feature phase (15 s by default).
    #[must_use]
    pub const fn with_login(mut self, login: Duration) -> Self {
        self.login = login;
        self
    }

    /// Sets the time limit from the submission of a command to its status, unless the command sets its own
    /// (60 s by default; `None` sets no limit). SYNCHRONIZE CACHE may take ten times as long: its duration
    /// depends on everything that is in the cache, and an aborted one has to start from the beginning.
    #[must_use]
    pub const fn with_command(mut self, command: Option<Duration>) -> Self {
        self.command = command;
        self
    }

    /// Sets the time limit from a task management request to its response (10 s by default). When it ends,
    /// the session is dropped.
    #[must_use]
    pub const fn with_task_management(mut self, task_management: Duration) -> Self {
        self.task_management = task_management;
        self
    }

    /// Sets how long no byte may move on a connection before the session sends a NOP-Out, to check that the
    /// target is alive (15 s by default; `None` sends none).
    #[must_use]
    pub const fn with_nop_interval(mut self, nop_interval: Option<Duration>) -> Self {
        self.nop_interval = nop_interval;
        self
    }

    /// Sets the time limit after a NOP-Out of the session (30 s by default). It starts again with each byte
    /// that moves on the connection, in either direction. When it ends, the connection counts as lost, except
    /// as [`Session::host_acknowledges`](crate::Session::host_acknowledges) describes.
    #[must_use]
    pub const fn with_nop_response(mut self, nop_response: Duration) -> Self {
        self.nop_response = nop_response;
        self
    }

    /// Sets the time limit from the logout request to its response (5 s by default).
    #[must_use]
    pub const fn with_logout(mut self, logout: Duration) -> Self {
        self.logout = logout;
        self
    }
}

impl Timeouts {
    /// Factor by which SYNCHRONIZE CACHE may take longer than other commands.
    const FLUSH_FACTOR: u32 = 10;

    /// Returns the time limit of a command that does not set its own.
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
