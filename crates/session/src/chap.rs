//! CHAP: secrets, responses, and the challenges that this process has issued (RFC 7143 §12.1.3, RFC 1994).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_pdu::keys::ChapAlgorithm;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::entropy::Entropy;

/// Length of the shortest challenge that is issued, bytes. Some targets have no room for a much longer one.
const MIN_CHALLENGE_LEN: usize = 16;

/// A CHAP secret. Its bytes are erased from memory when it is dropped, and `Debug` does not show them.
///
/// Any length is accepted; at least 12 random bytes are recommended (RFC 7143 §9.2.1).
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Returns the length of the secret, bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the secret is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether another secret has the same bytes.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        equal(&self.0, &other.0)
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

/// Returns the response to a challenge: the hash of identifier, secret and challenge (RFC 1994 §4.1).
pub(crate) fn response(
    algorithm: ChapAlgorithm,
    identifier: u8,
    secret: &Secret,
    challenge: &[u8],
) -> Vec<u8> {
    let parts = [&[identifier], secret.as_bytes(), challenge];
    match algorithm {
        ChapAlgorithm::Sha3_256 => hash::<Sha3_256>(parts),
        ChapAlgorithm::Sha256 => hash::<Sha256>(parts),
        ChapAlgorithm::Sha1 => hash::<Sha1>(parts),
        ChapAlgorithm::Md5 => hash::<Md5>(parts),
    }
}

fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
    parts.iter().fold(D::new(), |hash, part| hash.chain_update(part)).finalize().to_vec()
}

/// Returns whether two byte strings are equal, in a time that does not depend on where they differ.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// The challenges that logins of this process have issued and whose responses have not arrived.
///
/// If a target sends one of them back, on any connection, it tries to make the initiator compute the response
/// for it (RFC 7143 §9.2.1). Clones share one list; give every [`crate::Config`] of a process a clone of the
/// same list.
#[derive(Clone, Default)]
pub struct IssuedChallenges(Arc<Mutex<Vec<Vec<u8>>>>);

impl IssuedChallenges {
    /// Draws a challenge that differs from `theirs` and from all challenges on the list. It is on the list
    /// for as long as the returned value lives.
    pub(crate) fn issue(
        &self,
        algorithm: ChapAlgorithm,
        theirs: &[u8],
        entropy: &mut dyn Entropy,
    ) -> IssuedChallenge {
        // The challenge is not shorter than the hash (RFC 1994 §4.1).
        let mut challenge = vec![0; algorithm.digest_len().max(MIN_CHALLENGE_LEN)];
        entropy.fill(&mut challenge);
        let mut issued = self.lock();
        // The source may return a challenge in use, by chance or because the source is poor. Counting up then
        // finds an unused challenge.
        while challenge == theirs || issued.contains(&challenge) {
            increment(&mut challenge);
        }
        issued.push(challenge.clone());
        IssuedChallenge { challenge, list: self.clone() }
    }

    /// Returns whether a challenge is on the list of issued challenges.
    pub(crate) fn contains(&self, challenge: &[u8]) -> bool {
        self.lock().iter().any(|issued| issued == challenge)
    }

    /// Each change leaves the list consistent, so the lock can be used even after a panic elsewhere.
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

/// A challenge on the list of [`IssuedChallenges`]; dropping it removes it from the list.
pub(crate) struct IssuedChallenge {
    challenge: Vec<u8>,
    list: IssuedChallenges,
}

impl IssuedChallenge {
    pub(crate) fn as_bytes(&self) -> &[u8] {
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
            assert_eq!(digest.len(), 2 * algorithm.digest_len());
            assert_eq!(hex(&response(algorithm, 0x17, &secret, &challenge)), digest, "{algorithm}");
        }
    }

    /// CHP-15: `Debug` output does not contain the secret.
    #[test]
    fn chp_15_debug_hides_the_secret() {
        assert_eq!(format!("{:?}", Secret::from("hunter2hunter2")), "Secret(..)");
        let list = IssuedChallenges::default();
        let _issued = list.issue(ChapAlgorithm::Md5, &[], &mut |bytes: &mut [u8]| bytes.fill(0xaa));
        assert_eq!(format!("{list:?}"), "IssuedChallenges(..)");
    }

    /// CHP-08: even if the random source always returns the same bytes, an issued challenge differs from all
    /// challenges in use and from the target's own challenge.
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

    /// CHP-09: the list contains only the challenges of logins in progress.
    #[test]
    fn chp_09_a_challenge_leaves_the_list_with_its_login() {
        let list = IssuedChallenges::default();
        let issued = list.issue(ChapAlgorithm::Md5, &[], &mut |bytes: &mut [u8]| bytes.fill(7));
        assert!(list.contains(&[7; 16]));
        drop(issued);
        assert!(!list.contains(&[7; 16]));
    }
}
