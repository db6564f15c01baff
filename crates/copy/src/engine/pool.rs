//! Buffers that are used again: every page of a fresh one costs a fault.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use iscsi_block_device::BufferPool;

/// Buffers that were used before, as many as ever held data at once. The one that came back last,
/// which the processor's caches may still hold, is the first to go out again. Clones are the same
/// pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<BytesMut>>>);

/// A buffer that finds its way back.
struct Lent {
    buffer: BytesMut,
    pool: Pool,
}

impl Pool {
    /// The buffer as bytes that come back by themselves, when the last handle of any of them is gone.
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
