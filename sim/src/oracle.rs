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

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::rng::mix;

/// The bytes that the oracle looks at as one. All offsets and lengths of requests are whole grains.
pub const GRAIN: usize = 64;

/// A moment in the order of all events.
pub(crate) type Moment = u64;

/// The content of a grain that nobody wrote, or that was written with zeros.
const ZEROS: u64 = 0;

/// A write to a grain.
#[derive(Clone, Debug)]
struct Version {
    /// What it writes: a number that no other write has, or [`ZEROS`].
    content: u64,
    /// Which write it is.
    write: usize,
    begun: Moment,
    /// When it ended, in whichever way.
    ended: Option<Moment>,
    /// When whatever comes later begins to replace it: at its end, but of orphans when the last of them has
    /// come.
    settled: Option<Moment>,
    /// It was an orphan at some time.
    was_orphan: bool,
    is_acknowledged: bool,
    /// A flush has vouched for it.
    is_durable: bool,
    /// The unit has crashed since it began, and before a flush had vouched for it.
    has_crashed: bool,
    /// The unit has lost the place since, and all that was there.
    is_gone: bool,
    /// When a read ended that had shown that another one came after it.
    covered: Option<Moment>,
    /// The handles that were told that writes like this may be lost, one bit for each.
    told: u64,
    /// The opened disk that it went through.
    disk: usize,
}

