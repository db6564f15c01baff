//! The bytes that a connection has to send, as pieces in order. Large data are not copied.

use bytes::{Bytes, BytesMut};

use crate::frame::Framing;
use crate::pdu::{HEADER_LENGTH, Pdu};

/// Data of at least this many bytes become a separate piece. Copying shorter data is cheaper than another
/// piece.
const APART: usize = 2048;
/// Bytes that are reserved for headers in one step.
const ROOM: usize = 16 * 1024;
/// The most bytes of the padding and the two digests of a PDU.
const DIGESTS: usize = 12;

/// The bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pieces: Vec<Bytes>,
    /// Bytes after the complete pieces, to which more bytes can be appended.
    open: BytesMut,
    /// Number of bytes in the complete pieces.
    closed: usize,
}

impl Outbox {
    /// Returns the number of bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.closed + self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn clear(&mut self) {
        self.truncate(0);
    }

    /// Appends a PDU.
    pub(crate) fn put(&mut self, framing: Framing, pdu: &Pdu) {
        let is_apart = pdu.data.len() >= APART;
        let copied = if is_apart { 0 } else { pdu.data.len() };
        let length = HEADER_LENGTH + pdu.ahs.len() + copied + DIGESTS;
        if self.open.capacity() - self.open.len() < length {
            self.open.reserve(length.max(ROOM));
        }
        if !is_apart {
            return framing.put(pdu, &mut self.open);
        }
        framing.put_headers(pdu, &mut self.open);
        self.close();
        self.push(pdu.data.clone());
        framing.put_trailer(pdu, &mut self.open);
    }

    /// Removes and returns all waiting bytes, in pieces.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.close();
        self.closed = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Discards everything after the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.open.truncate(length.saturating_sub(self.closed));
        while self.closed > length
            && let Some(mut last) = self.pieces.pop()
        {
            self.closed -= last.len();
            last.truncate(length.saturating_sub(self.closed));
            self.push(last);
        }
    }

    /// Inverts `bits` in the byte at `place`. The data of a piece are copied first, so that other users of
    /// the same data do not see the change.
    pub(crate) fn corrupt(&mut self, place: usize, bits: u8) {
        let mut at = place;
        for piece in &mut self.pieces {
            if at < piece.len() {
                let mut bytes = BytesMut::from(&piece[..]);
                bytes[at] ^= bits;
                *piece = bytes.freeze();
                return;
            }
            at -= piece.len();
        }
        if let Some(byte) = self.open.get_mut(at) {
            *byte ^= bits;
        }
    }

    /// Turns the open bytes into a complete piece.
    fn close(&mut self) {
        let bytes = self.open.split().freeze();
        self.push(bytes);
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.closed += piece.len();
            self.pieces.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcode::Opcode;

    const FRAMING: Framing = Framing { header_digest: true, data_digest: true };

    fn pdu(length: usize) -> Pdu {
        let mut pdu = Pdu::new(Opcode::DataIn);
        pdu.data = vec![0x5a; length].into();
        pdu
    }

    /// Returns an outbox of short and long PDUs, and the same PDUs as one stream.
    fn filled() -> (Outbox, BytesMut) {
        let (mut outbox, mut stream) = (Outbox::default(), BytesMut::new());
        for length in [0, 5, APART - 1, APART, 7_001, 3] {
            outbox.put(FRAMING, &pdu(length));
            FRAMING.put(&pdu(length), &mut stream);
        }
        (outbox, stream)
    }

    #[test]
    fn the_pieces_are_the_stream() {
        let (mut outbox, stream) = filled();
        assert_eq!(outbox.len(), stream.len());
        assert_eq!(outbox.take().concat(), stream);
        assert!(outbox.is_empty() && outbox.take().is_empty());
    }

    #[test]
    fn large_data_are_not_copied() {
        let (mut outbox, pdu) = (Outbox::default(), pdu(APART));
        outbox.put(FRAMING, &pdu);
        let pieces = outbox.take();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr_range(), pdu.data.as_ptr_range());
    }

    #[test]
    fn it_is_cut_at_any_byte() {
        let (_, stream) = filled();
        for length in (0..stream.len() + 2).step_by(97).chain([0, stream.len(), stream.len() + 1]) {
            let (mut outbox, _) = filled();
            outbox.truncate(length);
            assert_eq!(outbox.len(), length.min(stream.len()));
            outbox.put(FRAMING, &pdu(9));
            let mut expected = BytesMut::from(&stream[..length.min(stream.len())]);
            FRAMING.put(&pdu(9), &mut expected);
            assert_eq!(outbox.take().concat(), expected);
        }
    }

    #[test]
    fn a_byte_goes_out_wrong_and_the_data_stay_as_they_are() {
        let (_, stream) = filled();
        for place in (0..stream.len()).step_by(97).chain([stream.len() - 1]) {
            let (mut outbox, _) = filled();
            outbox.corrupt(place, 0x5a);
            let mut expected = stream.clone();
            expected[place] ^= 0x5a;
            assert_eq!(outbox.take().concat(), expected);
        }
        let (mut outbox, pdu) = (Outbox::default(), pdu(APART));
        outbox.put(FRAMING, &pdu);
        outbox.corrupt(60, 1);
        assert!(pdu.data.iter().all(|byte| *byte == 0x5a));
    }
}
