//! Decides, between the reads and the writes, which parts need no write and which must wait.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use iscsi_block_device::RangeSet;

use super::account::Account;
use super::blank::Blank;
use super::depths::Load;
use super::ends::Ends;
use super::ledger::Ledger;
use super::part::{Content, Cut, Part};
use crate::digests::delta::Verdict;
use crate::digests::digesting::{Digesting, Judged};
use crate::digests::file::DigestFile;
use crate::error::CopyError;
use crate::progress::Event;
use crate::survey::blocks::Block;
use crate::verify::checksums::Checksums;

/// Parts that were read and are not flushed yet, and the state that decides whether they are written.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) cut: Cut,
    /// Ranges in which the destination reads as zeros.
    pub(super) blank: Blank,
    /// The digests of the destination's blocks; `None` for a copy without digests.
    pub(super) digesting: Option<Digesting>,
    pub(super) checksums: Option<Checksums>,
    /// Parts that were read and not written yet.
    pub(super) waiting: BTreeMap<u64, Part>,
    /// Parts of a stream that no flush has covered yet. They are kept in memory, because they cannot be read
    /// again.
    kept: BTreeMap<u64, Part>,
}

impl Parts {
    pub(super) fn new(
        cut: Cut,
        digesting: Option<Digesting>,
        checksums: Option<Checksums>,
    ) -> Self {
        Self {
            cut,
            blank: Blank::default(),
            digesting,
            checksums,
            waiting: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// Returns whether no part waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && !self.blank.is_waited_for()
            && self.digesting.as_ref().is_none_or(Digesting::is_idle)
    }

    /// Returns the block size of the digests, and the end of the source as far as it is known; `None` without
    /// digests.
    pub(super) fn grid(&self, ends: &Ends) -> Option<(u64, u64)> {
        let size = self.digesting.as_ref()?.known().block_size();
        Some((size, ends.source_len().unwrap_or(u64::MAX)))
    }

    /// Returns the waiting parts as a load of requests.
    pub(super) fn load(&self) -> Load {
        let judged = self.digesting.as_ref().map_or(0, Digesting::waiting);
        // Zeros count as requests without bytes.
        let waiting = self.waiting.values().filter(|part| part.is_data()).map(Part::len);
        Load {
            count: judged + self.waiting.len(),
            bytes: (judged * self.cut.io_size) as u64 + waiting.sum::<u64>(),
        }
    }

    /// Decides which blocks to send.
    pub(super) fn judge(&mut self, blocks: &[Block]) -> Judged {
        self.digesting.as_mut().map(|digesting| digesting.judge(blocks)).unwrap_or_default()
    }

    /// Skips a part, queues it for its write, or holds it back, according to the decision about its block.
    pub(super) fn put(&mut self, part: Part, judged: &Judged, account: &mut Account, ends: &Ends) {
        if judged.unchanged.contains(&part.range) {
            account.is_there(part.range);
            return;
        }
        match (&mut self.digesting, &part.content) {
            (Some(digesting), _) if judged.held.contains(&part.range) => digesting.held.push(part),
            (_, Content::Zeros) => self.put_zeros(part.range, account, ends),
            (_, Content::Data { .. }) => _ = self.waiting.insert(part.range.start, part),
        }
    }

    /// Takes zeros that the source has reported: like zeros that were read, they are skipped, queued or held
    /// back.
    pub(super) fn put_reported_zeros(
        &mut self,
        range: Range<u64>,
        account: &mut Account,
        ends: &Ends,
    ) {
        if let Some(checksums) = &mut self.checksums {
            checksums.put(&Part::zeros(range.clone()), 0);
        }
        let grid = self.grid(ends);
        let (Some(digesting), Some((_, end))) = (&mut self.digesting, grid) else {
            self.put_zeros(range, account, ends);
            return;
        };
        if digesting.judged_zeros.contains(&range) {
            digesting.judged_zeros.remove(&range);
            self.put_zeros(range, account, ends);
            return;
        }
        for (piece, verdict) in digesting.delta.judge_zeros(&range, end) {
            let mut judged = Judged::default();
            match verdict {
                Verdict::Unchanged => judged.unchanged.insert(piece.clone()),
                Verdict::SendSaved => judged.held.insert(piece.clone()),
                Verdict::Send => {}
            }
            self.put(Part::zeros(piece), &judged, account, ends);
        }
    }

    /// Takes zeros for the destination. While the query for the destination's zeros is in flight, they wait for
    /// its result. Otherwise the zeros that the destination has already are skipped, and the rest is queued for
    /// writing.
    fn put_zeros(&mut self, range: Range<u64>, account: &mut Account, ends: &Ends) {
        let Some(there) = self.blank.among(&range) else { return };
        let mut missing = RangeSet::from(range);
        for part in there.iter() {
            missing.remove(&part);
            account.is_there(part.clone());
            self.record_flushed(&part.into(), &account.ledger);
        }
        let step = ends.zeros_at_once(self.cut.io_size);
        for part in missing.iter() {
            let mut start = part.start;
            while start < part.end {
                let end = part.end.min(start - start % step + step);
                self.waiting.insert(start, Part::zeros(start..end));
                start = end;
            }
        }
    }

    /// Takes the result of the query for the destination's zeros. Returns the zeros that have waited for it. In a
    /// copy with digests, the decision to send these zeros is already made.
    pub(super) fn answer(&mut self, found: RangeSet) -> RangeSet {
        let zeros = self.blank.answer(found);
        if let Some(digesting) = &mut self.digesting {
            digesting.judged_zeros.extend(zeros.iter());
        }
        zeros
    }

    /// Keeps a part of a stream in memory until a flush has covered it.
    pub(super) fn keep(&mut self, part: Part) {
        self.kept.insert(part.range.start, part);
    }

    pub(super) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Releases the parts of a stream that a flush has covered, and records the digests of the flushed blocks.
    pub(super) fn flushed(&mut self, flushed: &RangeSet, ledger: &Ledger) {
        self.kept.retain(|_, part| !flushed.contains(&part.range));
        self.record_flushed(flushed, ledger);
        if let Some(digesting) = &mut self.digesting {
            digesting.is_due = true;
        }
    }

    /// Records the digests of blocks that are flushed, or need no flush.
    fn record_flushed(&mut self, now: &RangeSet, ledger: &Ledger) {
        if let Some(digesting) = &mut self.digesting {
            digesting.delta.record_flushed(now, ledger.flushed());
        }
    }

    /// Queues the parts of a stream again whose writes may be lost.
    pub(super) fn requeue_lost(&mut self, ledger: &mut Ledger) {
        for (_, part) in std::mem::take(&mut self.kept) {
            self.wait_again(part, ledger);
        }
    }

    /// Queues a part for its write again, and removes its range from the ledger's ranges to do.
    pub(super) fn wait_again(&mut self, part: Part, ledger: &mut Ledger) {
        ledger.take(&part.range);
        self.waiting.insert(part.range.start, part);
    }

    /// Returns the file of digests and the lines to save: lines that parts wait for, and digests that a flush
    /// has covered. Returns `None` if there are none.
    pub(super) fn begin_save(
        &mut self,
        account: &mut Account,
        ends: &Ends,
    ) -> Option<(DigestFile, String)> {
        let digesting = self.digesting.as_mut()?;
        if digesting.is_saving() || digesting.is_idle() && !digesting.is_due {
            return None;
        }
        digesting.is_due = false;
        let held = std::mem::take(&mut digesting.held);
        let Some(lines) = digesting.delta.take_unsaved() else {
            // The lines that these parts wait for were saved in the meantime.
            self.release(held, account, ends);
            return None;
        };
        digesting.saving = Some(held);
        Some((digesting.file.clone(), lines))
    }

    /// Takes the result of a save. A failure ends the copy only if a part waits for the lines. Otherwise the
    /// next flush tries again; until then the file lacks some digests.
    pub(super) fn end_save(
        &mut self,
        lines: &str,
        result: io::Result<()>,
        account: &mut Account,
        ends: &Ends,
    ) -> Result<(), CopyError> {
        let Some(digesting) = &mut self.digesting else { return Ok(()) };
        let parts = digesting.saving.take().unwrap_or_default();
        match result {
            Ok(()) => {
                digesting.delta.saved();
                self.release(parts, account, ends);
            }
            Err(cause) if digesting.delta.not_saved(lines) => {
                return Err(CopyError::Digests(cause));
            }
            Err(cause) => account.reporter.report(Event::NotSaved(cause.to_string())),
        }
        Ok(())
    }

    /// Queues parts for their writes, because their lines are saved.
    fn release(&mut self, parts: Vec<Part>, account: &mut Account, ends: &Ends) {
        parts.into_iter().for_each(|part| self.put(part, &Judged::default(), account, ends));
    }
}
