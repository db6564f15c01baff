//! Behavior of logins, reads and writes: mostly legal, but uncommon.

/// How the target requests write data (RFC 7143 §11.8).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct R2tBehavior {
    /// Bytes per R2T, at most `MaxBurstLength`; `None` means `MaxBurstLength`.
    pub burst: Option<u32>,
    /// Bytes per R2T, which may exceed `MaxBurstLength`: some targets send such R2Ts. `None` means `burst`.
    pub oversized_burst: Option<u32>,
    /// Order in which the ranges of a task are requested.
    pub order: R2tOrder,
    /// R2Ts outstanding per task, at most `MaxOutstandingR2T`; `None` means `MaxOutstandingR2T`.
    pub outstanding: Option<u32>,
    /// Whether the first range of a task is requested a second time, after all others.
    pub repeat_first: bool,
    /// Number of write tasks that must wait before any of them gets an R2T; then the newest gets its R2T
    /// first. 1 serves each task immediately.
    pub gather_tasks: usize,
    /// The first target transfer tag. Later tags count up and skip the reserved value.
    pub first_tag: u32,
}

impl Default for R2tBehavior {
    fn default() -> Self {
        Self {
            burst: None,
            oversized_burst: None,
            order: R2tOrder::Rising,
            outstanding: None,
            repeat_first: false,
            gather_tasks: 1,
            first_tag: 0,
        }
    }
}

/// The order in which the ranges of one write are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum R2tOrder {
    /// By rising offset.
    Rising,
    /// By falling offset; only when `DataSequenceInOrder` is No, else rising.
    Falling,
}

/// How the target sends read data (RFC 7143 §11.7).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DataInBehavior {
    /// Bytes per PDU, at most the initiator's `MaxRecvDataSegmentLength`; `None` means that limit.
    pub pdu: Option<u32>,
    /// Bytes per sequence; `None` means `MaxBurstLength`.
    pub sequence: Option<u32>,
    /// Whether the PDUs of a sequence are sent by falling offset, if `DataPDUInOrder` is No.
    pub shuffle_pdus: bool,
    /// Whether the sequences are sent by falling offset, if `DataSequenceInOrder` is No.
    pub shuffle_sequences: bool,
    /// Whether the status is sent in a separate SCSI response instead of in the last Data-In.
    pub separate_status: bool,
    /// Whether an empty Data-In precedes the data.
    pub empty_first: bool,
    /// Whether the Data-In PDUs of several reads alternate.
    pub interleave: bool,
    /// The byte that pads data segments.
    pub pad: u8,
    /// Whether fields that have no meaning without the S bit contain arbitrary values.
    pub junk: bool,
    /// Whether `ExpDataSN` of responses is always 0, as in the responses of some targets.
    pub zero_exp_data_sn: bool,
    /// Whether parameter data that are shorter than requested have no residual, as some targets do.
    pub no_residual: bool,
}

/// How the target behaves during a login (RFC 7143 §6.3).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LoginBehavior {
    /// Responses with T=0 before the target agrees to leave a stage.
    pub extra_rounds: u32,
    /// Bytes of text per login response, at most 8192; `None` means 8192. Longer text is split into several
    /// responses with C=1.
    pub split: Option<usize>,
    /// The redirection that every login receives; `None` redirects no login.
    pub redirect: Option<Redirect>,
    /// Status-Class and Status-Detail with which every login is refused, or only the first `refuse_times`;
    /// `None` refuses no login.
    pub refuse: Option<(u8, u8)>,
    /// The number of logins that are refused; 0 is all.
    pub refuse_times: u32,
    /// TSIH in the final response; `None` sends the right one.
    pub tsih: Option<u16>,
    /// Version-active; 0 is correct.
    pub version_active: u8,
    /// Whether the target sends no login response.
    pub silent: bool,
}

/// The state of all units of a target. A target that starts may accept logins before its units are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Presence {
    /// Units are served.
    #[default]
    Served,
    /// Units are becoming ready: commands end with NOT READY, 04h/01h, except those that a unit serves in any state.
    BecomingReady,
    /// The target has no units.
    Missing,
}

/// A redirection (RFC 7143 §11.13.5, Status-Class 1).
#[derive(Clone, Debug)]
pub struct Redirect {
    /// `TargetAddress`: host, or host:port.
    pub address: String,
    /// Status-Detail 2 instead of 1.
    pub permanent: bool,
    /// Whether the initiator must authenticate first.
    pub after_authentication: bool,
}

/// The response to SendTargets (RFC 7143 appendix C).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Discovery {
    /// Targets with their addresses. If the list is empty, the response lists the target itself, with an
    /// address only if the target is served over TCP.
    pub targets: Vec<Portal>,
    /// Whether the response lists no target, if `targets` is empty.
    pub nothing: bool,
    /// Bytes of text per response; `None` means no limit. Longer text is split into several responses.
    pub split: Option<usize>,
    /// Whether the parts of a split text are marked with C=1. Otherwise each part is a complete response with
    /// F=0.
    pub with_continue: bool,
    /// Pairs that do not belong in the list and are sent before it.
    pub foreign: Vec<(String, String)>,
    /// Whether a normal session is dropped when it sends a text request, as tgt does.
    pub drops_normal_sessions: bool,
}

/// A target with its addresses in a discovery list.
#[derive(Clone, Debug)]
pub struct Portal {
    /// `TargetName`.
    pub name: String,
    /// `TargetAddress` values, each `host[:port],tag`.
    pub addresses: Vec<String>,
}
