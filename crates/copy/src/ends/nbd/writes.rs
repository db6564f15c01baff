//! Delays writes that overlap a write in flight, because an NBD server does not keep the order of requests.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// The writes of a device that are in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes(Arc<Mutex<Vec<Arc<Entry>>>>);

#[derive(Debug)]
struct Entry {
    range: Range<u64>,
    /// Closed when the write has ended.
    end: Semaphore,
}

/// A write that is in flight until it is dropped.
#[derive(Debug)]
pub(super) struct Write {
    writes: Writes,
    entry: Arc<Entry>,
}

impl Writes {
    /// Begins a write after all earlier writes that overlap it have ended.
    pub(super) async fn begin(&self, range: Range<u64>) -> Write {
        let entry = Arc::new(Entry { range, end: Semaphore::new(0) });
        let overlaps = |other: &&Arc<Entry>| {
            other.range.start < entry.range.end && entry.range.start < other.range.end
        };
        let before: Vec<_> = {
            let mut entries = self.lock();
            let before = entries.iter().filter(overlaps).cloned().collect();
            entries.push(Arc::clone(&entry));
            before
        };
        let write = Write { writes: self.clone(), entry };
        for earlier in before {
            // The semaphore has no permits, so `acquire` returns when the semaphore is closed.
            drop(earlier.end.acquire().await);
        }
        write
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        self.writes.lock().retain(|other| !Arc::ptr_eq(other, &self.entry));
        self.entry.end.close();
    }
}
