//! The write half of a task: immediate, unsolicited and solicited data (RFC 7143 §4.2.5.2).

use std::collections::VecDeque;

use iscsi_pdu::{DataSn, R2t, R2tSn, Ttt};

use super::payload::{Payload, PayloadSlice};
use super::ranges::Ranges;
use crate::error::ProtocolError;
use crate::params::Negotiated;

/// The parts of a payload that were requested, and those that are sent next.
#[derive(Debug)]
pub(crate) struct WriteTransfer {
    payload: Payload,
    /// The rest of the first burst, after immediate data.
    unsolicited: Option<Burst>,
    /// R2Ts in the order of arrival, each with the range that is not sent yet.
    solicited: VecDeque<Burst>,
    /// The ranges that were handed to the outbox.
    sent: Ranges,
    /// Whether an ABORT TASK was sent. Then no R2T is served.
    held: bool,
}

/// A sequence of Data-Out PDUs that ends with the F bit.
#[derive(Debug)]
struct Burst {
    ttt: Option<Ttt>,
    next: usize,
    end: usize,
    data_sn: DataSn,
}

/// The variable part of one Data-Out PDU.
#[derive(Debug)]
pub(crate) struct DataOutPart {
    pub(crate) ttt: Option<Ttt>,
    pub(crate) data_sn: DataSn,
    pub(crate) offset: usize,
    pub(crate) is_final: bool,
    pub(crate) data: PayloadSlice,
}

/// The part of a write that the command PDU carries.
#[derive(Debug)]
pub(crate) struct FirstPart {
    pub(crate) immediate: PayloadSlice,
    /// Whether the command PDU has the F bit: no unsolicited Data-Out follows.
    pub(crate) is_final: bool,
}

