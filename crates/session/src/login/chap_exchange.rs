//! The steps of a CHAP authentication (RFC 7143 §12.1.3).
//!
//! ```text
//!   initiator                                 target
//!   AuthMethod=CHAP                     ──►
//!                                       ◄──   AuthMethod=CHAP
//!   CHAP_A=8,7,6,5                      ──►
//!                                       ◄──   CHAP_A=7 CHAP_I=… CHAP_C=…
//!   CHAP_N=… CHAP_R=… [CHAP_I=… CHAP_C=…] ──►                               T=1
//!                                       ◄──   [CHAP_N=… CHAP_R=…]           T=1
//! ```
//! Keys in brackets belong to mutual CHAP. Each step has exactly these keys; a missing, additional or
//! repeated key fails the login.

use std::fmt;

use iscsi_pdu::LoginStatus;
use iscsi_pdu::keys::{
    CHAP, ChapAlgorithm, Key, MAX_CHALLENGE_LEN, MAX_VALUE_LEN, MIN_SECRET_LEN, NONE, REJECT,
    TextBuilder, decode_binary, encode_hex, parse_number,
};

use super::error::{AuthenticationError, LoginError};
use crate::chap::{IssuedChallenge, IssuedChallenges, Secret, equal, response};
use crate::config::{Chap, TargetCredentials};
use crate::entropy::Entropy;

/// The authentication keys that the target sent in one step.
#[derive(Default)]
pub(super) struct AuthenticationKeys<'a>(Vec<(Key, &'a str)>);

impl<'a> AuthenticationKeys<'a> {
    pub(super) fn push(&mut self, key: Key, value: &'a str) {
        self.0.push((key, value));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that there are no keys, because no authentication is in progress. Some targets send
    /// `AuthMethod=None` without a proposal, which is accepted if there are no credentials.
    pub(super) fn check_idle(&self, no_credentials: bool) -> Result<(), AuthenticationError> {
        let harmless = |pair: &(Key, &str)| no_credentials && *pair == (Key::AuthMethod, NONE);
        match self.0.iter().find(|pair| !harmless(pair)) {
            Some((key, _)) => Err(AuthenticationError::Unexpected(key.name())),
            None => Ok(()),
        }
    }

    /// Returns the values of exactly these keys; any other set of keys is an error.
    fn exactly<const N: usize>(self, keys: [Key; N]) -> Result<[&'a str; N], AuthenticationError> {
        if let Some((foreign, _)) = self.0.iter().find(|(key, _)| !keys.contains(key)) {
            return Err(AuthenticationError::Unexpected(foreign.name()));
        }
        let mut values = [""; N];
        for (value, key) in values.iter_mut().zip(keys) {
            let found = self.0.iter().find(|(present, _)| *present == key);
            *value = found.ok_or_else(|| AuthenticationError::Missing(key.name()))?.1;
        }
        Ok(values)
    }
}

/// The challenge that the target sent.
struct Challenge {
    algorithm: ChapAlgorithm,
    identifier: u8,
    bytes: Vec<u8>,
}

/// The challenge that the initiator sends, in mutual CHAP.
struct OwnChallenge {
    identifier: u8,
    challenge: IssuedChallenge,
}

/// The step that the initiator sends next, or whose response it waits for.
enum Step {
    /// AuthMethod.
    Method,
    /// The list of algorithms.
    Algorithms,
    /// The response to the target's challenge. In mutual CHAP, `own` is the initiator's own challenge; `None`
    /// until the challenge is written.
    Response { theirs: Challenge, own: Option<OwnChallenge> },
    /// No step: the authentication is complete.
    Complete,
}

/// One CHAP authentication.
pub(super) struct ChapExchange {
    step: Step,
    offered: Vec<ChapAlgorithm>,
    issued: IssuedChallenges,
}

impl ChapExchange {
    /// Creates an exchange. With `single`, only MD5 is proposed, if MD5 is configured, because some targets
    /// read CHAP_A as a single number.
    pub(super) fn new(chap: &Chap, issued: &IssuedChallenges, single: bool) -> Self {
        let single = single && chap.algorithms.contains(&ChapAlgorithm::Md5);
        let offered = if single { vec![ChapAlgorithm::Md5] } else { distinct(&chap.algorithms) };
        Self { step: Step::Method, offered, issued: issued.clone() }
    }

    /// Returns whether the next request proposes to leave the security stage.
    pub(super) const fn wants_transit(&self) -> bool {
        matches!(self.step, Step::Response { .. } | Step::Complete)
    }

    /// Returns whether the authentication is complete.
    pub(super) const fn is_complete(&self) -> bool {
        matches!(self.step, Step::Complete)
    }

