//! Reuses buffers, because every page of a new buffer costs a page fault.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use iscsi_block_device::BufferPool;

/// Unused buffers: as many as were in use at the same time. The last returned buffer is taken first, because
/// the processor's caches may still hold it. Clones are the same pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<BytesMut>>>);

/// A buffer that returns to its pool when it is dropped.
struct Lent {
    buffer: BytesMut,
    pool: Pool,
}

impl Pool {
    /// Converts a buffer to bytes. The buffer returns to the pool when the last handle of these bytes is
    /// dropped.
    pub(crate) fn lend(&self, buffer: BytesMut) -> Bytes {
        Bytes::from_owner(Lent { buffer, pool: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferPool for Pool {
    fn take(&self, len: usize) -> BytesMut {
        let Some(mut buffer) = self.lock().pop() else { return BytesMut::zeroed(len) };
        buffer.resize(len, 0);
        buffer
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.lock().push(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_goes_out_again() {
        let pool = Pool::default();
        let whole = pool.lend(pool.take(4096));
        let (address, part) = (whole.as_ptr(), whole.slice(1024..));
        drop(whole);
        let other = pool.take(4096);
        assert_ne!(other.as_ptr(), address, "a part of it is still in use");
        drop(part);
        let again = pool.take(2048);
        assert_eq!((again.as_ptr(), again.len()), (address, 2048));
    }
}
