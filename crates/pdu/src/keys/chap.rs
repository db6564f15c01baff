//! CHAP: the algorithms, and the limits of its items (RFC 7143 §9.2.1, §12.1.3).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The AuthMethod for CHAP (RFC 7143 §12.1).
pub const CHAP: &str = "CHAP";

/// The greatest length of a challenge, bytes (RFC 7143 §12.1.3).
pub const MAX_CHALLENGE_LEN: usize = 1024;

/// The least length that a secret should have without IPsec, bytes: 96 bits (RFC 7143 §9.2.1).
pub const MIN_SECRET_LEN: usize = 12;

/// The hash functions of CHAP_A, by their registered numbers (RFC 7143 §12.1.3, IANA PPP
/// authentication algorithms).
///
/// `FromStr` and `Display` use `md5`, `sha1`, `sha-256` and `sha3-256`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ChapAlgorithm {
    /// SHA3-256.
    Sha3_256 = 8,
    /// SHA-256.
    Sha256 = 7,
    /// SHA-1.
    Sha1 = 6,
    /// MD5, which every implementation supports.
    Md5 = 5,
}

impl ChapAlgorithm {
    /// All algorithms, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// Returns the registered number, as it is used in CHAP_A.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the length of a response, bytes.
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha3_256 | Self::Sha256 => 32,
            Self::Sha1 => 20,
            Self::Md5 => 16,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Sha3_256 => "sha3-256",
            Self::Sha256 => "sha-256",
            Self::Sha1 => "sha1",
            Self::Md5 => "md5",
        }
    }
}

impl fmt::Display for ChapAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that is not a CHAP algorithm.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is not a CHAP algorithm; use md5, sha1, sha-256 or sha3-256")]
pub struct UnknownChapAlgorithm(String);

impl FromStr for ChapAlgorithm {
    type Err = UnknownChapAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| UnknownChapAlgorithm(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_go_by_name_and_number() {
        assert_eq!(ChapAlgorithm::ALL.map(ChapAlgorithm::number), [8, 7, 6, 5]);
        for algorithm in ChapAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("MD5".parse::<ChapAlgorithm>().is_err());
    }
}
