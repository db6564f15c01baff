//! Sending of read data (RFC 7143 §11.7).

use std::collections::VecDeque;

use super::params::Params;
use crate::config::DataInBehavior;
use crate::opcode::Opcode;
use crate::pdu::{FINAL, NO_TAG, Pdu};
use crate::scsi::Source;

/// One Data-In PDU that is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    offset: u32,
    length: u32,
    /// Whether the PDU ends a sequence.
    last: bool,
}

/// The Data-In PDUs of one command.
#[derive(Debug)]
pub(crate) struct ReadTransfer {
    itt: u32,
    source: Source,
    pieces: VecDeque<Piece>,
    data_sn: u32,
    /// Residual flag and count, if the last PDU carries the status.
    status: Option<(u8, u32)>,
    junk: bool,
    pad: u8,
}

/// The rules by which a read is split into PDUs.
#[derive(Clone, Copy, Debug)]
struct Cut {
    pdu: u32,
    sequence: u32,
    pdus_fall: bool,
    sequences_fall: bool,
}

impl ReadTransfer {
    /// Plans the transfer of `length` bytes of `source`, as configured and negotiated.
    pub(crate) fn new(
        itt: u32,
        (source, length): (Source, u32),
        behavior: &DataInBehavior,
        params: &Params,
        segment: u32,
        residual: (u8, u32),
    ) -> Self {
        let cut = Cut {
            pdu: behavior.pdu.unwrap_or(u32::MAX).min(segment).max(1),
            sequence: behavior.sequence.unwrap_or(u32::MAX).min(params.max_burst).max(1),
            pdus_fall: behavior.shuffle_pdus && !params.data_pdu_in_order,
            sequences_fall: behavior.shuffle_sequences && !params.data_sequence_in_order,
        };
        let mut pieces = pieces(length, cut);
        if behavior.empty_first {
            pieces.push_front(Piece { offset: 0, length: 0, last: false });
        }
        let status = (!behavior.separate_status).then_some(residual);
        Self { itt, source, pieces, data_sn: 0, status, junk: behavior.junk, pad: behavior.pad }
    }

    pub(crate) fn itt(&self) -> u32 {
        self.itt
    }

    /// Returns the number of PDUs that were sent.
    pub(crate) const fn sent(&self) -> u32 {
        self.data_sn
    }

    /// Returns the number of all PDUs of the transfer, sent or not.
    pub(crate) fn count(&self) -> u32 {
        self.data_sn + crate::convert::len32(self.pieces.len())
    }

    /// Returns whether the status is sent in a separate PDU.
    pub(crate) fn has_separate_status(&self) -> bool {
        self.status.is_none()
    }

    /// Returns whether all PDUs were returned by [`next_pdu`](Self::next_pdu).
    pub(crate) fn is_done(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the next Data-In PDU.
    pub(crate) fn next_pdu(&mut self) -> Option<Pdu> {
        let piece = self.pieces.pop_front()?;
        let mut pdu = Pdu::new(Opcode::DataIn);
        pdu.header[1] = if piece.last { FINAL } else { 0 };
        pdu.set_u32(16, self.itt);
        pdu.set_u32(20, NO_TAG);
        pdu.set_u32(36, self.data_sn);
        pdu.set_u32(40, piece.offset);
        pdu.data = self.source.read(piece.offset, piece.length);
        pdu.pad = self.pad;
        self.finish(&mut pdu);
        self.data_sn += 1;
        Some(pdu)
    }

    fn finish(&self, pdu: &mut Pdu) {
        match self.status {
            Some((flag, count)) if self.pieces.is_empty() => {
                pdu.header[1] |= FINAL | 0x01 | flag;
                pdu.set_u32(44, count);
            }
            _ if self.junk => {
                pdu.set(3, &[0xa5]);
                pdu.set_u32(24, 0xdead_beef);
                pdu.set_u32(44, 0xdead_beef);
            }
            _ => {}
        }
    }
}

fn pieces(length: u32, cut: Cut) -> VecDeque<Piece> {
    let mut sequences: Vec<Vec<Piece>> = ranges(0, length, cut.sequence)
        .map(|(offset, length)| sequence(offset, length, cut))
        .collect();
    if cut.sequences_fall {
        sequences.reverse();
    }
    sequences.into_iter().flatten().collect()
}

fn sequence(offset: u32, length: u32, cut: Cut) -> Vec<Piece> {
    let ranges = ranges(offset, length, cut.pdu);
    let mut pieces: Vec<Piece> =
        ranges.map(|(offset, length)| Piece { offset, length, last: false }).collect();
    if cut.pdus_fall {
        pieces.reverse();
    }
    if let Some(piece) = pieces.last_mut() {
        piece.last = true;
    }
    pieces
}

/// Splits a range into pieces of at most `step` bytes.
pub(crate) fn ranges(start: u32, length: u32, step: u32) -> impl Iterator<Item = (u32, u32)> {
    let count = length.div_ceil(step);
    (0..count).map(move |nth| {
        let done = nth * step;
        (start + done, step.min(length - done))
    })
}
