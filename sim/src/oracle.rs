//! What reads may return, by all that was written before.
//!
//! The oracle knows each write by the place of its begin and its end in the order of all events. A read
//! may return what some write has put there, unless another write that ended well came after that one and
//! before the read. A write that failed or was dropped may have been carried out, or may be later, until
//! one that began after its end has ended well: whatever comes later has to wait for it. A flush that ended
//! well makes durable what had ended well before it began; a crash may undo the rest.
//!
//! What a process was writing when it died is an orphan: nobody waits for it, so it may come until nothing of
//! the process is on its way any more, also over what others have written and flushed meanwhile.

mod grain;
mod orphans;
mod served;
#[cfg(test)]
mod tests;
mod version;

use std::ops::Range;

pub use self::grain::GRAIN;
pub(crate) use self::grain::Write;
use self::grain::{ZEROS, content_of};
pub(crate) use self::served::Unanswered;
pub(crate) use self::version::Moment;
use self::version::{Version, is_replaced};

/// The content of one unit.
#[derive(Debug)]
pub(crate) struct Oracle {
    now: Moment,
    writes: u64,
    numbers: usize,
    /// Through which disk each write went, and when it began.
    begun: Vec<(usize, Moment)>,
    grains: Vec<Vec<Version>>,
    /// The last crash, if there was one.
    crashed: Option<Moment>,
    /// Whether a crash loses writes that were not flushed.
    is_volatile: bool,
    /// When that was so last after it had not been.
    switched_on: Option<Moment>,
    /// Whether each handle is told of a loss, and not only the first that asks.
    tells_each: bool,
    /// Whether writes are answered before the unit has them.
    answers_early: bool,
}

impl Oracle {
    /// A unit of so many bytes, all zero.
    pub(crate) fn new(bytes: usize, is_volatile: bool, tells_each: bool) -> Self {
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
            tells_each,
            answers_early: false,
        }
    }

    pub(crate) fn now(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// A write of these grains begins, of zeros or of bytes that no other write has.
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

    /// Through which disk the write of this content went, and when it began.
    pub(crate) fn begun(&self, content: u64) -> Option<(usize, Moment)> {
        let number = usize::try_from(content.checked_sub(1)?).ok()?;
        self.begun.get(number).copied()
    }

    /// It has ended well, or else has failed or was dropped.
    pub(crate) fn end_write(&mut self, write: Write, is_acknowledged: bool) {
        let now = self.now();
        for version in self.grains[write.grains].iter_mut().flatten() {
            if version.write == write.number {
                (version.ended, version.settled) = (Some(now), Some(now));
                version.is_acknowledged = is_acknowledged;
            }
        }
    }

    /// The same for one that a flush of the same handle has vouched for, if it was not told that it may be lost.
    pub(crate) fn end_flushed_write(&mut self, write: Write, handle: u32) {
        let (number, grains) = (write.number, write.grains.clone());
        self.end_write(write, true);
        for version in self.grains[grains].iter_mut().flatten() {
            let is_told = version.told & (1 << handle) != 0;
            version.is_durable |= version.write == number && !is_told;
        }
    }

    /// A flush that had begun at a moment has ended well: all that had ended well before that, and of which
    /// the handle was not told that it may be lost, is durable.
    pub(crate) fn flushed(&mut self, disk: usize, handle: u32, begun: Moment) {
        for version in self.grains.iter_mut().flatten() {
            let before = version.ended.is_some_and(|ended| ended < begun);
            let is_told = version.told & (1 << handle) != 0;
            if version.is_acknowledged && before && version.disk == disk && !is_told {
                version.is_durable = true;
            }
        }
    }

    /// A handle was told that writes which were not flushed may be lost.
    pub(crate) fn told_of_loss(&mut self, disk: usize, handle: u32) {
        let told = if self.tells_each { 1 << handle } else { u64::MAX };
        for version in self.grains.iter_mut().flatten() {
            if !version.is_durable && version.disk == disk {
                version.told |= told;
            }
        }
    }

    /// A handle is made: it is told of no loss that another one was told of before.
    pub(crate) fn made_handle(&mut self, disk: usize, handle: u32) {
        let told = |version: &&mut Version| version.disk == disk && version.told != 0;
        for version in self.grains.iter_mut().flatten().filter(told) {
            version.told |= 1 << handle;
        }
    }

    /// A disk was dropped: what was under way has ended, and may still come.
    pub(crate) fn abandoned(&mut self, disk: usize) {
        let now = self.now();
        let is_open = |version: &&mut Version| version.disk == disk && version.ended.is_none();
        for version in self.grains.iter_mut().flatten().filter(is_open) {
            (version.ended, version.settled) = (Some(now), Some(now));
        }
    }

    /// The unit has crashed: what is in its cache may be gone.
    pub(crate) fn crashed(&mut self) {
        if self.is_volatile {
            self.lost(0..self.grains.len());
        }
    }

    /// What the cache holds of these grains may be gone; those that the unit did not have at first hold nothing.
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

    /// The unit ends here now: what was behind, or is on its way there, is gone, and zeros if it comes back. What
    /// it has not had before is zero.
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

    /// The next crash is one that nobody is told of who uses these disks. Of what an earlier one has undone they are; a write
    /// that was under way then may have come after it.
    pub(crate) fn nobody_is_told(&mut self, of: impl Fn(usize) -> bool) {
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
                version.told = u64::MAX;
            }
        }
    }

    /// The write cache was switched on or off, and what was in it is durable.
    pub(crate) fn set_volatile(&mut self, is_volatile: bool) {
        if is_volatile && !self.is_volatile {
            self.switched_on = Some(self.now());
        }
        self.is_volatile = is_volatile;
    }

    /// Whether a cache that was switched on has lost something since. If it is switched off now, nobody may ever
    /// learn that there was one: the word of a reset takes the place of all before it.
    pub(crate) fn has_lost_since_switched_on(&self) -> bool {
        self.is_volatile && self.switched_on.is_some() && self.crashed > self.switched_on
    }

    /// Whether a read that began at a moment may have returned these bytes.
    ///
    /// # Errors
    /// What is wrong with them.
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
        // Other writes of zeros, which were replaced before, are not what it has shown.
        if self.answers_early && !versions.iter().any(|it| may_be(it) && it.counts()) {
            // What was there for a while only is shown by a memory also later.
            return Ok(());
        }
        // What it has shown may have been undone meanwhile.
        if self.crashed.is_some_and(|crashed| crashed > read.start) {
            return Ok(());
        }
        // Who has read before an orphan came may write back what was there, as a part of a block.
        let may_return = |version: &Version| {
            version.was_orphan
                && !versions.iter().any(|later| is_replaced(version, later, read.start))
        };
        if versions.iter().any(may_return) {
            return Ok(());
        }
        for version in versions {
            let had_ended = version.settled.is_some_and(|settled| settled < read.start);
            // What a crash has undone, a copy of the request that is on its way may do once more.
            if version.content != content && version.counts() && had_ended {
                version.covered.get_or_insert(read.end);
            }
        }
        Ok(())
    }
}
