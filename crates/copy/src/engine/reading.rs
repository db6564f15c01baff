//! Queries where the source holds data, and reads that data.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_block_device::{BufferPool, DeviceErrorKind, DeviceResult, Extent, RangeSet};
use tokio::time::Instant;

use super::depths::Load;
use super::reads::{Read, Reads, parts, summed};
use super::salvage::{self, Salvage};
use super::{Ended, Engine};
use crate::error::CopyError;
use crate::survey::questions::Pace;
use crate::survey::{Grid, Question};

/// Smallest read when parts of a range are unreadable, bytes.
const MIN_BLOCK: u64 = 512;
/// Number of waiting parts at which no more zeros are queued.
const MAX_WAITING: usize = 1024;

/// A read that may begin.
struct Next {
    range: Range<u64>,
    asked: Load,
    /// Whether it is unknown if the range holds data.
    is_blind: bool,
}

impl Engine {
    /// Begins as many reads as may be in flight, and queries where more data lies.
    pub(super) fn start_reads(&mut self, now: Instant) {
        let at_once = self.ends.zeros_at_once(self.parts.cut.io_size);
        let max_zeros = at_once.saturating_mul(MAX_WAITING as u64);
        while self.parts.waiting.len() < MAX_WAITING {
            self.start_survey(now);
            // Zeros need no read, so they are queued first.
            let rest = self.account.ledger.rest();
            if let Some(zeros) = self.reads.survey.cut_zeros(rest, max_zeros) {
                self.parts.put_reported_zeros(zeros, &mut self.account, &self.ends);
            } else if !self.rates.reads.is_open(now) || !self.start_read(now) {
                break;
            }
        }
        let may_read = self.rates.reads.is_open(now) && self.takes_one_more();
        let is_starved = may_read && self.reads.survey.is_awaited(self.account.ledger.rest());
        self.reads.survey.set_pace(now, if is_starved { Pace::Starved } else { Pace::Going });
    }

    /// Begins queries to the source about the ranges still to do: which of them hold data? Without digests, a
    /// short range that fits in one request is read without a query.
    fn start_survey(&mut self, now: Instant) {
        let Some(device) = self.ends.source.device_ref() else { return };
        let grid = match self.parts.grid(&self.ends) {
            Some((block, _)) => Grid { block, short: 0 },
            None => Grid { block: 1, short: self.parts.cut.io_size as u64 },
        };
        while let Some(question) = self.reads.survey.ask(self.account.ledger.rest(), grid, now) {
            let device = Arc::clone(device);
            self.tasks.spawn(async move {
                let Range { start, end } = question.range;
                let told = device.extents(start, end - start).await;
                Ok(Ended::Surveyed(question, told))
            });
        }
    }

    pub(super) fn take_survey(&mut self, question: &Question, told: DeviceResult<Vec<Extent>>) {
        let rest = self.account.ledger.rest();
        self.reads.survey.take(question, told, rest, Instant::now());
    }

    /// Returns the next read, if one more may be in flight; a stream is read at its current position.
    fn next_read(&mut self, grid: Option<(u64, u64)>) -> Option<Next> {
        let (stride, len) = self.stride(grid);
        if let Some(offset) = self.reads.survey.stream() {
            let asked = Load { count: stride, bytes: len as u64 };
            let is_next = self.reads.in_flight.count == 0 && self.has_room(asked, stride);
            let range = offset..offset + len as u64;
            return is_next.then_some(Next { range, asked, is_blind: false });
        }
        let io_size = self.parts.cut.io_size;
        let align = grid.map_or(io_size, |(size, _)| to_usize(size, len));
        let (range, is_blind) = self.reads.survey.data(self.account.ledger.rest(), len, align)?;
        let bytes = range.end - range.start;
        let asked = Load { count: to_usize(bytes, len).div_ceil(io_size), bytes };
        self.takes(asked, stride).then_some(Next { range, asked, is_blind })
    }

    /// Returns whether a read with the load `asked` may begin. A read of several requests counts as one here,
    /// so that it may exceed the depth.
    fn takes(&self, asked: Load, stride: usize) -> bool {
        let next = Load { count: 1, bytes: asked.bytes };
        let Reads { depth, in_flight, .. } = &self.reads;
        depth.takes(next, *in_flight, self.parts.cut.io_size) && self.has_room(asked, stride)
    }

    /// Returns whether a read of one request may begin.
    fn takes_one_more(&self) -> bool {
        self.takes(Load { count: 1, bytes: self.parts.cut.io_size as u64 }, 1)
    }

