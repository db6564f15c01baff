//! Judges what reads may return, from all earlier writes.
//!
//! The oracle knows when each write began and ended, in the order of all events. A read may return the data
//! of any write to its place, unless another write to that place that succeeded came after that write and
//! before the read. A write that failed or was dropped may have been executed, or may be executed later. This
//! is over when a write that began after the end of the failed write has succeeded, since each later write
//! waits for it. A flush that succeeded makes all writes durable that had succeeded before the flush began. A
//! crash may undo the rest.
//!
//! A write that a process had in flight when it died is an orphan: no later write waits for it. So it may be
//! executed until no request of the process is in flight, even over data that other processes have written and flushed
//! meanwhile.

mod grain;
mod orphans;
mod served;
#[cfg(test)]
mod tests;
mod troubles;
mod version;

use std::ops::Range;

pub use self::grain::GRAIN;
pub(crate) use self::grain::Write;
use self::grain::{ZEROS, content_of};
pub(crate) use self::served::Unanswered;
pub(crate) use self::version::Moment;
use self::version::{Version, is_replaced};

/// The data of one unit, as far as writes and reads determine it.
#[derive(Debug)]
pub(crate) struct Oracle {
    now: Moment,
    writes: u64,
    numbers: usize,
    /// The disk that each write went through, and when it began.
    begun: Vec<(usize, Moment)>,
    grains: Vec<Vec<Version>>,
    /// The last crash, if there was one.
    crashed: Option<Moment>,
    /// Whether a crash loses writes that were not flushed.
    is_volatile: bool,
    /// When `is_volatile` last changed from false to true.
    switched_on: Option<Moment>,
    /// Whether a loss is reported to each handle, and not only to the first handle that flushes.
    reports_to_each: bool,
    /// Whether writes are acknowledged before the unit has them.
    answers_early: bool,
}

impl Oracle {
    /// Returns the oracle of a unit of `bytes` bytes, all zero.
    pub(crate) fn new(bytes: usize, is_volatile: bool, reports_to_each: bool) -> Self {
        let grains = vec![vec![Version::first()]; bytes / GRAIN];
        let begun = Vec::new();
        Self {
            now: 0,
            writes: 0,
            numbers: 0,
            begun,
            grains,
            crashed: None,
            is_volatile,
            switched_on: None,
            reports_to_each,
            answers_early: false,
        }
    }