    /// Returns whether the target may have failed because of the list of algorithms: some targets read the
    /// list as a single number, or choose an algorithm whose responses are too long for them. After the CHAP
    /// response, a status that reports wrong credentials is not attributed to the list.
    pub(super) fn may_have_stumbled_over_list(&self, error: &LoginError) -> bool {
        let is_status = |status| *error == LoginError::Status(status);
        // A response that chooses no algorithm is a refusal too.
        let refused = *error == AuthenticationError::AlgorithmRefused.into()
            || *error == AuthenticationError::Missing(Key::ChapA.name()).into();
        let stumbled = match &self.step {
            Step::Algorithms => {
                refused
                    || is_status(LoginStatus::INITIATOR_ERROR)
                    || is_status(LoginStatus::AUTHENTICATION_FAILURE)
            }
            Step::Response { theirs, .. } => {
                theirs.algorithm != ChapAlgorithm::Md5 && is_status(LoginStatus::INITIATOR_ERROR)
            }
            Step::Method | Step::Complete => false,
        };
        self.offers_more_than_md5() && stumbled
    }

    /// Returns whether a target that closes the connection now may have failed because of the list of
    /// algorithms: the list is the last text that the target received. After the CHAP response the result is
    /// `false`, because the cause may then be a wrong password.
    pub(super) fn may_have_closed_over_list(&self) -> bool {
        self.offers_more_than_md5() && matches!(self.step, Step::Algorithms)
    }

    fn offers_more_than_md5(&self) -> bool {
        self.offered.len() > 1 && self.offered.contains(&ChapAlgorithm::Md5)
    }

    /// Writes the keys that the initiator sends in this step.
    pub(super) fn write(&mut self, chap: &Chap, entropy: &mut dyn Entropy, text: &mut TextBuilder) {
        match &mut self.step {
            Step::Method => {
                text.pair(Key::AuthMethod.name(), CHAP);
            }
            Step::Algorithms => {
                let numbers = self.offered.iter().map(|algorithm| algorithm.number().to_string());
                text.pair(Key::ChapA.name(), &numbers.collect::<Vec<_>>().join(","));
            }
            Step::Response { theirs, own } => {
                write_response(chap, theirs, text);
                if chap.target.is_some() {
                    *own = Some(write_challenge(&self.issued, theirs, entropy, text));
                }
            }
            Step::Complete => {}
        }
    }

    /// Processes the keys that the target sent in this step.
    pub(super) fn receive(
        &mut self,
        chap: &Chap,
        keys: AuthenticationKeys<'_>,
    ) -> Result<(), AuthenticationError> {
        self.step = match &self.step {
            Step::Method => receive_method(chap, keys)?,
            Step::Algorithms => self.receive_challenge(keys)?,
            Step::Response { theirs, own } => receive_proof(chap, theirs, own.as_ref(), keys)?,
            Step::Complete => {
                keys.exactly([])?;
                Step::Complete
            }
        };
        Ok(())
    }

    fn receive_challenge(&self, keys: AuthenticationKeys<'_>) -> Result<Step, AuthenticationError> {
        if keys.0 == [(Key::ChapA, REJECT)] {
            return Err(AuthenticationError::AlgorithmRefused);
        }
        let [algorithm, identifier, challenge] =
            keys.exactly([Key::ChapA, Key::ChapI, Key::ChapC])?;
        let theirs = Challenge {
            algorithm: self.offered_algorithm(algorithm)?,
            identifier: decode_identifier(identifier)?,
            bytes: decode_challenge(challenge)?,
        };
        if self.issued.contains(&theirs.bytes) {
            return Err(AuthenticationError::ReflectedChallenge);
        }
        Ok(Step::Response { theirs, own: None })
    }

    fn offered_algorithm(&self, value: &str) -> Result<ChapAlgorithm, AuthenticationError> {
        let number = parse_number(value).map_err(|_| malformed(Key::ChapA))?;
        let mut offered = self.offered.iter();
        let picked = offered.find(|algorithm| u64::from(algorithm.number()) == number);
        picked.copied().ok_or(AuthenticationError::AlgorithmNotOffered)
    }
}

impl fmt::Debug for ChapExchange {
    /// Shows the progress only, so that logs do not contain challenges and responses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Method => "Method",
            Step::Algorithms => "Algorithms",
            Step::Response { .. } => "Response",
            Step::Complete => "Complete",
        };
        f.debug_struct("ChapExchange").field("step", &step).finish_non_exhaustive()
    }
}

fn distinct(algorithms: &[ChapAlgorithm]) -> Vec<ChapAlgorithm> {
    let mut distinct = Vec::with_capacity(algorithms.len());
    for algorithm in algorithms {
        if !distinct.contains(algorithm) {
            distinct.push(*algorithm);
        }
    }
    distinct
}

fn write_response(chap: &Chap, theirs: &Challenge, text: &mut TextBuilder) {
    let response = response(theirs.algorithm, theirs.identifier, &chap.secret, &theirs.bytes);
    text.pair(Key::ChapN.name(), &chap.user);
    text.pair(Key::ChapR.name(), &encode_hex(&response));
}

