//! Text in the data segments of several PDUs (RFC 7143 §6.1, §11.12.2).

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use iscsi_pdu::keys::{Key, MAX_TEXT_LEN, TextError};

use super::error::{LoginError, NegotiationFault};

/// The text of one step of the initiator that is not sent yet.
#[derive(Default)]
pub(super) struct Outgoing {
    rest: Bytes,
    /// Whether the text ends with a proposal to go to the next stage.
    transit: bool,
}

impl Outgoing {
    pub(super) const fn new(text: Bytes, transit: bool) -> Self {
        Self { rest: text, transit }
    }

    /// Returns whether the text ends with a proposal to go to the next stage.
    pub(super) const fn proposes_transit(&self) -> bool {
        self.transit
    }

    /// Returns the next data segment of at most `limit` bytes, and whether more must follow (the C bit).
    pub(super) fn next(&mut self, limit: usize) -> (Bytes, bool) {
        let segment = self.rest.split_to(self.rest.len().min(limit));
        (segment, !self.rest.is_empty())
    }
}

impl fmt::Debug for Outgoing {
    /// Shows only the length, because the text may contain a response to a challenge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} bytes)", self.rest.len())
    }
}

/// The text of one step of the target that has arrived so far.
#[derive(Default)]
pub(super) struct Incoming(Vec<u8>);

impl Incoming {
    /// Appends a data segment, which may begin or end within a pair.
    pub(super) fn push(&mut self, segment: &[u8]) -> Result<(), TextError> {
        let len = self.0.len() + segment.len();
        if len > MAX_TEXT_LEN {
            return Err(TextError::TooLong { len });
        }
        self.0.extend_from_slice(segment);
        Ok(())
    }

    /// Returns the complete text, and starts the next step without text.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl fmt::Debug for Incoming {
    /// Shows only the length, because the text may contain a response to a challenge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({} bytes)", self.0.len())
    }
}

/// The keys that the target has sent in this login: no key may be repeated (RFC 7143 §6.4).
#[derive(Debug, Default)]
pub(super) struct SeenKeys(HashSet<String>);

impl SeenKeys {
    pub(super) fn record_key(&mut self, name: &str) -> Result<(), LoginError> {
        // A target may have many addresses (RFC 7143 §13.8).
        if name == Key::TargetAddress.name() || self.0.insert(name.to_owned()) {
            return Ok(());
        }
        Err(LoginError::negotiation(name, NegotiationFault::Repeated))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LOG-29: no data segment exceeds the limit, and only the last segment ends the text.
    #[test]
    fn log_29_outgoing_text_is_cut_at_the_limit() {
        let mut text = Outgoing::new(Bytes::from_static(b"A=1\0B=2\0C"), false);
        assert_eq!(text.next(4), (Bytes::from_static(b"A=1\0"), true));
        assert_eq!(text.next(4), (Bytes::from_static(b"B=2\0"), true));
        assert_eq!(text.next(4), (Bytes::from_static(b"C"), false));
        assert_eq!(text.next(4), (Bytes::new(), false));
    }

    /// TXT-04: a text of 64 KiB is accepted, and one more byte is an error.
    #[test]
    fn txt_04_incoming_text_is_bounded() {
        let mut text = Incoming::default();
        text.push(&vec![b'x'; MAX_TEXT_LEN]).unwrap();
        assert_eq!(text.push(b"y"), Err(TextError::TooLong { len: MAX_TEXT_LEN + 1 }));
        assert_eq!(text.take().len(), MAX_TEXT_LEN);
        assert_eq!(text.take(), b"");
    }
}
