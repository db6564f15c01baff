//! Questions to the source, and reads of it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_block_device::{BufferPool, DeviceErrorKind, DeviceResult, Extent, RangeSet};
use tokio::time::Instant;

use super::depths::Load;
use super::memory::Hold;
use super::part::{Content, Cut, Part};
use super::salvage::{self, Salvage};
use super::{Ended, Engine};
use crate::digests::Digest;
use crate::digests::digesting::Digesting;
use crate::error::CopyError;
use crate::progress::Event;
use crate::survey::blocks::{Block, blocks};
use crate::survey::questions::Pace;
use crate::survey::{Grid, Question};
use crate::verify::checksums::sum;

/// One request that makes zeros has so many bytes at most.
const MAX_ZEROS: u64 = 256 << 20;
/// Less than this is not read by itself where a medium fails, bytes.
const MIN_BLOCK: u64 = 512;
/// So many parts may wait for their turn before more zeros are found.
const MAX_WAITING: usize = 1024;

/// A read that may begin.
struct Next {
    range: Range<u64>,
    asked: Load,
    /// Nothing is known of what it reads.
    is_blind: bool,
}

impl Engine {
    /// Begins as many reads as may be under way, and asks where there is more to read.
    pub(super) fn start_reads(&mut self, now: Instant) {
        let max_zeros = self.zeros_at_once().saturating_mul(MAX_WAITING as u64);
        while self.waiting.len() < MAX_WAITING {
            self.start_survey(now);
            // Zeros are no work for the source.
            if let Some(zeros) = self.survey.cut_zeros(self.ledger.rest(), max_zeros) {
                if let Some(checksums) = &mut self.checksums {
                    checksums.put(&Part::zeros(zeros.clone()), 0);
                }
                self.put_told_zeros(zeros);
            } else if !self.rates.reads.is_open(now) || !self.start_read(now) {
                break;
            }
        }
        let may_read = self.rates.reads.is_open(now) && self.takes_one_more();
        let is_starved = may_read && self.survey.is_awaited(self.ledger.rest());
        self.survey.note(now, if is_starved { Pace::Starved } else { Pace::Going });
    }

    /// Asks which parts of what is to be done hold data. What one request reads is not asked about.
    fn start_survey(&mut self, now: Instant) {
        let Some(device) = self.source.device_ref() else { return };
        let grid = match self.block_grid() {
            Some((block, _)) => Grid { block, short: 0 },
            None => Grid { block: 1, short: self.cut.io_size as u64 },
        };
        while let Some(question) = self.survey.ask(self.ledger.rest(), grid, now) {
            let device = Arc::clone(device);
            self.tasks.spawn(async move {
                let Range { start, end } = question.range;
                let told = device.extents(start, end - start).await;
                Ok(Ended::Surveyed(question, told))
            });
        }
    }

    pub(super) fn take_survey(&mut self, question: &Question, told: DeviceResult<Vec<Extent>>) {
        self.survey.take(question, told, self.ledger.rest(), Instant::now());
    }

    /// Zeros are at the destination already, or have to be made, or wait until it has told.
    pub(super) fn put_zeros(&mut self, range: Range<u64>) {
        let Some(there) = self.blank.among(&range) else { return };
        let mut missing = RangeSet::from(range);
        for part in there.iter() {
            missing.remove(&part);
            self.teller.progress.skipped += part.end - part.start;
            self.teller.progress.done += part.end - part.start;
            self.teller.progress.flushed += part.end - part.start;
            self.ledger.is_there(part.clone());
            self.settle(&part.into());
        }
        let step = self.zeros_at_once();
        for part in missing.iter() {
            let mut start = part.start;
            while start < part.end {
                let end = part.end.min(start - start % step + step);
                self.waiting.insert(start, Part::zeros(start..end));
                start = end;
            }
        }
    }

    /// The length of a request that makes zeros.
    fn zeros_at_once(&self) -> u64 {
        if self.makes_zeros() { MAX_ZEROS } else { self.cut.io_size as u64 }
    }

    /// Whether the destination makes zeros by itself.
    pub(super) fn makes_zeros(&self) -> bool {
        !self.destination.is_sequential() && self.limits.destination.has_fast_zeroes
    }

    /// What is read next, if one more read may be under way; a stream is read where it is.
    fn next_read(&mut self, grid: Option<(u64, u64)>) -> Option<Next> {
        let (stride, len) = self.stride(grid);
        if let Some(offset) = self.survey.stream() {
            let asked = Load { count: stride, bytes: len as u64 };
            let is_next = self.reading == 0 && self.has_room(asked, stride);
            let range = offset..offset + len as u64;
            return is_next.then_some(Next { range, asked, is_blind: false });
        }
        let io_size = self.cut.io_size;
        let align = grid.map_or(io_size, |(size, _)| to_usize(size, len));
        let (range, is_blind) = self.survey.data(self.ledger.rest(), len, align)?;
        let bytes = range.end - range.start;
        let asked = Load { count: to_usize(bytes, len).div_ceil(io_size), bytes };
        self.takes(asked, stride).then_some(Next { range, asked, is_blind })
    }

    /// Whether such a read may be under way as well. One of several requests begins as one does: it may go beyond.
    fn takes(&self, asked: Load, stride: usize) -> bool {
        let next = Load { count: 1, bytes: asked.bytes };
        let reading = Load { count: self.reading, bytes: self.reading_bytes };
        self.reads.takes(next, reading, self.cut.io_size) && self.has_room(asked, stride)
    }

    /// Whether a read of one request may be.
    fn takes_one_more(&self) -> bool {
        self.takes(Load { count: 1, bytes: self.cut.io_size as u64 }, 1)
    }