fn write_challenge(
    issued: &IssuedChallenges,
    theirs: &Challenge,
    entropy: &mut dyn Entropy,
    text: &mut TextBuilder,
) -> OwnChallenge {
    let mut identifier = [0];
    entropy.fill(&mut identifier);
    let [identifier] = identifier;
    let challenge = issued.issue(theirs.algorithm, &theirs.bytes, entropy);
    text.pair(Key::ChapI.name(), &identifier.to_string());
    text.pair(Key::ChapC.name(), &encode_hex(challenge.as_bytes()));
    OwnChallenge { identifier, challenge }
}

/// Checks that the target has chosen CHAP. The configuration requires it; any other method is a downgrade.
fn receive_method(chap: &Chap, keys: AuthenticationKeys<'_>) -> Result<Step, AuthenticationError> {
    check(chap)?;
    match keys.exactly([Key::AuthMethod])? {
        [CHAP] => Ok(Step::Algorithms),
        [_] => Err(AuthenticationError::MethodRefused),
    }
}

/// Checks the credentials of both sides before a login uses them: whether they are strong enough (RFC 7143
/// §9.2.1).
fn check(chap: &Chap) -> Result<(), AuthenticationError> {
    if !(1..=MAX_VALUE_LEN).contains(&chap.user.len()) || chap.user.contains('\0') {
        return Err(AuthenticationError::UserName);
    }
    if chap.algorithms.is_empty() {
        return Err(AuthenticationError::NoAlgorithm);
    }
    check_length(&chap.secret, chap.allow_short_secret)?;
    let Some(target) = &chap.target else { return Ok(()) };
    check_length(&target.secret, chap.allow_short_secret)?;
    if chap.secret.equals(&target.secret) {
        return Err(AuthenticationError::SameSecret);
    }
    Ok(())
}

fn check_length(secret: &Secret, allow_short: bool) -> Result<(), AuthenticationError> {
    if secret.len() >= MIN_SECRET_LEN {
        return Ok(());
    }
    if secret.is_empty() || !allow_short {
        return Err(AuthenticationError::ShortSecret);
    }
    tracing::warn!(
        "a CHAP secret is shorter than 96 bits, so an attacker who sees the login can guess it; choose 12 to 16 random bytes"
    );
    Ok(())
}

fn receive_proof(
    chap: &Chap,
    theirs: &Challenge,
    own: Option<&OwnChallenge>,
    keys: AuthenticationKeys<'_>,
) -> Result<Step, AuthenticationError> {
    match (&chap.target, own) {
        (None, _) => {
            keys.exactly([])?;
        }
        (Some(_), _) if keys.is_empty() => return Err(AuthenticationError::Incomplete),
        (Some(_), None) => return Err(AuthenticationError::Incomplete),
        (Some(target), Some(own)) => {
            let [name, response] = keys.exactly([Key::ChapN, Key::ChapR])?;
            check_name(target, name)?;
            check_response(chap, target, theirs.algorithm, own, response)?;
        }
    }
    Ok(Step::Complete)
}

fn check_name(target: &TargetCredentials, name: &str) -> Result<(), AuthenticationError> {
    if !(1..=MAX_VALUE_LEN).contains(&name.len()) {
        return Err(malformed(Key::ChapN));
    }
    match &target.user {
        Some(user) if user != name => Err(AuthenticationError::WrongName),
        _ => Ok(()),
    }
}

/// Checks the target's response. A response that equals the initiator's own does not authenticate the target:
/// the target may have received it from the initiator on another connection (RFC 7143 §9.2.1).
fn check_response(
    chap: &Chap,
    target: &TargetCredentials,
    algorithm: ChapAlgorithm,
    own: &OwnChallenge,
    answer: &str,
) -> Result<(), AuthenticationError> {
    let answer = decode_binary(answer).map_err(|_| malformed(Key::ChapR))?;
    if answer.len() != algorithm.digest_len() {
        return Err(malformed(Key::ChapR));
    }
    let expected = |secret| response(algorithm, own.identifier, secret, own.challenge.as_bytes());
    if equal(&answer, &expected(&chap.secret)) {
        return Err(AuthenticationError::ReflectedResponse);
    }
    if !equal(&answer, &expected(&target.secret)) {
        return Err(AuthenticationError::WrongResponse);
    }
    Ok(())
}

fn decode_identifier(value: &str) -> Result<u8, AuthenticationError> {
    let number = parse_number(value).ok().and_then(|number| u8::try_from(number).ok());
    number.ok_or_else(|| malformed(Key::ChapI))
}

fn decode_challenge(value: &str) -> Result<Vec<u8>, AuthenticationError> {
    let bytes = decode_binary(value).map_err(|_| malformed(Key::ChapC))?;
    let legal = (1..=MAX_CHALLENGE_LEN).contains(&bytes.len());
    legal.then_some(bytes).ok_or_else(|| malformed(Key::ChapC))
}

const fn malformed(key: Key) -> AuthenticationError {
    AuthenticationError::Malformed(key.name())
}
