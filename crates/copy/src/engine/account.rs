//! Tracks the state of each byte of a copy, and counts its progress.

use std::ops::Range;

use iscsi_block_device::RangeSet;

use super::ledger::{Ledger, Task};
use super::part::{Content, Part};
use crate::progress::{Event, Reporter};

/// The ledger and the progress, which must change together.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) ledger: Ledger,
    pub(super) reporter: Reporter,
    /// Ranges that the medium of the source could not read.
    pub(super) unreadable: RangeSet,
}

impl Account {
    pub(super) const fn new(ledger: Ledger, reporter: Reporter) -> Self {
        Self { ledger, reporter, unreadable: RangeSet::new() }
    }

    /// Sets the number of bytes to copy. Bytes that an earlier run has flushed count as done.
    pub(super) fn begin(&mut self, is_stream: bool, stream_len: Option<u64>) {
        let resumed = self.ledger.flushed().bytes();
        let to_do = (!is_stream).then(|| self.ledger.to_do() + resumed);
        let progress = &mut self.reporter.progress;
        progress.total = to_do.or(stream_len);
        (progress.resumed, progress.done, progress.flushed) = (resumed, resumed, resumed);
    }

    /// Counts a range as done, because the destination has its data already.
    pub(super) fn is_there(&mut self, range: Range<u64>) {
        let len = range.end - range.start;
        let progress = &mut self.reporter.progress;
        (progress.skipped, progress.done) = (progress.skipped + len, progress.done + len);
        progress.flushed += len;
        self.ledger.is_there(range);
    }

    /// Records and reports ranges that the medium of the source could not read. They are not copied.
    pub(super) fn leave_out(&mut self, unreadable: &RangeSet) {
        for range in unreadable.iter() {
            let (offset, len) = (range.start, range.end - range.start);
            self.reporter.progress.unreadable += len;
            self.reporter.report(Event::Unreadable { offset, len });
            self.unreadable.insert(range);
        }
    }

    /// Counts a completed write. Returns whether the write is valid: `false` if unflushed writes were lost
    /// while it was in flight, so that it must be repeated.
    pub(super) fn written(&mut self, task: Task, part: &Part, makes_zeros: bool) -> bool {
        let len = part.len();
        let progress = &mut self.reporter.progress;
        match part.content {
            Content::Data { .. } => progress.written += len,
            Content::Zeros => {
                progress.zeroed += len;
                progress.zeros_written += if makes_zeros { 0 } else { len };
            }
        }
        let is_sound = self.ledger.written(task);
        let progress = &mut self.reporter.progress;
        if is_sound {
            progress.done += len;
        } else {
            progress.lost += len;
        }
        is_sound
    }

    /// Marks all unflushed writes as to be done again, because a flush has reported a loss, and returns their
    /// number of bytes.
    pub(super) fn record_loss(&mut self) -> u64 {
        let lost = self.ledger.take_back_unflushed().bytes();
        self.reporter.progress.done -= lost;
        self.reporter.progress.lost += lost;
        lost
    }

    /// Returns the length of the source; for a stream, the end of the flushed bytes.
    pub(super) fn total(&self, source_len: Option<u64>) -> u64 {
        let flushed = self.ledger.flushed().iter().next_back().map_or(0, |range| range.end);
        source_len.unwrap_or(flushed)
    }
}
