//! The writes of a copy.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::depths::{Depth, Load};
use super::part::Part;

#[derive(Debug)]
pub(super) struct Writes {
    /// Largest number of writes in flight.
    pub(super) depth: Depth,
    /// Writes in flight, counted as requests of the usual length.
    pub(super) in_flight: Load,
    /// Offset of the next write to a stream.
    pub(super) next: u64,
    /// A page of zeros, sent where the destination does not write zeros without data.
    pub(super) zeros: Bytes,
}

impl Writes {
    /// Creates the writes of a copy whose requests have at most `io_size` bytes of data.
    pub(super) fn new(io_size: usize) -> Self {
        let zeros = Bytes::from(vec![0; io_size]);
        Self { depth: Depth::ONE, in_flight: Load::NONE, next: 0, zeros }
    }

    /// Removes and returns the part to write next, if one more write may be in flight; a stream has one write
    /// at a time.
    pub(super) fn next(
        &self,
        waiting: &mut BTreeMap<u64, Part>,
        in_order: bool,
        io_size: usize,
    ) -> Option<Part> {
        let depth = if in_order { Depth::ONE } else { self.depth };
        let next = waiting.first_entry()?;
        let more = Load { count: 1, bytes: next.get().len() };
        let in_turn = !in_order || *next.key() == self.next;
        let is_due = depth.takes(more, self.in_flight, io_size);
        (is_due && in_turn).then(|| next.remove())
    }

    /// Counts a write of this part as in flight.
    pub(super) fn begin(&mut self, part: &Part) {
        self.next = part.range.end;
        self.in_flight = self.in_flight + load(part);
    }

    /// Counts a write of this part as ended.
    pub(super) fn end(&mut self, part: &Part) {
        self.in_flight = self.in_flight - load(part);
    }
}

fn load(part: &Part) -> Load {
    Load { count: 1, bytes: part.len() }
}
