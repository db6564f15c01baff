//! CHAP: credentials of initiators and of the target (RFC 7143 §12.1.3).

use std::fmt;

/// The target's side of CHAP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chap {
    /// The credentials of initiators.
    pub initiator: ChapIdentity,
    /// The credentials of the target, for an initiator that asks for them; `None` refuses the login of such an
    /// initiator.
    pub target: Option<ChapIdentity>,
    /// Codes of the algorithms that the target knows: 5 MD5, 6 SHA1, 7 SHA-256, 8 SHA3-256. The target
    /// chooses the first algorithm of the initiator's list that it knows.
    pub algorithms: Vec<u8>,
    /// Whether the target understands only a single algorithm, and refuses a login that lists several.
    pub no_lists: bool,
    /// `CHAP_I`.
    pub identifier: u8,
    /// `CHAP_C`, 1 to 1024 bytes.
    pub challenge: Vec<u8>,
    /// The encoding of binary values that the target sends.
    pub encoding: Encoding,
    /// The values of the initiator that the target sends back to it.
    pub reflection: Reflection,
    /// Whether a Discovery session needs CHAP too.
    pub discovery: bool,
}

impl Chap {
    /// Creates one-way CHAP with all algorithms, a challenge of 16 bytes and hexadecimal values.
    #[must_use]
    pub fn new(user: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        Self {
            initiator: ChapIdentity::new(user, secret),
            target: None,
            algorithms: vec![5, 6, 7, 8],
            no_lists: false,
            identifier: 0x2a,
            challenge: (0x40..0x50).collect(),
            encoding: Encoding::Hex,
            reflection: Reflection::None,
            discovery: false,
        }
    }

    /// Adds credentials of the target, for mutual CHAP.
    #[must_use]
    pub fn mutual(mut self, user: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        self.target = Some(ChapIdentity::new(user, secret));
        self
    }

    /// Sets the algorithms that the target knows.
    #[must_use]
    pub fn with_algorithms(mut self, codes: impl Into<Vec<u8>>) -> Self {
        self.algorithms = codes.into();
        self
    }

    /// Sets the values of the initiator that the target sends back.
    #[must_use]
    pub const fn with_reflection(mut self, reflection: Reflection) -> Self {
        self.reflection = reflection;
        self
    }
}

/// A name and its secret.
#[derive(Clone)]
pub struct ChapIdentity {
    /// `CHAP_N`.
    pub user: String,
    /// The secret, any bytes.
    pub secret: Vec<u8>,
}

impl ChapIdentity {
    /// Creates an identity from a name and its secret.
    #[must_use]
    pub fn new(user: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        Self { user: user.into(), secret: secret.into() }
    }
}

impl fmt::Debug for ChapIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ChapIdentity").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The encoding of a binary value (RFC 7143 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// "0x" and hexadecimal digits.
    Hex,
    /// "0b" and base64.
    Base64,
}

/// A reflection attack (RFC 7143 §9.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reflection {
    /// Nothing is sent back.
    None,
    /// `CHAP_C` is the last challenge that the target answered in an earlier login; before that, the
    /// configured one.
    Challenge,
    /// `CHAP_R` is the response that the initiator itself sent.
    Response,
}