    pub(crate) fn now(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// Begins a write of these grains: of zeros, or of data that no other write has.
    pub(crate) fn begin_write(&mut self, disk: usize, grains: Range<usize>, zeros: bool) -> Write {
        let begun = self.now();
        self.writes += 1;
        self.numbers += 1;
        let content = if zeros { ZEROS } else { self.writes };
        self.begun.push((disk, begun));
        for grain in &mut self.grains[grains.clone()] {
            grain.push(Version::begun(content, self.numbers, begun, disk));
        }
        Write { number: self.numbers, grains, content }
    }

    /// Returns the disk that the write of this content went through, and when it began.
    pub(crate) fn begun(&self, content: u64) -> Option<(usize, Moment)> {
        let number = usize::try_from(content.checked_sub(1)?).ok()?;
        self.begun.get(number).copied()
    }

    /// Ends a write. It has succeeded if `is_acknowledged`; otherwise it has failed or was dropped.
    pub(crate) fn end_write(&mut self, write: Write, is_acknowledged: bool) {
        let now = self.now();
        for version in self.grains[write.grains].iter_mut().flatten() {
            if version.write == write.number {
                (version.ended, version.settled) = (Some(now), Some(now));
                version.is_acknowledged = is_acknowledged;
            }
        }
    }

    /// Ends a write that was acknowledged and that a flush of the same handle has covered, unless it was
    /// reported to the handle as possibly lost.
    pub(crate) fn end_flushed_write(&mut self, write: Write, handle: u32) {
        let (number, grains) = (write.number, write.grains.clone());
        self.end_write(write, true);
        for version in self.grains[grains].iter_mut().flatten() {
            let is_reported = version.reported & (1 << handle) != 0;
            version.is_durable |= version.write == number && !is_reported;
        }
    }

    /// Notes that a flush which began at `begun` has succeeded. Writes of the disk that had succeeded before
    /// `begun` are durable, except those reported to the handle as possibly lost.
    pub(crate) fn flushed(&mut self, disk: usize, handle: u32, begun: Moment) {
        for version in self.grains.iter_mut().flatten() {
            let before = version.ended.is_some_and(|ended| ended < begun);
            let is_reported = version.reported & (1 << handle) != 0;
            if version.is_acknowledged && before && version.disk == disk && !is_reported {
                version.is_durable = true;
            }
        }
    }

    /// Notes that a handle has reported a possible loss of writes that were not flushed.
    pub(crate) fn on_reported_loss(&mut self, disk: usize, handle: u32) {
        let reported = if self.reports_to_each { 1 << handle } else { u64::MAX };
        for version in self.grains.iter_mut().flatten() {
            if !version.is_durable && version.disk == disk {
                version.reported |= reported;
            }
        }
    }

    /// Adds a handle. It reports no loss that another handle has reported before.
    pub(crate) fn made_handle(&mut self, disk: usize, handle: u32) {
        let reported = |version: &&mut Version| version.disk == disk && version.reported != 0;
        for version in self.grains.iter_mut().flatten().filter(reported) {
            version.reported |= 1 << handle;
        }
    }

    /// Notes that a disk was dropped: its writes in flight have ended, but may still be executed.
    pub(crate) fn abandoned(&mut self, disk: usize) {
        let now = self.now();
        let is_open = |version: &&mut Version| version.disk == disk && version.ended.is_none();
        for version in self.grains.iter_mut().flatten().filter(is_open) {
            (version.ended, version.settled) = (Some(now), Some(now));
        }
    }

    /// Notes that the unit has crashed: the data in its cache may be lost.
    pub(crate) fn crashed(&mut self) {
        if self.is_volatile {
            self.lost(0..self.grains.len());
        }
    }

    /// Notes that cached writes to these grains may be lost. Grains beyond the largest size so far are ignored.
    pub(crate) fn lost(&mut self, grains: Range<usize>) {
        let now = self.now();
        self.crashed = Some(now);
        let end = grains.end.min(self.grains.len());
        for version in self.grains[grains.start.min(end)..end].iter_mut().flatten() {
            version.covered = None;
            if !version.is_durable {
                version.crashed = Some(now);
            }
        }
    }

    /// Changes the size of the unit. The data beyond the new end, including writes in flight, is lost, and
    /// reads as zeros if the unit grows again. New grains are zero.
    pub(crate) fn resized(&mut self, grains: usize) {
        if grains > self.grains.len() {
            self.grains.resize(grains, vec![Version::first()]);
        }
        let behind = self.grains.get_mut(grains..).unwrap_or_default();
        if !behind.is_empty() {
            self.now += 1;
            self.crashed = Some(self.now);
        }
        for version in behind.iter_mut().flatten() {
            version.covered = None;
            version.is_gone = true;
        }
    }

    /// Notes that the users of the disks `of` will receive no report of the next crash. They will still
    /// receive a report of writes that an earlier crash has undone, except of writes that were in flight
    /// during that crash: those may have been executed after it.
    pub(crate) fn mark_unreported(&mut self, of: impl Fn(usize) -> bool) {
        let answers_early = self.answers_early;
        let may_be_there = |version: &Version| match (version.crashed, version.ended) {
            (None, _) | (_, None) => true,
            (Some(crashed), Some(ended)) => crashed < ended,
        };
        let is_undone = |version: &&mut Version| {
            !version.is_durable && (may_be_there(version) || answers_early)
        };
        for version in self.grains.iter_mut().flatten().filter(is_undone) {
            if self.is_volatile && of(version.disk) {
                version.reported = u64::MAX;
            }
        }
    }

    /// Notes that the write cache was switched on or off. Its previous data is durable.
    pub(crate) fn set_volatile(&mut self, is_volatile: bool) {
        if is_volatile && !self.is_volatile {
            self.switched_on = Some(self.now());
        }
        self.is_volatile = is_volatile;
    }

    /// Returns whether the cache has lost something since it was switched on. If it were switched off then,
    /// the loss might never be reported: the report of a later reset would replace it.
    pub(crate) fn has_lost_since_switched_on(&self) -> bool {
        self.is_volatile && self.switched_on.is_some() && self.crashed > self.switched_on
    }

    /// Checks whether a read that began at `begun` may have returned these bytes.
    ///
    /// # Errors
    /// A description of the bytes that it may not have returned.
    pub(crate) fn check(&mut self, begun: Moment, first: usize, data: &[u8]) -> Result<(), String> {
        let now = self.now();
        let (grains, rest) = data.as_chunks::<GRAIN>();
        if !rest.is_empty() {
            return Err(format!("a read returned {} bytes", data.len()));
        }
        for (grain, bytes) in (first..).zip(grains) {
            self.check_grain(begun..now, grain, bytes)
                .map_err(|why| format!("byte {:#x}: {why}", grain * GRAIN))?;
        }
        Ok(())
    }

    fn check_grain(
        &mut self,
        read: Range<Moment>,
        grain: usize,
        bytes: &[u8; GRAIN],
    ) -> Result<(), String> {
        let content = content_of(bytes, grain)?;
        let versions = &mut self.grains[grain];
        let may_be = |version: &Version| {
            version.content == content
                && version.covered.is_none_or(|covered| covered > read.start)
                && !versions.iter().any(|later| is_replaced(version, later, read.start))
        };
        if !versions.iter().any(may_be) {
            let last = versions.iter().rev().take(6).map(Version::to_string);
            let last = last.collect::<Vec<_>>().join(", ");
            return Err(format!(
                "{content:#x} is there, after these writes, the last one first: {last}"
            ));
        }
        // Several writes may have this content, for example zeros. A write that was replaced before the read
        // began is not counted.
        if self.answers_early && !versions.iter().any(|it| may_be(it) && it.counts()) {
            // A server's cache may show data again that the unit held only for a while. So this read does not
            // confirm that the data is on the unit.
            return Ok(());
        }
        // A crash since the read began may have undone the data.
        if self.crashed.is_some_and(|crashed| crashed > read.start) {
            return Ok(());
        }
        // A process that writes a part of a block may have read the rest of the block before an orphan was
        // executed, and may write that old data back.
        let may_return = |version: &Version| {
            version.was_orphan
                && !versions.iter().any(|later| is_replaced(version, later, read.start))
        };
        if versions.iter().any(may_return) {
            return Ok(());
        }
        for version in versions {
            let had_ended = version.settled.is_some_and(|settled| settled < read.start);
            // The data of this read is newer than the settled writes, so it replaces them. A write that a
            // crash has undone does not count: a copy of its request that is still in flight may execute it
            // again.
            if version.content != content && version.counts() && had_ended {
                version.covered.get_or_insert(read.end);
            }
        }
        Ok(())
    }
}