    /// Returns whether the data in memory, from the beginning of its read to the end of its write, leaves
    /// room for a read with the load `asked`.
    fn has_room(&self, asked: Load, stride: usize) -> bool {
        let held = self.reads.in_flight + self.parts.load() + self.writes.in_flight;
        let depth = self.reads.depth.and(self.writes.depth, 2 * stride);
        held.count == 0 || depth.takes(asked, held, self.parts.cut.io_size)
    }

    /// Begins a read. Returns `false` if none may begin.
    fn start_read(&mut self, now: Instant) -> bool {
        let grid = self.parts.grid(&self.ends);
        let Some(Next { range, asked, is_blind }) = self.next_read(grid) else { return false };
        let len = to_usize(asked.bytes, usize::MAX);
        let Some(hold) = self.reads.memory.take(len) else { return false };
        let (pool, mut cut) = (self.reads.pool.clone(), self.parts.cut);
        let wants_sums = self.parts.checksums.is_some();
        if !self.ends.makes_zeros() && !self.parts.blank.is_possible() {
            // Zeros would be written as data anyway, so the search for them is omitted.
            cut.granularity = None;
        }
        let into_parts = move |offset, data: &Bytes, grid| {
            let (parts, blocks) = parts(cut, offset, data, &hold, grid);
            (summed(parts, wants_sums), blocks)
        };
        if let Some(device) = self.ends.source.device_ref() {
            self.reads.survey.begin_read(&range, is_blind, self.account.ledger.rest());
            let device = Arc::clone(device);
            let skips = self.options.skips_unreadable && !self.ends.destination.is_sequential();
            let block = u64::from(self.ends.limits.source.block_size).max(MIN_BLOCK);
            let block = skips.then_some(block);
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
                Ok(Ended::Read(Read { asked, bytes, parts, blocks, unreadable, is_last, is_blind }))
            });
        } else {
            let offset = range.start;
            self.reads.survey.advance(asked.bytes);
            let source = self.ends.source.clone();
            self.tasks.spawn(async move {
                let data = source.fill(pool.take(len)).await.map_err(CopyError::Source)?;
                let (bytes, is_last) = (data.len() as u64, data.len() < len);
                let end = if is_last { offset + bytes } else { u64::MAX };
                let grid = grid.map(|(size, _)| (size, end));
                let (parts, blocks) = into_parts(offset, &pool.lend(data), grid);
                let unreadable = RangeSet::new();
                Ok(Ended::Read(Read { asked, bytes, parts, blocks, unreadable, is_last, is_blind }))
            });
        }
        self.rates.reads.pay(asked.bytes, now);
        self.reads.begin(asked);
        true
    }

    /// Returns how many requests one read covers, and their bytes: whole blocks of the digests, or without
    /// digests no more than may be in flight.
    fn stride(&self, grid: Option<(u64, u64)>) -> (usize, usize) {
        let io_size = self.parts.cut.io_size;
        let of_device = self.ends.limits.source.preferred_transfer;
        let preferred = if self.ends.is_stream() { 0 } else { of_device };
        let len = (preferred / io_size).clamp(1, self.reads.depth.requests()) * io_size;
        let block = grid.map_or(io_size, |(size, _)| usize::try_from(size).unwrap_or(io_size));
        let len = len.next_multiple_of(block);
        (len.div_ceil(io_size), len)
    }

    /// Takes the result of a read: keeps its parts, and omits unreadable ranges.
    pub(super) fn take_read(&mut self, read: Read) -> Result<(), CopyError> {
        let Read { asked, bytes, parts, blocks, unreadable, is_last, is_blind } = read;
        self.reads.end(asked, bytes, is_blind);
        self.account.reporter.progress.read += bytes;
        if !unreadable.is_empty() {
            // The next checkpoint records the unreadable ranges.
            self.account.leave_out(&unreadable);
            self.saving.ask();
        }
        let judged = self.parts.judge(&blocks);
        for (part, sum) in parts {
            let capacity = self.ends.destination.capacity().unwrap_or(u64::MAX);
            if part.range.end > capacity {
                return Err(CopyError::Overflow { capacity });
            }
            if let Some(checksums) = &mut self.parts.checksums {
                checksums.put(&part, sum);
            }
            self.parts.put(part, &judged, &mut self.account, &self.ends);
        }
        if is_last {
            if let Some(digesting) = &mut self.parts.digesting {
                digesting.end_stream(&self.ends.destination);
            }
            self.reads.survey.end_stream();
        }
        Ok(())
    }
}

fn to_usize(len: u64, otherwise: usize) -> usize {
    usize::try_from(len).unwrap_or(otherwise)
}
