//! The read half of a task: stores the data of Data-Ins, and checks that all data arrived (RFC 7143 §11.7).

use bytes::BytesMut;
use iscsi_pdu::{DataIn, DataSn};

use super::ranges::Ranges;
use super::read_buffer::ReadBuffer;
use crate::error::ProtocolError;
use crate::params::Negotiated;

/// The caller's buffer, and the ranges that have been received.
#[derive(Debug)]
pub(crate) struct ReadTransfer {
    buffer: ReadBuffer,
    received: Ranges,
}

impl ReadTransfer {
    pub(crate) fn new(buffer: ReadBuffer) -> Self {
        Self { buffer, received: Ranges::default() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Checks the header of a Data-In with a data segment of `len` bytes, before any byte of the segment is
    /// stored.
    pub(crate) fn admit(
        &self,
        data_in: &DataIn,
        len: usize,
        expected: DataSn,
        agreed: &Negotiated,
    ) -> Result<(), ProtocolError> {
        let error = |reason| Err(ProtocolError::DataIn { itt: data_in.itt, reason });
        if data_in.data_sn != expected {
            return error("DataSN is not the next one");
        }
        let start = data_in.buffer_offset as usize;
        let end = start.saturating_add(len);
        if end > self.len() {
            return error("it ends beyond the buffer");
        }
        if self.received.overlaps(start, end) {
            return error("it repeats bytes that were sent before");
        }
        let in_order = agreed.data_pdu_in_order && agreed.data_sequence_in_order;
        if in_order && len > 0 && start < self.received.end() {
            return error("its offset goes back although data is in order");
        }
        Ok(())
    }

    /// Records the range of a Data-In as received, when its data is stored.
    pub(crate) fn landed(&mut self, data_in: &DataIn, len: usize) {
        let start = data_in.buffer_offset as usize;
        self.received.insert(start, start + len);
    }

    /// Returns the part of the buffer for `len` bytes from `offset`.
    pub(crate) fn destination(&mut self, offset: usize, len: usize) -> &mut [u8] {
        self.buffer.part(offset, len)
    }

    /// Returns the number of bytes from the start that have arrived without a gap.
    pub(crate) fn contiguous(&self) -> usize {
        self.received.contiguous()
    }

    /// Marks all bytes as not received, because the command starts over.
    pub(crate) fn start_over(&mut self) {
        self.received = Ranges::default();
    }

    /// Returns the buffer, cut to `len` bytes.
    pub(crate) fn into_buffer(self, len: usize) -> BytesMut {
        self.buffer.into_first(len)
    }
}
