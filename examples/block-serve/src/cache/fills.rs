//! Tracks reads that fill the cache, and whether their data may be cached.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// A read in flight.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) range: Range<u64>,
    /// Closed at the end of the read.
    end: Semaphore,
}

impl Fill {
    /// Waits for the end of the read.
    pub(super) async fn ended(&self) {
        // The semaphore has no permits, so this returns when it is closed.
        drop(self.end.acquire().await);
    }
}

/// The reads in flight.
#[derive(Debug, Default)]
pub(super) struct Fills {
    /// The reads in flight whose data may be cached.
    sound: Vec<Arc<Fill>>,
}

impl Fills {
    pub(super) fn begin(&mut self, range: Range<u64>) -> Arc<Fill> {
        let fill = Arc::new(Fill { range, end: Semaphore::new(0) });
        self.sound.push(Arc::clone(&fill));
        fill
    }

    /// Returns a read in flight that will cache a part of the range.
    pub(super) fn overlapping(&self, range: &Range<u64>) -> Option<Arc<Fill>> {
        self.sound.iter().find(|fill| overlap(&fill.range, range)).cloned()
    }

    /// Marks reads of the range as outdated, so that their data are not cached.
    pub(super) fn spoil(&mut self, range: &Range<u64>) {
        self.sound.retain(|fill| !overlap(&fill.range, range));
    }

    pub(super) fn is_sound(&self, fill: &Arc<Fill>) -> bool {
        self.sound.iter().any(|other| Arc::ptr_eq(other, fill))
    }

    pub(super) fn end(&mut self, fill: &Arc<Fill>) {
        self.sound.retain(|other| !Arc::ptr_eq(other, fill));
        fill.end.close();
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
