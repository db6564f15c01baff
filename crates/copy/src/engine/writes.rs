//! The writes of a copy.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::depths::{Depth, Load};
use super::part::Part;

/// The writes of a copy.
#[derive(Debug)]
pub(super) struct Writes {
    /// The most writes that may be in flight.
    pub(super) depth: Depth,
    /// Those in flight; they count requests of the length of one.
    pub(super) in_flight: Load,
    /// Where a stream is written next.
    pub(super) next: u64,
    /// What is sent where the destination does not make zeros by itself.
    pub(super) zeros: Bytes,
}

impl Writes {
    /// Creates the writes of a copy of which none has more than `io_size` bytes of data.
    pub(super) fn new(io_size: usize) -> Self {
        let zeros = Bytes::from(vec![0; io_size]);
        Self { depth: Depth::ONE, in_flight: Load::NONE, next: 0, zeros }
    }

    /// Takes the part to be written next, if one more write may be in flight; a stream has one at a time.
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

    /// A write of this part begins.
    pub(super) fn begin(&mut self, part: &Part) {
        self.next = part.range.end;
        self.in_flight = self.in_flight + load(part);
    }

    /// It has ended.
    pub(super) fn end(&mut self, part: &Part) {
        self.in_flight = self.in_flight - load(part);
    }
}

fn load(part: &Part) -> Load {
    Load { count: 1, bytes: part.len() }
}
