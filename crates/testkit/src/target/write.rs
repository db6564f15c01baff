//! Receipt of write data (RFC 7143 §11.7, §11.8).

use std::collections::VecDeque;

use super::read::ranges;
use crate::config::{R2tBehavior, R2tOrder};
use crate::pdu::{NO_TAG, Pdu};
use crate::scsi::{Sense, Sink};

use super::params::Params;

/// A range of write data that an R2T requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) ttt: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    got: u32,
    next_data_sn: u32,
}

/// The write data of one command.
#[derive(Debug)]
pub(crate) struct WriteTransfer {
    pub(crate) sink: Sink,
    /// Number of bytes that the command transfers.
    expected: u32,
    /// Offset of the next unsolicited byte; `None` if no more unsolicited data may arrive.
    unsolicited: Option<u32>,
    /// `DataSN` of the next unsolicited Data-Out.
    unsolicited_data_sn: u32,
    waiting: VecDeque<(u32, u32)>,
    outstanding: Vec<Ask>,
    limit: usize,
    next_r2t_sn: u32,
    /// Whether R2Ts may be sent; see [`R2tBehavior::gather_tasks`].
    pub(crate) released: bool,
    pub(crate) failure: Option<Sense>,
}

impl WriteTransfer {
    /// Creates a transfer of `expected` bytes to `sink`, and stores the immediate data of the command.
    pub(crate) fn new(sink: Sink, expected: u32, command: &Pdu) -> Self {
        let mut transfer = Self {
            sink,
            expected,
            unsolicited: Some(0),
            unsolicited_data_sn: 0,
            waiting: VecDeque::new(),
            outstanding: Vec::new(),
            limit: 1,
            next_r2t_sn: 0,
            released: false,
            failure: None,
        };
        transfer.take_unsolicited(command);
        transfer
    }

    /// Returns the number of R2Ts that were sent for the write.
    pub(crate) fn r2t_count(&self) -> u32 {
        self.next_r2t_sn
    }

    /// Returns whether unsolicited data may still arrive.
    pub(crate) fn is_open(&self) -> bool {
        self.unsolicited.is_some()
    }

    /// Returns whether R2Ts wait to be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether no more data are expected.
    pub(crate) fn is_complete(&self) -> bool {
        self.unsolicited.is_none() && self.waiting.is_empty() && self.outstanding.is_empty()
    }

    /// Stores the data of a Data-Out. Returns `None` if the data were neither requested nor unsolicited. A
    /// PDU out of order fails the command (RFC 7143 §7.9).
    pub(crate) fn take(&mut self, pdu: &Pdu) -> Option<()> {
        if pdu.ttt() == NO_TAG {
            let due = (self.unsolicited?, self.unsolicited_data_sn);
            if (pdu.buffer_offset(), pdu.data_sn()) != due {
                self.failure = Some(Sense::CRC_ERROR);
            }
            self.unsolicited_data_sn += 1;
            self.take_unsolicited(pdu);
            return Some(());
        }
        let at = self.outstanding.iter().position(|ask| ask.ttt == pdu.ttt())?;
        self.take_solicited(at, pdu);
        Some(())
    }

    fn take_solicited(&mut self, at: usize, pdu: &Pdu) {
        let length = crate::convert::len32(pdu.data.len());
        let ask = &mut self.outstanding[at];
        if pdu.data_sn() != ask.next_data_sn {
            return self.give_up(at, Sense::CRC_ERROR);
        }
        ask.next_data_sn += 1;
        let inside = pdu.buffer_offset() == ask.offset + ask.got && ask.got + length <= ask.length;
        if inside {
            ask.got += length;
            self.sink.write(pdu.buffer_offset(), &pdu.data);
        }
        if !inside || pdu.is_final() && ask.got < ask.length {
            self.give_up(at, Sense::TOO_LITTLE_DATA);
        } else if pdu.is_final() {
            self.outstanding.remove(at);
        }
    }

    /// Closes a range that will not be filled, and fails the command, so that no more R2Ts are sent.
    fn give_up(&mut self, at: usize, failure: Sense) {
        self.outstanding.remove(at);
        self.failure = Some(failure);
        self.waiting.clear();
    }

    /// Stores immediate data, or a Data-Out without a transfer tag. Discards data beyond the length of the
    /// command, and all data after a failure.
    fn take_unsolicited(&mut self, pdu: &Pdu) {
        let at = self.unsolicited.unwrap_or(0);
        let room = self.expected.saturating_sub(at) as usize;
        if self.failure.is_none() {
            self.sink.write(at, &pdu.data[..pdu.data.len().min(room)]);
        }
        let next = at.saturating_add(crate::convert::len32(pdu.data.len()));
        self.unsolicited = Some(next);
        if pdu.is_final() {
            self.unsolicited = None;
            let missing = self.expected.saturating_sub(next);
            if missing > 0 && self.failure.is_none() {
                self.waiting = VecDeque::from([(next, missing)]);
            }
        }
    }

    /// Splits the missing range into bursts.
    pub(crate) fn plan(&mut self, behavior: &R2tBehavior, params: &Params) {
        let burst = behavior.burst.unwrap_or(u32::MAX).min(params.max_burst);
        let burst = behavior.oversized_burst.unwrap_or(burst).max(1);
        let whole = std::mem::take(&mut self.waiting);
        let rest = whole.into_iter().flat_map(|(offset, length)| ranges(offset, length, burst));
        self.waiting = rest.collect();
        if behavior.order == R2tOrder::Falling && !params.data_sequence_in_order {
            self.waiting.make_contiguous().reverse();
        }
        if let (true, Some(first)) = (behavior.repeat_first, self.waiting.front().copied()) {
            self.waiting.push_back(first);
        }
        let bound = params.max_outstanding_r2t.min(behavior.outstanding.unwrap_or(u32::MAX));
        self.limit = bound.max(1) as usize;
    }

    /// Returns the number and the range of the next R2T, if one may be sent.
    pub(crate) fn ask(&mut self, ttt: impl FnOnce() -> u32) -> Option<(u32, Ask)> {
        if !self.released || self.outstanding.len() >= self.limit {
            return None;
        }
        let (offset, length) = self.waiting.pop_front()?;
        let ask = Ask { ttt: ttt(), offset, length, got: 0, next_data_sn: 0 };
        self.outstanding.push(ask);
        self.next_r2t_sn += 1;
        Some((self.next_r2t_sn - 1, ask))
    }
}
