//! The target's side of CHAP (RFC 7143 §12.1.3).

use md5::Digest as _;

use super::login::state::{Progress, Refusal};
use super::node::Target;
use crate::config::{Chap, ChapIdentity, Encoding, Reflection};
use crate::text::Pairs;

impl Target {
    /// Executes one step of the exchange, and returns the pairs of the response.
    pub(super) fn chap_step(
        &mut self,
        progress: &mut Progress,
        pairs: &Pairs,
    ) -> Result<Pairs, Refusal> {
        let Some(chap) = self.config.chap.clone() else { return Ok(Pairs::default()) };
        match std::mem::take(progress) {
            Progress::Chosen => {
                let (algorithm, challenge) = self.challenge(&chap, pairs)?;
                let answer = [
                    ("CHAP_A", algorithm.to_string()),
                    ("CHAP_I", chap.identifier.to_string()),
                    ("CHAP_C", encode(chap.encoding, &challenge)),
                ];
                *progress = Progress::Challenged { algorithm, challenge };
                Ok(answer.into_iter().collect())
            }
            Progress::Challenged { algorithm, challenge } => {
                check_response(&chap, algorithm, &challenge, pairs)?;
                *progress = Progress::Done;
                self.prove(&chap, algorithm, pairs)
            }
            Progress::Idle | Progress::Done => Err(Refusal::INITIATOR_ERROR),
        }
    }

    fn challenge(&self, chap: &Chap, pairs: &Pairs) -> Result<(u8, Vec<u8>), Refusal> {
        let offer = pairs.get("CHAP_A").ok_or(Refusal::INITIATOR_ERROR)?;
        if chap.no_lists && offer.contains(',') {
            return Err(Refusal::INITIATOR_ERROR);
        }
        let mut offered = offer.split(',').filter_map(|name| name.parse().ok());
        let algorithm = offered.find(|code| chap.algorithms.contains(code));
        let reflected = match chap.reflection {
            Reflection::Challenge => self.seen_challenge.clone(),
            Reflection::None | Reflection::Response => None,
        };
        let challenge = reflected.unwrap_or_else(|| chap.challenge.clone());
        algorithm.map(|code| (code, challenge)).ok_or(Refusal::AUTHENTICATION)
    }

    /// Returns the response to the initiator's challenge, if there is a challenge.
    fn prove(&mut self, chap: &Chap, algorithm: u8, pairs: &Pairs) -> Result<Pairs, Refusal> {
        let (Some(identifier), Some(challenge)) = (pairs.get("CHAP_I"), pairs.get("CHAP_C")) else {
            return Ok(Pairs::default());
        };
        let identity = chap.target.as_ref().ok_or(Refusal::AUTHENTICATION)?;
        let identifier = identifier.parse().map_err(|_| Refusal::INITIATOR_ERROR)?;
        let challenge = decode(challenge).ok_or(Refusal::INITIATOR_ERROR)?;
        let mut response = response(algorithm, identifier, &identity.secret, &challenge);
        if chap.reflection == Reflection::Response {
            response = pairs.get("CHAP_R").and_then(decode).unwrap_or_default();
        }
        self.seen_challenge = Some(challenge);
        let proof =
            [("CHAP_N", identity.user.clone()), ("CHAP_R", encode(chap.encoding, &response))];
        Ok(proof.into_iter().collect())
    }
}

fn check_response(
    chap: &Chap,
    algorithm: u8,
    challenge: &[u8],
    pairs: &Pairs,
) -> Result<(), Refusal> {
    let ChapIdentity { user, secret } = &chap.initiator;
    let expected = response(algorithm, chap.identifier, secret, challenge);
    let given = pairs.get("CHAP_R").and_then(decode).ok_or(Refusal::INITIATOR_ERROR)?;
    if pairs.get("CHAP_N") == Some(user) && given == expected {
        Ok(())
    } else {
        Err(Refusal::AUTHENTICATION)
    }
}

/// Returns the hash over identifier, secret and challenge; empty for an unknown algorithm.
#[must_use]
fn response(algorithm: u8, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
    let message = [&[identifier], secret, challenge].concat();
    match algorithm {
        5 => md5::Md5::digest(message).to_vec(),
        6 => sha1::Sha1::digest(message).to_vec(),
        7 => sha2::Sha256::digest(message).to_vec(),
        8 => sha3::Sha3_256::digest(message).to_vec(),
        _ => Vec::new(),
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode(encoding: Encoding, bytes: &[u8]) -> String {
    match encoding {
        Encoding::Hex => bytes.iter().fold("0x".into(), |text, byte| format!("{text}{byte:02x}")),
        Encoding::Base64 => {
            let groups = bytes.chunks(3).flat_map(base64_group);
            std::iter::once("0b".into()).chain(groups.map(String::from)).collect::<String>()
        }
    }
}

/// Encodes up to three bytes as four digits; "=" fills up the last group.
fn base64_group(bytes: &[u8]) -> [char; 4] {
    let at = |index: usize| u32::from(bytes.get(index).copied().unwrap_or(0));
    let bits = at(0) << 16 | at(1) << 8 | at(2);
    [(18, 1), (12, 1), (6, 2), (0, 3)].map(|(shift, needed)| {
        let digit = char::from(BASE64[(bits >> shift & 63) as usize]);
        if bytes.len() >= needed { digit } else { '=' }
    })
}

/// Decodes a binary value in hexadecimal or base64 (RFC 7143 §6.1).
fn decode(text: &str) -> Option<Vec<u8>> {
    let (form, digits) = text.split_at_checked(2)?;
    match form {
        "0x" | "0X" => decode_hex(digits),
        "0b" | "0B" => decode_base64(digits),
        _ => None,
    }
}

/// Decodes hexadecimal digits. An odd number of them means that the leading zero is omitted.
fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let whole = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
    let pairs = whole.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn decode_base64(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for place in 0..4 {
            let value = group
                .get(place)
                .map_or(Some(0), |digit| BASE64.iter().position(|known| known == digit))?;
            bits = bits << 6 | crate::convert::len32(value);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_values_survive_both_encodings() {
        for length in 0..9 {
            let bytes: Vec<u8> = (0xf5..=0xff).take(length).collect();
            for encoding in [Encoding::Hex, Encoding::Base64] {
                let text = encode(encoding, &bytes);
                assert_eq!(decode(&text), Some(bytes.clone()), "{text}");
            }
        }
        assert_eq!(encode(Encoding::Base64, b"hello"), "0baGVsbG8=");
        assert_eq!(decode("0xabc"), Some(vec![0x0a, 0xbc]));
    }

    /// The response is the MD5 over the byte 1, "secret" and "challenge"; the expected value was computed by
    /// an independent tool.
    #[test]
    fn responses_hash_identifier_secret_and_challenge() {
        let hex =
            |algorithm| encode(Encoding::Hex, &response(algorithm, 1, b"secret", b"challenge"));
        assert_eq!(hex(5), "0x46e47770030e2b4e26a0db72a7efec00");
        assert_eq!(hex(6), "0x011f25d29fe1baaced569c0d7e4878e40ddb7d7e");
        assert_eq!(hex(7), "0x2dfa0526f4764864b7c3c5bc6596bcead3d8dbd984f4fc1d9f330299f0beced4");
        assert_eq!(hex(8), "0x9444877c4dff778ed2add0f102dcd561e11944e7e948ee1b89508451a9e680ad");
    }
}