impl WriteTransfer {
    pub(crate) fn new(payload: Payload) -> Self {
        Self {
            payload,
            unsolicited: None,
            solicited: VecDeque::new(),
            sent: Ranges::default(),
            held: false,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.payload.len()
    }

    /// Returns how much of the write may be outstanding, bytes: the unsolicited data, and the data of all
    /// R2Ts that the target may send.
    pub(crate) fn max_outstanding(&self, agreed: &Negotiated) -> u64 {
        let bursts = u64::from(agreed.max_burst_length) * u64::from(agreed.max_outstanding_r2t);
        (self.len() as u64).min(bursts.saturating_add(agreed.first_burst_length.into()))
    }

    /// Splits off the part that the command PDU carries, and queues the rest of the first burst.
    ///
    /// If any unsolicited Data-Out is sent, the first burst is sent whole: exactly the smaller of
    /// FirstBurstLength and the transfer (RFC 7143 §13.14).
    pub(crate) fn begin(&mut self, agreed: &Negotiated) -> FirstPart {
        let first_burst = self.len().min(agreed.first_burst_length as usize);
        let immediate = if agreed.immediate_data {
            first_burst.min(segment_limit(agreed, first_burst))
        } else {
            0
        };
        if !agreed.initial_r2t && immediate < first_burst {
            self.unsolicited = Some(Burst {
                ttt: None,
                next: immediate,
                end: first_burst,
                data_sn: DataSn::default(),
            });
        }
        self.sent.insert(0, immediate);
        FirstPart {
            immediate: self.payload.slice(0, immediate),
            is_final: self.unsolicited.is_none(),
        }
    }

    /// Queues the range that an R2T requests. An R2T with a repeated R2TSN is ignored.
    pub(crate) fn solicit(
        &mut self,
        r2t: &R2t,
        expected: R2tSn,
        agreed: &Negotiated,
    ) -> Result<Accepted, ProtocolError> {
        let error = |reason| Err(ProtocolError::R2t { itt: r2t.itt, reason });
        if r2t.r2t_sn.is_before(expected) {
            return Ok(Accepted::Repeated);
        }
        if r2t.r2t_sn != expected {
            return error("R2TSN leaves a gap");
        }
        let next = r2t.buffer_offset as usize;
        let end = next.saturating_add(r2t.desired_data_transfer_length.get() as usize);
        if end > self.len() {
            return error("it asks for data beyond the end of the transfer");
        }
        if self.solicited.len() >= usize::from(agreed.max_outstanding_r2t) {
            return error("more R2Ts are outstanding than MaxOutstandingR2T");
        }
        self.solicited.push_back(Burst {
            ttt: Some(r2t.ttt),
            next,
            end,
            data_sn: DataSn::default(),
        });
        Ok(Accepted::Queued)
    }

    /// Returns the next Data-Out of the first burst, with at most `most` bytes.
    pub(crate) fn next_unsolicited(
        &mut self,
        agreed: &Negotiated,
        most: usize,
    ) -> Option<DataOutPart> {
        let burst = self.unsolicited.as_mut()?;
        let part = burst.take(&self.payload, agreed, most);
        self.sent.insert(part.offset, part.offset + bytes::Buf::remaining(&part.data));
        if part.is_final {
            self.unsolicited = None;
        }
        Some(part)
    }

    /// Returns the next Data-Out of the oldest R2T, with at most `most` bytes.
    pub(crate) fn next_solicited(
        &mut self,
        agreed: &Negotiated,
        most: usize,
    ) -> Option<DataOutPart> {
        let burst = self.solicited.front_mut()?;
        let part = burst.take(&self.payload, agreed, most);
        self.sent.insert(part.offset, part.offset + bytes::Buf::remaining(&part.data));
        if part.is_final {
            self.solicited.pop_front();
        }
        Some(part)
    }

    /// Marks all data as not sent and not requested, because the command starts over.
    pub(crate) fn start_over(&mut self) {
        self.unsolicited = None;
        self.solicited.clear();
        self.sent = Ranges::default();
        self.held = false;
    }

    /// Stops serving R2Ts, until [`resume`](Self::resume).
    pub(crate) const fn hold(&mut self) {
        self.held = true;
    }

    /// Returns whether an ABORT TASK stops the R2Ts.
    pub(crate) const fn is_held(&self) -> bool {
        self.held
    }

    /// Continues after [`hold`](Self::hold), and returns the number of R2Ts to serve.
    pub(crate) fn resume(&mut self) -> usize {
        if std::mem::take(&mut self.held) { self.solicited.len() } else { 0 }
    }

    /// Returns the number of bytes from the start of the payload that were passed to the outbox without a
    /// gap.
    pub(crate) fn contiguous(&self) -> usize {
        self.sent.contiguous()
    }

    /// Returns whether the whole payload was passed to the outbox.
    pub(crate) fn is_handed_out(&self) -> bool {
        self.contiguous() == self.len()
    }

    /// Returns whether the target has requested data that was not passed to the outbox.
    pub(crate) fn has_data_due(&self) -> bool {
        self.unsolicited.is_some() || !self.solicited.is_empty()
    }
}

/// The result of an R2T.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Accepted {
    Queued,
    Repeated,
}

impl Burst {
    /// Returns the data of the next PDU of the burst. If more PDUs follow, its length is a multiple of four;
    /// the last PDU has the F bit.
    fn take(&mut self, payload: &Payload, agreed: &Negotiated, most: usize) -> DataOutPart {
        let left = self.end - self.next;
        let len = left.min(segment_limit(agreed, left)).min(most);
        let part = DataOutPart {
            ttt: self.ttt,
            data_sn: self.data_sn,
            offset: self.next,
            is_final: len == left,
            data: payload.slice(self.next, len),
        };
        self.next += len;
        self.data_sn = self.data_sn.next();
        part
    }
}

/// Returns the longest data segment of the next PDU of a sequence with `left` bytes to send: the target's
/// MaxRecvDataSegmentLength, rounded down to a multiple of four if more PDUs follow (RFC 7143 §11.7).
const fn segment_limit(agreed: &Negotiated, left: usize) -> usize {
    let limit = agreed.target_max_recv_data_segment_length as usize;
    if left > limit { limit & !3 } else { limit }
}
