//! What has become of each byte of a copy, and the progress that says so.

use std::ops::Range;

use iscsi_block_device::RangeSet;

use super::ledger::{Ledger, Task};
use super::part::{Content, Part};
use crate::progress::{Event, Teller};

/// The ledger with the numbers that are shown of it: both change together.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) ledger: Ledger,
    pub(super) teller: Teller,
    /// What the source does not give.
    pub(super) unreadable: RangeSet,
}

impl Account {
    pub(super) const fn new(ledger: Ledger, teller: Teller) -> Self {
        Self { ledger, teller, unreadable: RangeSet::new() }
    }

    /// Begins with the number of bytes to copy; what an earlier run has flushed is done.
    pub(super) fn begin(&mut self, is_stream: bool, stream_len: Option<u64>) {
        let resumed = self.ledger.flushed().bytes();
        let to_do = (!is_stream).then(|| self.ledger.to_do() + resumed);
        let progress = &mut self.teller.progress;
        progress.total = to_do.or(stream_len);
        (progress.resumed, progress.done, progress.flushed) = (resumed, resumed, resumed);
    }

    /// Counts what the destination has already.
    pub(super) fn is_there(&mut self, range: Range<u64>) {
        let len = range.end - range.start;
        let progress = &mut self.teller.progress;
        (progress.skipped, progress.done) = (progress.skipped + len, progress.done + len);
        progress.flushed += len;
        self.ledger.is_there(range);
    }

    /// Leaves out what the source does not give.
    pub(super) fn leave_out(&mut self, unreadable: &RangeSet) {
        for range in unreadable.iter() {
            let (offset, len) = (range.start, range.end - range.start);
            self.teller.progress.unreadable += len;
            self.teller.tell(Event::Unreadable { offset, len });
            self.unreadable.insert(range);
        }
    }

    /// Counts a write that has ended; whether it need not be made again because of a loss that came meanwhile.
    pub(super) fn written(&mut self, task: Task, part: &Part, makes_zeros: bool) -> bool {
        let len = part.len();
        let progress = &mut self.teller.progress;
        match part.content {
            Content::Data { .. } => progress.written += len,
            Content::Zeros => {
                progress.zeroed += len;
                progress.zeros_written += if makes_zeros { 0 } else { len };
            }
        }
        let is_sound = self.ledger.written(task);
        let progress = &mut self.teller.progress;
        if is_sound {
            progress.done += len;
        } else {
            progress.lost += len;
        }
        is_sound
    }

    /// Takes back what a flush has reported as lost, bytes.
    pub(super) fn lose(&mut self) -> u64 {
        let lost = self.ledger.lose().bytes();
        self.teller.progress.done -= lost;
        self.teller.progress.lost += lost;
        lost
    }

    /// The length of all, or what is known of it.
    pub(super) fn total(&self, source_len: Option<u64>) -> u64 {
        let flushed = self.ledger.flushed().iter().next_back().map_or(0, |range| range.end);
        source_len.unwrap_or(flushed)
    }
}
