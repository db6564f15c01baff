//! The memory for the data of a read.

use std::sync::Arc;

use bytes::BytesMut;
use iscsi_block_device::BufferPool;

/// A buffer for data from the target. It can be allocated when the first data arrive: over a long link many
/// reads are in flight, and only a few of them receive data at the same time.
#[derive(Clone, Debug)]
pub struct ReadBuffer {
    len: usize,
    memory: Memory,
}

#[derive(Clone, Debug)]
enum Memory {
    Taken(BytesMut),
    /// The buffer is taken later: from a pool, or without a pool from the allocator.
    Later(Option<Arc<dyn BufferPool>>),
}

impl ReadBuffer {
    /// Creates a buffer of `len` bytes, taken from the pool or from the allocator when the first data arrive.
    #[must_use]
    pub fn later(len: usize, pool: Option<Arc<dyn BufferPool>>) -> Self {
        Self { len, memory: Memory::Later(pool) }
    }

    /// Returns the number of expected bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no bytes are expected.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `len` bytes from `offset`; an empty slice if they are not all within the buffer.
    pub(crate) fn part(&mut self, offset: usize, len: usize) -> &mut [u8] {
        if let Memory::Later(pool) = &self.memory {
            let taken = pool.as_ref().map(|pool| pool.take(self.len));
            let mut buffer = taken.unwrap_or_else(|| BytesMut::zeroed(self.len));
            // A pool may return a shorter or longer buffer: the length that the command expects does not
            // change.
            buffer.resize(self.len, 0);
            self.memory = Memory::Taken(buffer);
        }
        let Memory::Taken(buffer) = &mut self.memory else { return &mut [] };
        buffer.get_mut(offset..offset.saturating_add(len)).unwrap_or_default()
    }

    /// Returns the first `len` bytes; an empty buffer if no buffer was allocated.
    pub(crate) fn into_first(self, len: usize) -> BytesMut {
        match self.memory {
            Memory::Taken(mut buffer) => {
                buffer.truncate(len);
                buffer
            }
            Memory::Later(_) => BytesMut::new(),
        }
    }
}

impl From<BytesMut> for ReadBuffer {
    fn from(buffer: BytesMut) -> Self {
        Self { len: buffer.len(), memory: Memory::Taken(buffer) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A pool that returns buffers of a fixed length, and counts them.
    #[derive(Debug)]
    struct Counting {
        len: usize,
        taken: AtomicUsize,
    }

    impl BufferPool for Counting {
        fn take(&self, _: usize) -> BytesMut {
            self.taken.fetch_add(1, Ordering::Relaxed);
            BytesMut::from(&vec![7; self.len][..])
        }
    }

    #[test]
    fn it_is_taken_once_when_data_comes() {
        for len in [512, 100, 1000] {
            let pool = Arc::new(Counting { len, taken: AtomicUsize::new(0) });
            let mut buffer = ReadBuffer::later(512, Some(pool.clone()));
            assert_eq!((buffer.len(), pool.taken.load(Ordering::Relaxed)), (512, 0));
            buffer.part(100, 3).copy_from_slice(b"abc");
            buffer.part(0, 1).copy_from_slice(b"d");
            assert_eq!(pool.taken.load(Ordering::Relaxed), 1);
            assert_eq!((buffer.part(510, 3).len(), buffer.part(usize::MAX, 1).len()), (0, 0));
            let data = buffer.into_first(103);
            assert_eq!((data[0], &data[100..], data.len()), (b'd', &b"abc"[..], 103));
        }
    }

    #[test]
    fn where_no_data_comes_none_is_taken() {
        let pool = Arc::new(Counting { len: 512, taken: AtomicUsize::new(0) });
        assert!(ReadBuffer::later(512, Some(pool.clone())).into_first(0).is_empty());
        assert_eq!(pool.taken.load(Ordering::Relaxed), 0);
        assert_eq!(ReadBuffer::later(512, None).part(0, 512), [0; 512]);
        assert!(ReadBuffer::from(BytesMut::new()).is_empty());
    }
}
