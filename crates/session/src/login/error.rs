//! Reasons why a login fails.

use iscsi_pdu::keys::{TextError, printable};
use iscsi_pdu::{LoginStatus, StatSn};
use thiserror::Error;

/// Reasons why a login fails. The connection must be closed (RFC 7143 §6.3).
///
/// No variant holds a secret, a challenge or a response to one.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum LoginError {
    /// The target refused the login. The status says why (RFC 7143 §11.13.5).
    #[error("the target refused the login: {0}")]
    Status(LoginStatus),
    /// One side could not prove its identity, or is not configured to (RFC 7143 §12.1).
    #[error("authentication failed: {0}")]
    Authentication(#[from] AuthenticationError),
    /// The target's value of a key violates the rules of its negotiation (RFC 7143 §6.2, §13).
    #[error("negotiation of {key} failed: {why}")]
    Negotiation {
        /// The key's name.
        key: String,
        /// The defect of the value.
        why: NegotiationFault,
    },
    /// A text of the target is not a list of `key=value` pairs (RFC 7143 §6.1).
    #[error("the target's text is malformed: {0}")]
    Text(#[from] TextError),
    /// A Login Response does not suit its request (RFC 7143 §11.13).
    #[error("the target broke the login protocol: {0}")]
    Protocol(#[from] LoginViolation),
    /// The target does not end the login: it took more exchanges than are allowed.
    #[error("no end of the login after {0} exchanges")]
    TooManyExchanges(u32),
    /// The portal belongs to another portal group than the configuration requires (RFC 7143 §13.9).
    #[error("the portal belongs to portal group {found}, not to {expected} as configured")]
    PortalGroup {
        /// Tag in the configuration.
        expected: u16,
        /// Tag that the target has declared.
        found: u16,
    },
}

impl LoginError {
    /// Returns whether credentials are the cause: wrong, missing, or too weak for either side.
    pub const fn is_authentication(&self) -> bool {
        match self {
            Self::Authentication(_) => true,
            Self::Status(status) => matches!(
                *status,
                LoginStatus::AUTHENTICATION_FAILURE | LoginStatus::AUTHORIZATION_FAILURE
            ),
            Self::Negotiation { .. }
            | Self::Text(_)
            | Self::Protocol(_)
            | Self::TooManyExchanges(_)
            | Self::PortalGroup { .. } => false,
        }
    }

    /// Returns whether the portal does not have the target, or does not have it any more (status 0203, 0204).
    pub const fn is_target_not_found(&self) -> bool {
        matches!(self, Self::Status(LoginStatus::TARGET_NOT_FOUND | LoginStatus::TARGET_REMOVED))
    }

    /// Returns whether the same login may succeed later: the target has an error that may be temporary
    /// (status class 3). After any other error the login should not be retried unchanged.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Status(status) if status.class == LoginStatus::CLASS_TARGET_ERROR)
    }

    /// Returns whether the target violated the rules of the authentication, so that other credentials would
    /// not help.
    pub const fn is_authentication_violation(&self) -> bool {
        match self {
            Self::Authentication(error) => error.is_violation(),
            Self::Status(_)
            | Self::Negotiation { .. }
            | Self::Text(_)
            | Self::Protocol(_)
            | Self::TooManyExchanges(_)
            | Self::PortalGroup { .. } => false,
        }
    }

    pub(super) fn negotiation(key: &str, why: impl Into<NegotiationFault>) -> Self {
        Self::Negotiation { key: key.chars().take(64).collect(), why: why.into() }
    }
}

/// Defects of a key that the target sent (RFC 7143 §6.2).
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum NegotiationFault {
    /// The value has the wrong form or is out of its range.
    #[error(transparent)]
    Value(#[from] TextError),
    /// The value is longer than 255 bytes (RFC 7143 §6.1).
    #[error("a value of {0} bytes is too long")]
    TooLong(usize),
    /// The answer is not a result that the proposal allows.
    #[error("the target answered {}, but {proposed} was proposed", printable(answered))]
    NotOffered {
        /// The proposed value.
        proposed: String,
        /// The value that the target answered.
        answered: String,
    },
    /// The target does not understand a key that it must understand.
    #[error("the target must understand this key")]
    NotUnderstood,
    /// The target answered `Reject`, `Irrelevant` or `NotUnderstood` to a key that was not proposed.
    #[error("an answer without a proposal")]
    AnswerWithoutProposal,
    /// The key came a second time in one login (RFC 7143 §6.4).
    #[error("the key came twice")]
    Repeated,
    /// The target sent a key that only an initiator may send.
    #[error("a target must not send this key")]
    WrongDirection,
    /// The key belongs in another phase of the session, or in another stage of the login.
    #[error("the key does not belong in this stage of the login")]
    WrongStage,
    /// The target did not agree to the value that the configuration requires.
    #[error("the configuration insists on {0}")]
    Required(&'static str),
    /// FirstBurstLength exceeds MaxBurstLength (RFC 7143 §13.14).
    #[error("{first} bytes exceed MaxBurstLength, {max} bytes")]
    ExceedsMaxBurstLength {
        /// FirstBurstLength, bytes.
        first: u32,
        /// MaxBurstLength, bytes.
        max: u32,
    },
}

/// Reasons why authentication fails (RFC 7143 §12.1.3, §9.2.1).
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AuthenticationError {
    /// The configuration requires CHAP, but the target does not use it. To continue would be a downgrade.
    #[error("CHAP is configured, but the target does not use it")]
    MethodRefused,
    /// The target supports none of the proposed algorithms.
    #[error("the target supports none of the CHAP algorithms proposed")]
    AlgorithmRefused,
    /// The target chose an algorithm that was not proposed.
    #[error("the target picked a CHAP algorithm that was not proposed")]
    AlgorithmNotOffered,
    /// The target did not send a key that belongs to this step.
    #[error("the target sent no {0}")]
    Missing(&'static str),
    /// The target sent a key that belongs to another step.
    #[error("the target sent {0} out of its order")]
    Unexpected(&'static str),
    /// The target sent a key with a value that is malformed or has an illegal length.
    #[error("the target sent a value of {0} that is not acceptable")]
    Malformed(&'static str),
    /// The target sent back a challenge that this process issued: a reflection attack.
    #[error("the target sent one of this initiator's own challenges")]
    ReflectedChallenge,
    /// The target's response equals the response that this initiator would send: a reflection attack, or the
    /// same secret in both directions.
    #[error("the target answered with this initiator's own secret")]
    ReflectedResponse,
    /// The target's response to the challenge is wrong: it does not know its secret.
    #[error("the target could not prove that it knows its secret")]
    WrongResponse,
    /// The CHAP name of the target is not the one in the configuration.
    #[error("the target's CHAP name is not the configured one")]
    WrongName,
    /// The target ended the security stage before the authentication was complete.
    #[error("the target ended the security stage before the authentication was complete")]
    Incomplete,
    /// The configured user name is empty or longer than 255 bytes, or contains a NUL.
    #[error("the CHAP user name must have 1 to 255 bytes and no NUL")]
    UserName,
    /// No algorithm is configured.
    #[error("no CHAP algorithm is configured")]
    NoAlgorithm,
    /// A configured secret is shorter than 96 bits, and the configuration forbids that
    /// (RFC 7143 §9.2.1), or it is empty.
    #[error("a CHAP secret is shorter than 96 bits, so it can be guessed")]
    ShortSecret,
    /// The same secret is configured in both directions (RFC 7143 §9.2.1).
    #[error("initiator and target have the same secret for CHAP, which proves nothing")]
    SameSecret,
}

impl AuthenticationError {
    /// Returns whether the target broke the rules of RFC 7143 §12.1.3.
    const fn is_violation(self) -> bool {
        match self {
            Self::AlgorithmNotOffered
            | Self::Missing(_)
            | Self::Unexpected(_)
            | Self::Malformed(_)
            | Self::ReflectedChallenge
            | Self::Incomplete => true,
            Self::MethodRefused
            | Self::AlgorithmRefused
            | Self::ReflectedResponse
            | Self::WrongResponse
            | Self::WrongName
            | Self::UserName
            | Self::NoAlgorithm
            | Self::ShortSecret
            | Self::SameSecret => false,
        }
    }
}

/// Violations in a Login Response (RFC 7143 §11.13).
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum LoginViolation {
    /// The target sent a response while no request was outstanding.
    #[error("a response without a request")]
    Unsolicited,
    /// A field of the response must repeat the value of the request, and does not.
    #[error("{0} is not the one of the request")]
    Mismatch(&'static str),
    /// The target chose a protocol version that was not proposed.
    #[error("protocol version {0} was not proposed")]
    Version(u8),
    /// StatSN does not follow the StatSN of the previous response.
    #[error("StatSN {found} came where {expected} was due")]
    StatSn {
        /// The expected StatSN.
        expected: StatSn,
        /// The number that the target sent.
        found: StatSn,
    },
    /// The target made a transition to another stage that was not proposed.
    #[error("a transition that was not proposed")]
    Transition,
    /// The target sent text before the text of the request was complete.
    #[error("an answer to a text that was not complete")]
    Interruption,
    /// The target redirects the login, but sends no valid TargetAddress (RFC 7143 §11.13.5).
    #[error("a redirection without a usable TargetAddress")]
    Redirection,
}
