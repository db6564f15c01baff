//! Pools read buffers, which are reused once the caller has dropped the data.
//!
//! The kernel clears fresh memory and maps it page by page. Without the pool, reads of 1 MiB on a short link,
//! with a thread per processor, take 1.4 times the processor time.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{Bytes, BytesMut};
use iscsi_session::BufferPool;

use crate::state::budget::Budget;

/// Minimum length of a pooled buffer. The allocator provides shorter buffers equally fast, because it does
/// not immediately return their memory to the kernel.
const MIN_LEN: usize = 128 << 10;

/// The buffers that are ready for reuse. A returned buffer is freed if the budget has no room for it in
/// addition to these. It is also freed while the pool is not kept: a pool is kept only if a supervisor frees
/// its buffers when they are not used for a while.
#[derive(Debug)]
pub(crate) struct ReadBuffers {
    budget: Budget,
    ready: Mutex<Ready>,
}

#[derive(Debug, Default)]
struct Ready {
    is_kept: bool,
    /// Buffers, in the order in which they were returned.
    buffers: Vec<BytesMut>,
    /// Sum of the lengths of the buffers.
    bytes: u64,
}

/// Data of a read. The buffer returns to the pool when its last user drops it.
struct Lent {
    buffer: BytesMut,
    home: Weak<ReadBuffers>,
}

impl ReadBuffers {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, ready: Mutex::default() }
    }

    /// Returns the data of a read for the caller. The buffer returns to the pool when the last clone is
    /// dropped.
    pub(crate) fn lend(self: &Arc<Self>, buffer: BytesMut) -> Bytes {
        if buffer.len() < MIN_LEN {
            return buffer.freeze();
        }
        Bytes::from_owner(Lent { buffer, home: Arc::downgrade(self) })
    }

    /// Keeps buffers that are returned later.
    pub(crate) fn keep(&self) {
        self.lock().is_kept = true;
    }

    /// Frees the buffers in the pool, and buffers that are returned later.
    pub(crate) fn give_back(&self) {
        let ready = mem::take(&mut *self.lock());
        drop(ready);
    }

    /// Returns the sum of the lengths of the buffers in the pool.
    #[cfg(test)]
    pub(crate) fn bytes_ready(&self) -> u64 {
        self.lock().bytes
    }

    fn put(&self, buffer: BytesMut) {
        let bytes = buffer.len() as u64;
        let room = self.budget.bytes_left();
        let mut ready = self.lock();
        if ready.is_kept && ready.bytes + bytes <= room {
            ready.bytes += bytes;
            ready.buffers.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferPool for ReadBuffers {
    fn take(&self, len: usize) -> BytesMut {
        if len < MIN_LEN {
            return BytesMut::zeroed(len);
        }
        self.lock().take(len).unwrap_or_else(|| BytesMut::zeroed(len))
    }
}

impl Ready {
    /// Takes a buffer of length `len`. If there is none, frees the oldest buffer.
    fn take(&mut self, len: usize) -> Option<BytesMut> {
        let found = self.buffers.iter().rposition(|buffer| buffer.len() == len);
        let at = found.or_else(|| (!self.buffers.is_empty()).then_some(0))?;
        let buffer = self.buffers.remove(at);
        self.bytes = self.bytes.saturating_sub(buffer.len() as u64);
        found.map(|_| buffer)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.put(mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = MIN_LEN;

    fn buffers() -> Arc<ReadBuffers> {
        let buffers = ReadBuffers::within(Budget::new(8, 4 * LEN));
        buffers.keep();
        Arc::new(buffers)
    }

    fn ready(buffers: &ReadBuffers) -> (usize, u64) {
        let ready = buffers.lock();
        (ready.buffers.len(), ready.bytes)
    }

    #[test]
    fn a_buffer_comes_back_with_its_last_user() {
        let buffers = buffers();
        let mut buffer = buffers.take(LEN);
        buffer.fill(7);
        let at = buffer.as_ptr();
        let data = buffers.lend(buffer);
        let part = data.slice(100..200);
        drop(data);
        assert_eq!((ready(&buffers), part[0]), ((0, 0), 7));
        drop(part);
        assert_eq!(ready(&buffers), (1, LEN as u64));
        assert_eq!(buffers.take(LEN).as_ptr(), at);
        assert_eq!(ready(&buffers), (0, 0));
    }

    #[test]
    fn none_is_kept_that_the_budget_has_no_room_for() {
        let buffers = buffers();
        let lent: Vec<_> = (0..8).map(|_| buffers.lend(buffers.take(LEN))).collect();
        let under_way = buffers.budget.try_reserve(LEN).unwrap();
        drop(lent);
        assert_eq!(ready(&buffers), (3, 3 * LEN as u64));
        drop(under_way);
    }

    /// After `give_back`, the pool frees returned buffers, until `keep` is called again.
    #[test]
    fn nothing_is_kept_while_nobody_would_give_it_back() {
        let buffers = buffers();
        let (first, second) = (buffers.lend(buffers.take(LEN)), buffers.lend(buffers.take(LEN)));
        drop(first);
        buffers.give_back();
        assert_eq!(ready(&buffers), (0, 0));
        drop(second);
        assert_eq!(ready(&buffers), (0, 0));
        buffers.keep();
        drop(buffers.lend(buffers.take(LEN)));
        assert_eq!(ready(&buffers), (1, LEN as u64));
    }

    /// If no buffer in the pool has the requested length, the oldest one is freed.
    #[test]
    fn one_that_fits_nobody_gives_way() {
        let buffers = buffers();
        drop(buffers.lend(buffers.take(3 * LEN)));
        assert_eq!(buffers.take(LEN).len(), LEN);
        assert_eq!(ready(&buffers), (0, 0));
    }

    #[test]
    fn what_outlives_its_disk_is_freed() {
        let buffers = buffers();
        let data = buffers.lend(buffers.take(LEN));
        drop(buffers);
        assert_eq!(data.len(), LEN);
    }
}
