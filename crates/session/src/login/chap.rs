//! CHAP: algorithms, secrets, and challenges that must not come back (RFC 7143 §12.1.3, RFC 1994).

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;
use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::config::{Chap, Entropy};
use crate::login::AuthenticationError;

/// The shortest secret that RFC 7143 §9.2.1 wants without IPsec, bytes: 96 bits.
const SHORTEST_SECRET: usize = 12;

/// The shortest challenge issued, bytes. Some targets have little room for a longer one.
const SHORTEST_CHALLENGE: usize = 16;

/// The longest CHAP_N, bytes (RFC 7143 §6.1, text-value).
pub(super) const LONGEST_NAME: usize = 255;

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
    /// MD5, the one that every implementation has.
    Md5 = 5,
}

impl ChapAlgorithm {
    /// All algorithms, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// The registered number, as it stands in CHAP_A.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The length of a response, bytes.
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

    /// The response to a challenge: the hash of identifier, secret and challenge (RFC 1994 §4.1).
    pub(super) fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        let parts = [&[identifier], secret.as_bytes(), challenge];
        match self {
            Self::Sha3_256 => hash::<Sha3_256>(parts),
            Self::Sha256 => hash::<Sha256>(parts),
            Self::Sha1 => hash::<Sha1>(parts),
            Self::Md5 => hash::<Md5>(parts),
        }
    }

    /// How long an own challenge is, bytes: not shorter than the hash (RFC 1994 §4.1).
    const fn challenge_len(self) -> usize {
        if self.digest_len() > SHORTEST_CHALLENGE { self.digest_len() } else { SHORTEST_CHALLENGE }
    }
}

fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
    parts.iter().fold(D::new(), |hash, part| hash.chain_update(part)).finalize().to_vec()
}

impl fmt::Display for ChapAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no CHAP algorithm.
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

/// A CHAP secret: bytes that are erased from memory when dropped and that no `Debug` shows.
///
/// Any length is taken; at least 12 random bytes are recommended (RFC 7143 §9.2.1).
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The length, bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no byte in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Whether two byte strings are equal, in a time that does not depend on where they differ.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// Checks credentials before they are used (RFC 7143 §9.2.1).
pub(super) fn check(chap: &Chap) -> Result<(), AuthenticationError> {
    if !(1..=LONGEST_NAME).contains(&chap.user.len()) || chap.user.contains('\0') {
        return Err(AuthenticationError::UserName);
    }
    if chap.algorithms.is_empty() {
        return Err(AuthenticationError::NoAlgorithm);
    }
    check_length(&chap.secret, chap.allow_short_secret)?;
    let Some(target) = &chap.target else { return Ok(()) };
    check_length(&target.secret, chap.allow_short_secret)?;
    if equal(chap.secret.as_bytes(), target.secret.as_bytes()) {
        return Err(AuthenticationError::SameSecret);
    }
    Ok(())
}

fn check_length(secret: &Secret, allow_short: bool) -> Result<(), AuthenticationError> {
    if secret.len() >= SHORTEST_SECRET {
        return Ok(());
    }
    if secret.is_empty() || !allow_short {
        return Err(AuthenticationError::ShortSecret);
    }
    tracing::warn!("a CHAP secret is shorter than 96 bits; on an open network it can be guessed");
    Ok(())
}

/// The challenges that the logins of this process have issued and that are not answered yet.
///
/// A target that sends one of them back, on whatever connection, wants the initiator to compute
/// the answer for it (RFC 7143 §9.2.1). Clones share one list; give every [`crate::Config`] of a
/// process a clone of the same list.
#[derive(Clone, Default)]
pub struct IssuedChallenges(Arc<Mutex<Vec<Vec<u8>>>>);

impl IssuedChallenges {
    /// Draws a challenge that differs from `theirs` and from all that are on the list, and puts
    /// it there for as long as the returned value lives.
    pub(super) fn issue(
        &self,
        algorithm: ChapAlgorithm,
        theirs: &[u8],
        entropy: &mut dyn Entropy,
    ) -> IssuedChallenge {
        let mut challenge = vec![0; algorithm.challenge_len()];
        entropy.fill(&mut challenge);
        let mut issued = self.lock();
        // Bad luck or a poor source: counting on from a challenge in use finds a free one.
        while challenge == theirs || issued.contains(&challenge) {
            increment(&mut challenge);
        }
        issued.push(challenge.clone());
        IssuedChallenge { challenge, list: self.clone() }
    }

