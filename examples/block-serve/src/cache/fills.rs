//! Reads of the device that memory is filled from, and whether what they bring is still so.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// A read that is under way.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) range: Range<u64>,
    /// Closed at its end.
    end: Semaphore,
}

impl Fill {
    /// Waits for its end.
    pub(super) async fn ended(&self) {
        // It has no permits, so this ends when it is closed.
        drop(self.end.acquire().await);
    }
}

/// Those that are under way.
#[derive(Debug, Default)]
pub(super) struct Fills {
    /// What they bring may be kept.
    sound: Vec<Arc<Fill>>,
}

impl Fills {
    pub(super) fn begin(&mut self, range: Range<u64>) -> Arc<Fill> {
        let fill = Arc::new(Fill { range, end: Semaphore::new(0) });
        self.sound.push(Arc::clone(&fill));
        fill
    }

    /// One that will bring a part of the range.
    pub(super) fn overlapping(&self, range: &Range<u64>) -> Option<Arc<Fill>> {
        self.sound.iter().find(|fill| overlap(&fill.range, range)).cloned()
    }

    /// What they bring of these bytes is of the past.
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
