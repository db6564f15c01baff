//! Limits the memory of a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory for the data of a copy.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    limit: usize,
    in_use: Arc<AtomicUsize>,
}

/// A part of the memory, released when its last clone is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    bytes: usize,
    in_use: Arc<AtomicUsize>,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, in_use: Arc::default() }
    }

    /// Takes `bytes` bytes of the memory if they are free; always succeeds if no memory is in use.
    pub(crate) fn take(&self, bytes: usize) -> Option<Arc<Hold>> {
        let in_use = self.in_use.load(Ordering::Relaxed);
        if in_use > 0 && in_use.saturating_add(bytes) > self.limit {
            return None;
        }
        self.in_use.fetch_add(bytes, Ordering::Relaxed);
        Some(Arc::new(Hold { bytes, in_use: Arc::clone(&self.in_use) }))
    }

    /// Returns whether at least half of the memory is in use.
    pub(crate) fn is_half_full(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) >= self.limit / 2
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_comes_back_with_its_last_holder() {
        let memory = Memory::new(10);
        let first = memory.take(6).unwrap();
        assert!(memory.take(5).is_none());
        assert!(memory.is_half_full());
        let other = Arc::clone(&first);
        drop(first);
        assert!(memory.take(5).is_none());
        drop(other);
        assert!(!memory.is_half_full());
        let whole = memory.take(100);
        assert!(whole.is_some(), "nothing else is held");
        assert!(memory.take(1).is_none());
    }
}