    /// Whether there is room for what is read between the reads and the writes.
    fn has_room(&self, asked: Load, stride: usize) -> bool {
        let io_size = self.cut.io_size;
        let judged = self.digesting.as_ref().map_or(0, Digesting::waiting);
        // Zeros wait as requests of no bytes.
        let waiting = self.waiting.values().filter(|part| part.is_data()).map(Part::len);
        let held = Load {
            count: judged + self.reading + self.waiting.len() + self.writing,
            bytes: (judged * io_size) as u64
                + self.reading_bytes
                + waiting.sum::<u64>()
                + self.writing_bytes,
        };
        held.count == 0 || self.reads.and(self.writes, 2 * stride).takes(asked, held, io_size)
    }

    /// Begins a read, if one may begin.
    fn start_read(&mut self, now: Instant) -> bool {
        let grid = self.block_grid();
        let Some(Next { range, asked, is_blind }) = self.next_read(grid) else { return false };
        let len = to_usize(asked.bytes, usize::MAX);
        let Some(hold) = self.memory.take(len) else { return false };
        let (pool, mut cut) = (self.pool.clone(), self.cut);
        let wants_sums = self.checksums.is_some();
        if !self.makes_zeros() && !self.blank.is_possible() {
            cut.granularity = None;
        }
        let into_parts = move |offset, data: &Bytes, grid| {
            let (parts, blocks) = parts(cut, offset, data, &hold, grid);
            (summed(parts, wants_sums), blocks)
        };
        if let Some(device) = self.source.device_ref() {
            self.survey.begin_read(&range, is_blind, self.ledger.rest());
            let device = Arc::clone(device);
            let skips = self.options.skips_unreadable && !self.destination.is_sequential();
            let block = skips.then(|| u64::from(self.limits.source.block_size).max(MIN_BLOCK));
            self.tasks.spawn(async move {
                let salvage = salvage::read(device.as_ref(), &pool, range, block).await;
                let Salvage { data, unreadable } = salvage.map_err(|cause| {
                    let is_short = cause.kind() == DeviceErrorKind::UnexpectedEnd;
                    if is_short { CopyError::Shrunk } else { CopyError::Source(cause) }
                })?;
                let bytes = data.iter().map(|(_, data)| data.len() as u64).sum();
                let (mut parts, mut blocks) = (Vec::new(), Vec::new());
                for (at, data) in data {
                    let (own, cut_blocks) = into_parts(at, &pool.lend(data), grid);
                    parts.extend(own);
                    blocks.extend(cut_blocks);
                }
                let is_last = false;
                Ok(Ended::Read { asked, bytes, parts, blocks, unreadable, is_last, is_blind })
            });
        } else {
            let offset = range.start;
            self.survey.advance(asked.bytes);
            let source = self.source.clone();
            self.tasks.spawn(async move {
                let data = source.fill(pool.take(len)).await.map_err(CopyError::Source)?;
                let (bytes, is_last) = (data.len() as u64, data.len() < len);
                let end = if is_last { offset + bytes } else { u64::MAX };
                let grid = grid.map(|(size, _)| (size, end));
                let (parts, blocks) = into_parts(offset, &pool.lend(data), grid);
                let unreadable = RangeSet::new();
                Ok(Ended::Read { asked, bytes, parts, blocks, unreadable, is_last, is_blind })
            });
        }
        self.rates.reads.pay(asked.bytes, now);
        self.reading += asked.count;
        self.reading_bytes += asked.bytes;
        true
    }

    /// How many requests one read fetches, and their bytes: no more than may be read at once, but whole
    /// blocks.
    fn stride(&self, grid: Option<(u64, u64)>) -> (usize, usize) {
        let io_size = self.cut.io_size;
        let of_device = self.limits.source.preferred_transfer;
        let preferred = self.source.device_ref().map_or(0, |_| of_device);
        let len = (preferred / io_size).clamp(1, self.reads.requests()) * io_size;
        let block = grid.map_or(io_size, |(size, _)| usize::try_from(size).unwrap_or(io_size));
        let len = len.next_multiple_of(block);
        (len.div_ceil(io_size), len)
    }

    /// Leaves out what the source does not give; the next checkpoint says so.
    pub(super) fn take_unreadable(&mut self, unreadable: &RangeSet) {
        for range in unreadable.iter() {
            let (offset, len) = (range.start, range.end - range.start);
            self.teller.progress.unreadable += len;
            self.teller.tell(Event::Unreadable { offset, len });
            self.unreadable.insert(range);
            self.is_save_due = true;
        }
    }

    /// Takes what was read.
    pub(super) fn take_parts(
        &mut self,
        parts: Vec<(Part, u64)>,
        blocks: &[Block],
        is_last: bool,
    ) -> Result<(), CopyError> {
        let judged = self.judge_blocks(blocks);
        for (part, sum) in parts {
            let capacity = self.destination.capacity().unwrap_or(u64::MAX);
            if part.range.end > capacity {
                return Err(CopyError::Overflow { capacity });
            }
            if let Some(checksums) = &mut self.checksums {
                checksums.put(&part, sum);
            }
            self.put_part(part, &judged);
        }
        if is_last {
            self.end_blocks();
            self.survey.end_stream();
        }
        Ok(())
    }
}

fn to_usize(len: u64, otherwise: usize) -> usize {
    usize::try_from(len).unwrap_or(otherwise)
}

/// Cuts what was read from `offset` on, where blocks end as well, if there are any.
fn parts(
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

/// The parts, each with the checksum of its data if that is wanted.
fn summed(parts: Vec<Part>, wants_sums: bool) -> Vec<(Part, u64)> {
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
