//! Tracks the state of each byte of a copy: to do, in flight, written, or flushed.
//!
//! ```text
//!            take              written            flush begins          flush ends
//!   to do ─────────► in flight ─────────► written ─────────► flushing ─────────► flushed
//!     ▲                  │                   │                  │
//!     └──────────────────┴───────────────────┴──────────────────┘ lost
//! ```
//! A device that may have lost unflushed writes reports that at a flush. Then everything that was written
//! since the last flush is to be done again. Writes in flight at that time are to be done again too, because
//! their replies may be older than the loss.

use std::ops::Range;

use iscsi_block_device::RangeSet;

/// The state of each byte of a copy.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    to_do: RangeSet,
    /// Written ranges that no flush covers: the next flush will.
    written: RangeSet,
    flushing: RangeSet,
    flushed: RangeSet,
    /// Number of losses so far.
    losses: u64,
}

/// A range whose write, with or without data, is in flight.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) range: Range<u64>,
    /// Number of losses when the task began.
    losses: u64,
}

impl Ledger {
    /// Creates the ledger for the ranges `to_do`, with the ranges that are already `flushed` at the
    /// destination.
    pub(crate) fn new(mut to_do: RangeSet, flushed: RangeSet) -> Self {
        flushed.iter().for_each(|range| to_do.remove(&range));
        Self { to_do, flushed, ..Self::default() }
    }

    /// Returns the bytes that a flush has covered.
    pub(crate) const fn flushed(&self) -> &RangeSet {
        &self.flushed
    }

    /// Returns the number of bytes still to do.
    pub(crate) fn to_do(&self) -> u64 {
        self.to_do.bytes()
    }

    /// Returns the lowest range still to do.
    pub(crate) fn next(&self) -> Option<Range<u64>> {
        self.to_do.first()
    }

    /// Returns the ranges still to do, so that the caller can query them, and remove a range when its copy
    /// begins.
    pub(crate) const fn rest(&mut self) -> &mut RangeSet {
        &mut self.to_do
    }

    /// Removes a range from the ranges to do, because its copy begins.
    pub(crate) fn take(&mut self, range: &Range<u64>) {
        self.to_do.remove(range);
    }

    /// Begins the write of a range that was taken.
    pub(crate) const fn begin(&self, range: Range<u64>) -> Task {
        Task { range, losses: self.losses }
    }

    /// Counts a completed write. Returns whether the write is valid: `false` if unflushed writes were lost
    /// while it was in flight, so that it must be repeated.
    pub(crate) fn written(&mut self, task: Task) -> bool {
        let is_sound = task.losses == self.losses;
        let set = if is_sound { &mut self.written } else { &mut self.to_do };
        set.insert(task.range);
        is_sound
    }

    /// Records a failed write: its range is to be done again.
    pub(crate) fn failed(&mut self, task: Task) {
        self.to_do.insert(task.range);
    }

    /// Counts a range as flushed, because the destination has its data without a write.
    pub(crate) fn is_there(&mut self, range: Range<u64>) {
        self.flushed.insert(range);
    }

    /// Begins a flush, which covers everything written so far.
    pub(crate) fn begin_flush(&mut self) {
        self.flushing = std::mem::take(&mut self.written);
    }

    /// Ends a successful flush, and returns the ranges that it covered.
    pub(crate) fn end_flush(&mut self) -> RangeSet {
        let flushed = std::mem::take(&mut self.flushing);
        self.flushed.extend(flushed.iter());
        flushed
    }

    /// Marks all unflushed writes as to be done again, and returns their ranges.
    pub(crate) fn take_back_unflushed(&mut self) -> RangeSet {
        self.losses += 1;
        let mut lost = std::mem::take(&mut self.flushing);
        lost.extend(std::mem::take(&mut self.written).iter());
        self.to_do.extend(lost.iter());
        lost
    }

    /// Returns whether all completed writes are flushed.
    pub(crate) fn is_flushed(&self) -> bool {
        self.written.is_empty() && self.flushing.is_empty()
    }

    /// Returns the number of written bytes that no flush, complete or running, covers.
    pub(crate) fn unflushed(&self) -> u64 {
        self.written.bytes()
    }

    /// Returns the number of bytes that no completed flush covers.
    pub(crate) fn exposed(&self) -> u64 {
        self.unflushed() + self.flushing.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new((0..100).into(), RangeSet::new())
    }

    fn write(ledger: &mut Ledger, range: Range<u64>) {
        ledger.take(&range);
        let task = ledger.begin(range);
        assert!(ledger.written(task));
    }

    fn set(range: Range<u64>) -> RangeSet {
        range.into()
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began() {
        let mut ledger = ledger();
        write(&mut ledger, 0..10);
        ledger.begin_flush();
        write(&mut ledger, 10..20);
        assert_eq!(ledger.end_flush(), set(0..10));
        assert_eq!((&ledger.flushed, ledger.unflushed()), (&set(0..10), 10));
        assert!(!ledger.is_flushed());
    }

    #[test]
    fn a_loss_leaves_what_was_flushed() {
        let mut ledger = ledger();
        write(&mut ledger, 0..10);
        ledger.begin_flush();
        ledger.end_flush();
        write(&mut ledger, 10..20);
        ledger.begin_flush();
        write(&mut ledger, 20..30);
        assert_eq!(ledger.take_back_unflushed(), set(10..30));
        assert_eq!(ledger.next(), Some(10..100));
        assert_eq!(ledger.flushed, set(0..10));
        assert!(ledger.is_flushed());
    }

    #[test]
    fn what_is_under_way_at_a_loss_is_done_again() {
        let mut ledger = ledger();
        ledger.take(&(0..10));
        let (task, other) = (ledger.begin(0..5), ledger.begin(5..10));
        ledger.begin_flush();
        ledger.take_back_unflushed();
        assert!(!ledger.written(task));
        assert_eq!(ledger.next(), Some(0..5));
        write(&mut ledger, 0..5);
        assert!(!ledger.written(other));
        ledger.begin_flush();
        assert_eq!(ledger.end_flush(), set(0..5));
    }
}
