//! Write data on their way in (RFC 7143 §11.7, §11.8).

use std::collections::VecDeque;

use super::read::ranges;
use crate::config::{R2tOrder, R2tShape};
use crate::pdu::{NO_TAG, Pdu};
use crate::scsi::{Sense, Sink};

use super::params::Params;

/// A range the target has asked for, or will ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) ttt: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    got: u32,
}

/// The write data of one command.
#[derive(Debug)]
pub(crate) struct WriteTransfer {
    pub(crate) sink: Sink,
    /// Bytes that are wanted.
    expected: u32,
    /// Offset of the next unsolicited byte, while more may come.
    unsolicited: Option<u32>,
    waiting: VecDeque<(u32, u32)>,
    outstanding: Vec<Ask>,
    limit: usize,
    next_r2t_sn: u32,
    /// Whether R2Ts may go; see [`R2tShape::gather_tasks`].
    pub(crate) released: bool,
    pub(crate) failure: Option<Sense>,
}

impl WriteTransfer {
    /// Wants `expected` bytes for `sink`, and takes the immediate data of the command.
    pub(crate) fn new(sink: Sink, expected: u32, command: &Pdu) -> Self {
        let mut transfer = Self {
            sink,
            expected,
            unsolicited: Some(0),
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

    /// How many R2Ts went out.
    pub(crate) fn r2t_count(&self) -> u32 {
        self.next_r2t_sn
    }

    /// Whether unsolicited data may still come.
    pub(crate) fn is_open(&self) -> bool {
        self.unsolicited.is_some()
    }

    /// Whether R2Ts wait to be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether nothing more will come.
    pub(crate) fn is_complete(&self) -> bool {
        self.unsolicited.is_none() && self.waiting.is_empty() && self.outstanding.is_empty()
    }

    /// Takes a Data-Out; `None` when it answers nothing that was asked.
    pub(crate) fn take(&mut self, pdu: &Pdu) -> Option<()> {
        if pdu.ttt() == NO_TAG {
            self.unsolicited?;
            self.take_unsolicited(pdu);
            return Some(());
        }
        let at = self.outstanding.iter().position(|ask| ask.ttt == pdu.ttt())?;
        let length = crate::convert::len32(pdu.data.len());
        let ask = &mut self.outstanding[at];
        let inside = pdu.buffer_offset() == ask.offset + ask.got && ask.got + length <= ask.length;
        if inside {
            ask.got += length;
            self.sink.write(pdu.buffer_offset(), &pdu.data);
        }
        if pdu.is_final() || !inside {
            self.close(at, inside);
        }
        Some(())
    }

    fn close(&mut self, at: usize, inside: bool) {
        let ask = self.outstanding.remove(at);
        if !inside || ask.got < ask.length {
            self.failure = Some(Sense::TOO_LITTLE_DATA);
            self.waiting.clear();
        }
    }

    /// Data of the command itself, or Data-Out without a transfer tag.
    fn take_unsolicited(&mut self, pdu: &Pdu) {
        let at = self.unsolicited.unwrap_or(0);
        let room = self.expected.saturating_sub(at) as usize;
        let data = &pdu.data[..pdu.data.len().min(room)];
        self.sink.write(at, data);
        let next = at + crate::convert::len32(data.len());
        self.unsolicited = Some(next);
        if pdu.is_final() {
            self.unsolicited = None;
            self.waiting = VecDeque::from([(next, self.expected - next)]);
            self.waiting.retain(|(_, length)| *length > 0);
        }
    }

    /// Cuts what is still missing into bursts.
    pub(crate) fn plan(&mut self, shape: &R2tShape, params: &Params) {
        let burst = shape.burst.unwrap_or(u32::MAX).min(params.max_burst);
        let burst = shape.oversized_burst.unwrap_or(burst).max(1);
        let whole = std::mem::take(&mut self.waiting);
        let rest = whole.into_iter().flat_map(|(offset, length)| ranges(offset, length, burst));
        self.waiting = rest.collect();
        if shape.order == R2tOrder::Falling && !params.data_sequence_in_order {
            self.waiting.make_contiguous().reverse();
        }
        if let (true, Some(first)) = (shape.repeat_first, self.waiting.front().copied()) {
            self.waiting.push_back(first);
        }
        let bound = params.max_outstanding_r2t.min(shape.outstanding.unwrap_or(u32::MAX));
        self.limit = bound.max(1) as usize;
    }

    /// The next R2T as its number and range, when one may go.
    pub(crate) fn ask(&mut self, ttt: impl FnOnce() -> u32) -> Option<(u32, Ask)> {
        if !self.released || self.outstanding.len() >= self.limit {
            return None;
        }
        let (offset, length) = self.waiting.pop_front()?;
        let ask = Ask { ttt: ttt(), offset, length, got: 0 };
        self.outstanding.push(ask);
        self.next_r2t_sn += 1;
        Some((self.next_r2t_sn - 1, ask))
    }
}
