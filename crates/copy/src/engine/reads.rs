//! Keeps the reads in flight and their results.

use std::sync::Arc;

use bytes::Bytes;
use iscsi_block_device::RangeSet;

use super::depths::{Depth, Load};
use super::memory::{Hold, Memory};
use super::part::{Content, Cut, Part};
use super::pool::Pool;
use crate::digests::Digest;
use crate::survey::Survey;
use crate::survey::blocks::{Block, blocks};
use crate::verify::checksums::sum;

/// The reads of a copy, and their limits.
#[derive(Debug)]
pub(super) struct Reads {
    /// The ranges that hold data, and are to be read.
    pub(super) survey: Survey,
    /// Largest number of reads in flight.
    pub(super) depth: Depth,
    /// Reads in flight, counted as requests of the usual length.
    pub(super) in_flight: Load,
    pub(super) memory: Memory,
    pub(super) pool: Pool,
}

/// The result of a read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) asked: Load,
    pub(super) bytes: u64,
    /// The parts of the data, each with its checksum if the copy needs checksums.
    pub(super) parts: Vec<(Part, u64)>,
    /// The blocks of these parts, if the copy has digests.
    pub(super) blocks: Vec<Block>,
    pub(super) unreadable: RangeSet,
    pub(super) is_last: bool,
    /// Whether it was unknown if the range holds data.
    pub(super) is_blind: bool,
}

impl Reads {
    pub(super) fn new(survey: Survey, max_memory: usize) -> Self {
        Self {
            survey,
            depth: Depth::ONE,
            in_flight: Load::NONE,
            memory: Memory::new(max_memory),
            pool: Pool::default(),
        }
    }

    /// Counts a read that begins.
    pub(super) fn begin(&mut self, asked: Load) {
        self.in_flight = self.in_flight + asked;
    }

    /// Counts a read that has ended. `is_blind`: it was unknown whether its range holds data.
    pub(super) fn end(&mut self, asked: Load, bytes: u64, is_blind: bool) {
        self.survey.end_read(bytes, is_blind);
        self.in_flight = self.in_flight - asked;
    }

    /// Returns whether everything is read.
    pub(super) fn is_over(&self) -> bool {
        self.survey.is_over() && self.in_flight.count == 0
    }

    /// Returns whether the data in memory takes at least half of the limit.
    pub(super) fn is_half_full(&self) -> bool {
        self.memory.is_half_full()
    }
}

/// Cuts data that was read from `offset` on; with a `grid`, also at block boundaries.
pub(super) fn parts(
    cut: Cut,
    offset: u64,
    data: &Bytes,
    hold: &Arc<Hold>,
    grid: Option<(u64, u64)>,
) -> (Vec<Part>, Vec<Block>) {
    let Some((size, end)) = grid else { return (cut.parts(offset, data, hold), Vec::new()) };
    let (mut parts, mut found) = (Vec::new(), Vec::new());
    let mut rest = data.clone();
    for (range, is_whole) in blocks(offset..offset + data.len() as u64, size, end) {
        let len = usize::try_from(range.end - range.start).unwrap_or(rest.len());
        let block = rest.split_to(len.min(rest.len()));
        parts.extend(cut.parts(range.start, &block, hold));
        found.push((range, is_whole.then(|| Digest::of(&block))));
    }
    (parts, found)
}

/// Returns the parts, each with the checksum of its data if `wants_sums`, otherwise with 0.
pub(super) fn summed(parts: Vec<Part>, wants_sums: bool) -> Vec<(Part, u64)> {
    let sum_of = |part: &Part| match &part.content {
        Content::Data { bytes, .. } if wants_sums => sum(bytes),
        Content::Data { .. } | Content::Zeros => 0,
    };
    let with_sum = |part: Part| {
        let sum = sum_of(&part);
        (part, sum)
    };
    parts.into_iter().map(with_sum).collect()
}