    /// Whether a challenge is on the list.
    pub(super) fn contains(&self, challenge: &[u8]) -> bool {
        self.lock().iter().any(|issued| issued == challenge)
    }

    /// The list is whole after each of its changes, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn increment(number: &mut [u8]) {
    for byte in number.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return;
        }
    }
}

impl fmt::Debug for IssuedChallenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IssuedChallenges(..)")
    }
}

/// A challenge on the list of [`IssuedChallenges`]; dropping it takes it off.
pub(super) struct IssuedChallenge {
    challenge: Vec<u8>,
    list: IssuedChallenges,
}

impl IssuedChallenge {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.challenge
    }
}

impl Drop for IssuedChallenge {
    fn drop(&mut self) {
        self.list.lock().retain(|issued| *issued != self.challenge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// CHP-03: identifier 0x17, secret "correct horse battery", challenge 00..0f; the expected
    /// values come from another implementation (Python's hashlib).
    #[test]
    fn chp_03_response_vectors() {
        let challenge: Vec<u8> = (0..16).collect();
        let secret = Secret::from("correct horse battery");
        let expected = [
            "9b7761f543f0b4ce4b4ffc24e529603b8e856c796c60a7f8e87c56971562dd11",
            "5bfbc48b57fd9b2d9d06c56be7055ac17a619c3fb96be1ff06baff116c44d3b6",
            "4aee8ccc0fca31e6c631cccacc2bea6221aed9f5",
            "21193f037e447a0962a5e687c53dabff",
        ];
        for (algorithm, digest) in ChapAlgorithm::ALL.into_iter().zip(expected) {
            assert_eq!(hex(&algorithm.response(0x17, &secret, &challenge)), digest, "{algorithm}");
        }
    }

    #[test]
    fn algorithms_go_by_name_and_number() {
        assert_eq!(ChapAlgorithm::ALL.map(ChapAlgorithm::number), [8, 7, 6, 5]);
        for algorithm in ChapAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert_eq!(algorithm.response(0, &"x".into(), b"y").len(), algorithm.digest_len());
        }
        assert!("MD5".parse::<ChapAlgorithm>().is_err());
    }

    /// CHP-15.
    #[test]
    fn chp_15_debug_hides_the_secret() {
        assert_eq!(format!("{:?}", Secret::from("hunter2hunter2")), "Secret(..)");
        let list = IssuedChallenges::default();
        let _issued = list.issue(ChapAlgorithm::Md5, &[], &mut |bytes: &mut [u8]| bytes.fill(0xaa));
        assert_eq!(format!("{list:?}"), "IssuedChallenges(..)");
    }

    /// CHP-08: even a source that always says the same never repeats a challenge in use, nor the
    /// target's own.
    #[test]
    fn chp_08_challenges_are_never_equal() {
        let list = IssuedChallenges::default();
        let mut stuck = |bytes: &mut [u8]| bytes.fill(0xff);
        let first = list.issue(ChapAlgorithm::Md5, &[0xff; 16], &mut stuck);
        let second = list.issue(ChapAlgorithm::Md5, &[0xff; 16], &mut stuck);
        assert_eq!(first.as_bytes(), [0; 16]);
        assert_eq!(second.as_bytes().last(), Some(&1));
        let long = list.issue(ChapAlgorithm::Sha256, &[], &mut stuck);
        assert_eq!(long.as_bytes().len(), 32);
    }

    /// CHP-09: the list holds what is in flight, no more.
    #[test]
    fn chp_09_a_challenge_leaves_the_list_with_its_login() {
        let list = IssuedChallenges::default();
        let issued = list.issue(ChapAlgorithm::Md5, &[], &mut |bytes: &mut [u8]| bytes.fill(7));
        assert!(list.contains(&[7; 16]));
        drop(issued);
        assert!(!list.contains(&[7; 16]));
    }
}
