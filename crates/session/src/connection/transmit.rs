//! The bytes that a connection hands to its socket.

use std::io::IoSlice;
use std::time::Instant;

use bytes::Buf;

use super::liveness::Liveness;
use super::outbox::Outbox;

/// Bytes for one connection, borrowed from the session: write as many as the socket takes, and `advance` by
/// that count. The next [`poll_transmit`](crate::Session::poll_transmit) returns the rest.
///
/// `chunks_vectored` yields up to 1024 slices over many PDUs. Data slices point into the pages of the caller.
#[derive(Debug)]
pub struct Transmit<'a> {
    outbox: &'a mut Outbox,
    liveness: &'a mut Liveness,
    now: Instant,
}

impl<'a> Transmit<'a> {
    pub(super) const fn new(
        outbox: &'a mut Outbox,
        liveness: &'a mut Liveness,
        now: Instant,
    ) -> Self {
        Self { outbox, liveness, now }
    }
}

impl Buf for Transmit<'_> {
    fn remaining(&self) -> usize {
        self.outbox.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.outbox.chunk()
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        self.outbox.chunks_vectored(dst)
    }

    fn advance(&mut self, count: usize) {
        if count > 0 {
            self.liveness.moved(self.now);
        }
        self.outbox.advance(count);
    }
}
