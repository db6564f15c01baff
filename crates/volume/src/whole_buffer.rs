//! One buffer for a read from several members, allocated when the first data arrive from any of them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use iscsi_block_device::BufferPool;

/// The whole buffer, and the lengths of its parts.
#[derive(Debug)]
struct Whole {
    pool: Arc<dyn BufferPool>,
    lens: Vec<usize>,
    /// The parts that no read has taken yet; `None` until the whole buffer is allocated.
    parts: Mutex<Option<Vec<Option<BytesMut>>>>,
}

/// Pool of one part. The part is a piece of the whole buffer, so that the parts can be joined without a copy.
#[derive(Debug)]
struct Part {
    whole: Arc<Whole>,
    number: usize,
}

/// Returns a pool for each of these lengths. All of their buffers are parts of one buffer of `pool`.
pub(crate) fn parts_of(
    pool: Arc<dyn BufferPool>,
    lens: Vec<usize>,
) -> impl Iterator<Item = Arc<dyn BufferPool>> {
    let count = lens.len();
    let whole = Arc::new(Whole { pool, lens, parts: Mutex::default() });
    (0..count).map(move |number| -> Arc<dyn BufferPool> {
        Arc::new(Part { whole: Arc::clone(&whole), number })
    })
}

impl Whole {
    fn cut(&self) -> Vec<Option<BytesMut>> {
        let mut buffer = self.pool.take(self.lens.iter().sum());
        let cut = |len: &usize| Some(buffer.split_to((*len).min(buffer.len())));
        self.lens.iter().map(cut).collect()
    }
}

impl BufferPool for Part {
    fn take(&self, len: usize) -> BytesMut {
        let mut parts = self.whole.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = parts.get_or_insert_with(|| self.whole.cut());
        let own = parts.get_mut(self.number).and_then(Option::take);
        // A read that is retried, or sent over a second path, takes a second buffer. It is not a part of the
        // whole, so it is copied when the parts are joined.
        own.filter(|own| own.len() == len).unwrap_or_else(|| BytesMut::zeroed(len))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A pool whose buffers are `missing` bytes too short, and which counts the buffers that were taken.
    #[derive(Debug, Default)]
    struct Pool {
        missing: usize,
        taken: AtomicUsize,
    }

    impl BufferPool for Pool {
        fn take(&self, len: usize) -> BytesMut {
            self.taken.fetch_add(1, Ordering::Relaxed);
            BytesMut::zeroed(len - self.missing)
        }
    }

    #[test]
    fn parts_of_one_buffer_join_without_a_copy() {
        let pool = Arc::new(Pool::default());
        let parts: Vec<_> = parts_of(pool.clone(), vec![3, 4, 5]).collect();
        assert_eq!(pool.taken.load(Ordering::Relaxed), 0);
        let last = parts[2].take(5);
        let (mut whole, middle) = (parts[0].take(3), parts[1].take(4));
        assert_eq!(pool.taken.load(Ordering::Relaxed), 1);
        let address = whole.as_ptr();
        whole.unsplit(middle);
        whole.unsplit(last);
        assert_eq!((whole.len(), whole.as_ptr()), (12, address));
    }

    #[test]
    fn whoever_asks_again_has_a_buffer_of_his_own() {
        let parts: Vec<_> = parts_of(Arc::new(Pool::default()), vec![3, 4]).collect();
        let (mut first, again) = (parts[0].take(3), parts[0].take(3));
        first.copy_from_slice(b"abc");
        assert_eq!(again, [0; 3][..]);
        assert_eq!((parts[1].take(2).len(), parts[1].take(4).len()), (2, 4));
    }

    #[test]
    fn a_pool_that_gives_too_little_does_no_harm() {
        let pool = Pool { missing: 5, ..Pool::default() };
        let parts: Vec<_> = parts_of(Arc::new(pool), vec![3, 4]).collect();
        assert_eq!((parts[0].take(3).len(), parts[1].take(4).len()), (3, 4));
    }
}