impl Version {
    /// Whether it replaces whatever came before.
    const fn counts(&self) -> bool {
        self.is_acknowledged && !self.is_gone && (self.is_durable || !self.has_crashed)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} of disk {} from {} to ", self.content, self.disk, self.begun)?;
        match self.ended {
            Some(ended) if self.is_acknowledged => write!(f, "{ended}")?,
            Some(ended) => write!(f, "{ended} (failed)")?,
            None => f.write_str("now")?,
        }
        if self.is_gone {
            return f.write_str(" (gone)");
        }
        match (self.is_durable, self.has_crashed) {
            (true, false) => f.write_str(" (flushed)"),
            (true, true) => f.write_str(" (crashed, and then flushed)"),
            (false, true) => f.write_str(" (crashed)"),
            (false, false) => Ok(()),
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Write {
    number: usize,
    grains: Range<usize>,
    content: u64,
}

impl Write {
    /// The bytes to be written.
    pub(crate) fn data(&self) -> Bytes {
        let mut data = BytesMut::with_capacity(self.grains.len() * GRAIN);
        self.grains.clone().for_each(|grain| put(&mut data, self.content, grain));
        data.freeze()
    }
}

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
}

impl Oracle {
    /// A unit of so many bytes, all zero.
    pub(crate) fn new(bytes: usize, is_volatile: bool, tells_each: bool) -> Self {
        let empty = Version {
            content: ZEROS,
            write: 0,
            begun: 0,
            ended: Some(0),
            settled: Some(0),
            was_orphan: false,
            is_acknowledged: true,
            is_durable: true,
            has_crashed: false,
            is_gone: false,
            covered: None,
            told: 0,
            disk: 0,
        };
        let grains = vec![vec![empty]; bytes / GRAIN];
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
            grain.push(Version {
                content,
                write: self.numbers,
                begun,
                ended: None,
                settled: None,
                was_orphan: false,
                is_acknowledged: false,
                is_durable: false,
                has_crashed: false,
                is_gone: false,
                covered: None,
                told: 0,
                disk,
            });
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

    /// A process has died that had opened these disks. `is_settled` says of each whether the target had
    /// finished with all that was sent and acknowledged; blocks have so many grains.
    pub(crate) fn orphaned(&mut self, disks: &[(usize, bool)], block: usize) {
        let now = self.now();
        for block in self.grains.chunks_mut(block) {
            let orphans = orphans_of(block, disks);
            let is_orphan = |version: &Version| orphans.contains(&version.write);
            let covers_all = |write: &usize| {
                block.iter().all(|grain| grain.iter().any(|version| version.write == *write))
            };
            // Who writes a part of a block writes back what it has read of the rest.
            let partial = orphans.iter().filter(|write| !covers_all(write));
            let begun = |write: &usize| {
                block.iter().flatten().find(|version| version.write == *write).map(|it| it.begun)
            };
            let first = partial.filter_map(begun).min();
            for grain in block {
                let returns: Vec<bool> = grain
                    .iter()
                    .map(|version| {
                        let was_there =
                            |first| !grain.iter().any(|later| is_replaced(version, later, first));
                        is_orphan(version) || first.is_some_and(was_there)
                    })
                    .collect();
                for (version, returns) in grain.iter_mut().zip(returns) {
                    let is_of_process = disks.iter().any(|(disk, _)| *disk == version.disk);
                    if is_of_process && version.ended.is_none() {
                        (version.ended, version.settled) = (Some(now), Some(now));
                    }
                    if returns {
                        (version.settled, version.was_orphan) = (None, true);
                    }
                }
            }
        }
    }

    /// Nothing of any process that has died is on its way any more.
    pub(crate) fn no_orphans(&mut self) {
        let now = self.now();
        for version in self.grains.iter_mut().flatten().filter(|version| version.was_orphan) {
            version.settled.get_or_insert(now);
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
        self.crashed = Some(self.now());
        let end = grains.end.min(self.grains.len());
        for version in self.grains[grains.start.min(end)..end].iter_mut().flatten() {
            version.covered = None;
            if !version.is_durable {
                version.has_crashed = true;
            }
        }
    }

    /// The unit ends here now: what was behind, or is on its way there, is gone, and zeros if it comes back.
    pub(crate) fn shrunk(&mut self, grains: usize) {
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

    /// Nobody need be told that what was not flushed may be gone.
    pub(crate) fn nobody_was_told(&mut self) {
        for version in self.grains.iter_mut().flatten().filter(|version| version.has_crashed) {
            version.told = u64::MAX;
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

/// Whether a write is gone for a read that began at a moment, because a later one has replaced it.
fn is_replaced(version: &Version, later: &Version, begun: Moment) -> bool {
    let came_after = version.settled.is_some_and(|settled| settled < later.begun);
    came_after && later.counts() && later.ended.is_some_and(|ended| ended < begun)
}

/// The writes of a block that may come after the death of the process that had opened these disks. One
/// that the same process has overwritten since had come before: the later one has waited for it.
fn orphans_of(block: &[Vec<Version>], disks: &[(usize, bool)]) -> BTreeSet<usize> {
    let of_process =
        |version: &Version| disks.iter().find(|(disk, _)| *disk == version.disk).copied();
    let may_come = |version: &Version, grain: &[Version]| {
        let Some((_, is_settled)) = of_process(version) else { return false };
        let waited = |later: &Version| {
            let began_after = version.ended.is_some_and(|ended| ended < later.begun);
            began_after && later.is_acknowledged && of_process(later).is_some()
        };
        let is_over = version.ended.is_some() && version.is_acknowledged && is_settled;
        !is_over && !grain.iter().any(waited)
    };
    let orphans = block.iter().flat_map(|grain| {
        grain.iter().filter(|version| may_come(version, grain)).map(|version| version.write)
    });
    orphans.collect()
}

/// The bytes of a grain.
fn put(data: &mut BytesMut, content: u64, grain: usize) {
    data.put_u64(content);
    (1..GRAIN as u64 / 8).for_each(|word| data.put_u64(filling(content, grain, word)));
}

/// A word of a grain behind its first one: it says which grain it was written to.
const fn filling(content: u64, grain: usize, word: u64) -> u64 {
    if content == ZEROS { 0 } else { mix(content ^ mix(grain as u64 ^ (word << 32))) }
}

/// Which write a grain holds.
fn content_of(bytes: &[u8; GRAIN], grain: usize) -> Result<u64, String> {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
    let content = words.next().unwrap_or_default();
    let is_whole = (1..).zip(words).all(|(at, word)| word == filling(content, grain, at));
    if is_whole { Ok(content) } else { Err(format!("the bytes are those of no write: {bytes:x?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a grain that a write has put there.
    fn grain(write: &Write, at: usize) -> Bytes {
        let first = write.grains.start;
        write.data().slice((at - first) * GRAIN..(at + 1 - first) * GRAIN)
    }

    /// A read that begins and ends now.
    fn read(oracle: &mut Oracle, at: usize, data: &[u8]) -> Result<(), String> {
        let begun = oracle.now();
        oracle.check(begun, at, data)
    }

    /// A write that has ended well, and what it wrote to its first grain.
    fn written(oracle: &mut Oracle, grains: Range<usize>) -> Bytes {
        let write = oracle.begin_write(1, grains.clone(), false);
        let data = grain(&write, grains.start);
        oracle.end_write(write, true);
        data
    }

    fn oracle() -> Oracle {
        Oracle::new(16 * GRAIN, true, true)
    }

    #[test]
    fn a_read_sees_the_last_write_that_has_ended() {
        let mut oracle = oracle();
        let old = written(&mut oracle, 2..5);
        let new = written(&mut oracle, 2..3);
        assert!(read(&mut oracle, 2, &old).is_err());
        assert!(read(&mut oracle, 2, &[0; GRAIN]).is_err());
        assert!(read(&mut oracle, 2, &new).is_ok());
        assert!(read(&mut oracle, 3, &new).is_err(), "it was written to another place");
        assert!(read(&mut oracle, 2, &[new.slice(..32), old.slice(32..)].concat()).is_err());
    }

    #[test]
    fn of_writes_at_the_same_time_any_may_be_the_last_but_only_one() {
        let mut oracle = oracle();
        let before = oracle.now();
        let writes = [(); 2].map(|()| oracle.begin_write(1, 0..1, false));
        let [first, second] = writes.each_ref().map(|write| grain(write, 0));
        assert!(read(&mut oracle, 0, &[0; GRAIN]).is_ok(), "neither may have been carried out");
        writes.into_iter().for_each(|write| oracle.end_write(write, true));
        assert!(read(&mut oracle, 0, &first).is_ok());
        assert!(read(&mut oracle, 0, &second).is_err(), "the first one was the last");
        assert!(oracle.check(before, 0, &second).is_ok(), "that read had begun before");
    }

    #[test]
    fn a_write_that_failed_may_come_until_a_later_one_has_ended() {
        let mut oracle = oracle();
        let old = written(&mut oracle, 0..1);
        let failed = oracle.begin_write(1, 0..1, false);
        let data = grain(&failed, 0);
        oracle.end_write(failed, false);
        for data in [&old, &data, &data] {
            assert!(read(&mut oracle, 0, data).is_ok());
        }
        let new = written(&mut oracle, 0..1);
        assert!(read(&mut oracle, 0, &data).is_err());
        assert!(read(&mut oracle, 0, &new).is_ok());
    }

    #[test]
    fn what_a_dead_process_was_writing_may_come_until_nothing_is_on_its_way() {
        let mut oracle = oracle();
        let old = written(&mut oracle, 0..2);
        let orphan = oracle.begin_write(1, 0..1, false);
        let data = grain(&orphan, 0);
        oracle.orphaned(&[(1, true)], 2);
        let new = oracle.begin_write(2, 0..2, false);
        let news = [0, 1].map(|at| grain(&new, at));
        oracle.end_write(new, true);
        for data in [&data, &news[0], &old, &news[0]] {
            assert!(read(&mut oracle, 0, data).is_ok(), "the orphan or what it has written back");
        }
        assert!(read(&mut oracle, 0, &[0; GRAIN]).is_err(), "that was overwritten before");
        oracle.no_orphans();
        assert!(read(&mut oracle, 0, &data).is_ok(), "it may have come before");
        let last = written(&mut oracle, 0..1);
        assert!(read(&mut oracle, 0, &data).is_err());
        assert!(read(&mut oracle, 0, &last).is_ok());
        assert!(read(&mut oracle, 1, &news[1]).is_ok());
    }

    #[test]
    fn what_the_target_had_finished_with_is_no_orphan() {
        let after_a_death = |is_settled: bool| {
            let mut oracle = oracle();
            let old = written(&mut oracle, 0..1);
            oracle.orphaned(&[(1, is_settled)], 1);
            let new = oracle.begin_write(2, 0..1, false);
            oracle.end_write(new, true);
            read(&mut oracle, 0, &old)
        };
        assert!(after_a_death(true).is_err());
        assert!(after_a_death(false).is_ok(), "a copy of it may come");
    }

    #[test]
    fn a_crash_undoes_nothing_that_a_flush_has_vouched_for() {
        let after_a_crash = |which: usize| {
            let mut oracle = oracle();
            let flushed = written(&mut oracle, 0..1);
            let begun = oracle.now();
            oracle.flushed(1, 0, begun);
            let lost = written(&mut oracle, 0..1);
            oracle.crashed();
            let data = [lost, flushed, Bytes::from_static(&[0; GRAIN])];
            read(&mut oracle, 0, &data[which])
        };
        assert!(after_a_crash(0).is_ok(), "it may have reached the medium");
        assert!(after_a_crash(1).is_ok());
        assert!(after_a_crash(2).is_err());
    }

    #[test]
    fn a_lost_write_back_undoes_its_own_grains_and_no_others() {
        let mut oracle = oracle();
        let kept = written(&mut oracle, 0..2);
        oracle.lost(1..2);
        assert!(read(&mut oracle, 0, &[0; GRAIN]).is_err());
        assert!(read(&mut oracle, 0, &kept).is_ok());
        assert!(read(&mut oracle, 1, &[0; GRAIN]).is_ok());
    }

    #[test]
    fn what_lay_behind_a_new_end_is_gone_whatever_a_flush_has_said() {
        let mut oracle = oracle();
        written(&mut oracle, 8..9);
        let begun = oracle.now();
        oracle.flushed(1, 0, begun);
        oracle.shrunk(8);
        assert!(read(&mut oracle, 8, &[0; GRAIN]).is_ok());
        let new = written(&mut oracle, 8..9);
        assert!(read(&mut oracle, 8, &[0; GRAIN]).is_err());
        assert!(read(&mut oracle, 8, &new).is_ok());
    }

    #[test]
    fn a_flush_of_a_stream_vouches_for_what_it_wrote_unless_nobody_was_told_of_the_loss() {
        let after_a_loss = |is_told: bool| {
            let mut oracle = oracle();
            let write = oracle.begin_write(1, 0..1, false);
            oracle.crashed();
            if !is_told {
                oracle.nobody_was_told();
            }
            oracle.end_flushed_write(write, 0);
            read(&mut oracle, 0, &[0; GRAIN])
        };
        assert!(after_a_loss(true).is_err());
        assert!(after_a_loss(false).is_ok());
    }

    #[test]
    fn a_flush_vouches_for_what_was_lost_unless_the_handle_was_told() {
        let mut oracle = oracle();
        written(&mut oracle, 0..1);
        oracle.crashed();
        oracle.told_of_loss(1, 0);
        let begun = oracle.now();
        oracle.flushed(1, 0, begun);
        assert!(read(&mut oracle, 0, &[0; GRAIN]).is_ok());
        let begun = oracle.now();
        oracle.flushed(1, 1, begun);
        assert!(read(&mut oracle, 0, &[0; GRAIN]).is_err(), "the other handle was not told");
    }
}
