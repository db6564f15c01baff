//! The state of a login in progress.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::target::params::Params;
use crate::target::session::Nexus;

/// Progress of an authentication.
#[derive(Clone, Debug, Default)]
pub(crate) enum Progress {
    /// CHAP is not chosen.
    #[default]
    Idle,
    /// CHAP is chosen; the initiator lists its algorithms next.
    Chosen,
    /// The target has sent a challenge, and the initiator must respond.
    Challenged {
        algorithm: u8,
        challenge: Vec<u8>,
    },
    Done,
}

/// A login in progress.
#[derive(Debug, Default)]
pub(crate) struct Login {
    pub(crate) nexus: Nexus,
    pub(crate) discovery: bool,
    pub(crate) params: Params,
    pub(crate) request: Vec<u8>,
    /// The part of the response text to the last request that was not sent yet.
    pub(crate) answer: Option<Bytes>,
    pub(crate) progress: Progress,
    pub(crate) identified: bool,
    pub(crate) declared: bool,
    pub(crate) originated: BTreeSet<String>,
    pub(crate) visited: [bool; 4],
    pub(crate) rounds: u32,
    pub(crate) redirected: Option<String>,
}

/// Status-Class and Status-Detail of a failed login (RFC 7143 §11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) u8, pub(crate) u8);

impl Refusal {
    pub(crate) const INITIATOR_ERROR: Self = Self(2, 0);
    pub(crate) const AUTHENTICATION: Self = Self(2, 1);
    pub(crate) const NOT_FOUND: Self = Self(2, 3);
    pub(crate) const VERSION: Self = Self(2, 5);
    pub(crate) const TOO_MANY: Self = Self(2, 6);
    pub(crate) const MISSING: Self = Self(2, 7);
    pub(crate) const NO_SESSION: Self = Self(2, 0x0a);
    pub(crate) const INVALID: Self = Self(2, 0x0b);
}
