//! Decides which blocks of a source the destination has already, and which digests may be recorded in the
//! file.
//!
//! ```text
//!                 read                   saved          written, flushed          saved
//!   known to be A ────► unknown, to be B ─────► may be sent ─────────────► known to be B ─────► in the file
//! ```
//! Invariant: the file records that a block is A only while the destination holds A, durably. So before the
//! first write of other data to the block, a line that invalidates the record is saved durably. A block is
//! known again when all of it was written from one read, and a flush has covered it. A part of a block that
//! is read again after a loss may be newer than the rest: then the block stays unknown for this copy.

use std::ops::Range;

use iscsi_block_device::RangeSet;

use super::{Digest, Digests, known, unknown};

/// The known blocks of the destination, the blocks to be known after the next flush, and the lines to save.
#[derive(Debug)]
pub(crate) struct Delta {
    known: Digests,
    /// Blocks that were read completely and are not flushed completely yet.
    pending: Digests,
    /// Lines to save to the file.
    unsaved: String,
    /// Blocks that the unsaved lines invalidate.
    taken_back: RangeSet,
    /// Blocks that the lines being saved invalidate.
    being_taken_back: RangeSet,
}

/// The treatment of a block that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The destination has the block: do not send it.
    Unchanged,
    /// The block may be sent immediately.
    Send,
    /// The block may be sent when all [unsaved](Delta::take_unsaved) lines are saved.
    SendSaved,
}

impl Delta {
    pub(crate) fn new(known: Digests) -> Self {
        let pending = Digests::new(known.block_size());
        let (taken_back, being_taken_back) = (RangeSet::new(), RangeSet::new());
        Self { known, pending, unsaved: String::new(), taken_back, being_taken_back }
    }

    pub(crate) const fn known(&self) -> &Digests {
        &self.known
    }

    pub(crate) fn into_known(self) -> Digests {
        self.known
    }

    /// Decides whether to send a block that was read completely, or blocks of zeros. The block is known after
    /// the next flush.
    pub(crate) fn judge(&mut self, range: &Range<u64>, digest: Digest) -> Verdict {
        if self.known.has(range, digest) {
            return Verdict::Unchanged;
        }
        self.pending.insert(range.clone(), digest);
        self.take_back(range)
    }

    /// Decides which pieces of a range of zeros to send, in a copy that ends at `end`.
    pub(crate) fn judge_zeros(
        &mut self,
        range: &Range<u64>,
        end: u64,
    ) -> Vec<(Range<u64>, Verdict)> {
        let whole = self.known.whole(range, end);
        let mut pieces = Vec::new();
        let mut changed = RangeSet::from(whole.clone());
        for same in self.known.zeros().overlap(&whole).iter() {
            let same = self.known.whole(&same, end);
            changed.remove(&same);
            pieces.push((same, Verdict::Unchanged));
        }
        for piece in changed.iter() {
            let verdict = self.judge(&piece, Digest::Zeros);
            pieces.push((piece, verdict));
        }
        for part in [range.start..whole.start, whole.end..range.end] {
            let verdict = self.judge_part(&part);
            pieces.push((part, verdict));
        }
        pieces.retain(|(piece, _)| !piece.is_empty());
        pieces
    }

    /// Decides whether to send a part of a block. The block stays unknown, because its parts come from
    /// different reads.
    pub(crate) fn judge_part(&mut self, range: &Range<u64>) -> Verdict {
        self.pending.forget(range);
        self.take_back(range)
    }

    /// Invalidates the blocks of a range that is about to be overwritten or truncated, and returns when the
    /// overwrite or the truncation may begin.
    pub(crate) fn take_back(&mut self, range: &Range<u64>) -> Verdict {
        let wide = self.known.widened(range);
        if self.known.knows_of(range) {
            self.known.forget(range);
            unknown(&mut self.unsaved, &wide);
            self.taken_back.insert(wide);
            return Verdict::SendSaved;
        }
        let is_saved = [&self.taken_back, &self.being_taken_back]
            .iter()
            .all(|taken| taken.overlap(&wide).is_empty());
        if is_saved { Verdict::Send } else { Verdict::SendSaved }
    }

    /// Returns whether the file still has records of invalidated blocks, and no save of the invalidating lines
    /// is running.
    pub(crate) fn has_taken_back(&self) -> bool {
        !self.taken_back.is_empty()
    }

    /// Records blocks as known: `now` was just flushed, and `flushed` is everything that was flushed so far.
    pub(crate) fn record_flushed(&mut self, now: &RangeSet, flushed: &RangeSet) {
        for range in now.iter() {
            for sound in flushed.overlap(&self.known.widened(&range)).iter() {
                for (block, digest) in self.pending.inside(&sound) {
                    self.pending.forget(&block);
                    known(&mut self.unsaved, &block, digest);
                    self.known.insert(block, digest);
                }
            }
        }
    }

    /// Removes and returns the lines that are not in the file yet, to save them; `None` if there are none.
    pub(crate) fn take_unsaved(&mut self) -> Option<String> {
        self.being_taken_back.extend(std::mem::take(&mut self.taken_back).iter());
        (!self.unsaved.is_empty()).then(|| std::mem::take(&mut self.unsaved))
    }

    /// Marks all lines that were taken as saved.
    pub(crate) fn saved(&mut self) {
        self.being_taken_back = RangeSet::new();
    }

    /// Queues lines again that could not be saved. Returns whether the file still has records of blocks that
    /// are about to be overwritten.
    pub(crate) fn not_saved(&mut self, lines: &str) -> bool {
        self.unsaved.insert_str(0, lines);
        let taken = std::mem::take(&mut self.being_taken_back);
        self.taken_back.extend(taken.iter());
        !self.taken_back.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;
    const NEW: Digest = Digest::Blake3([2; 32]);

    fn delta() -> Delta {
        let mut known = Digests::new(BLOCK);
        known.insert(0..BLOCK, Digest::Blake3([1; 32]));
        known.insert(BLOCK..4 * BLOCK, Digest::Zeros);
        Delta::new(known)
    }

    #[test]
    fn what_is_taken_back_waits_until_that_is_saved() {
        let mut delta = delta();
        assert_eq!(delta.judge(&(0..BLOCK), Digest::Blake3([1; 32])), Verdict::Unchanged);
        assert_eq!(delta.judge(&(5 * BLOCK..6 * BLOCK), NEW), Verdict::Send, "nothing is known");
        assert_eq!(delta.judge_part(&(10..20)), Verdict::SendSaved);
        assert_eq!(delta.judge_part(&(20..30)), Verdict::SendSaved, "of the same block");
        assert_eq!(delta.take_unsaved().as_deref(), Some("0x0 0x1000 ?\n"));
        assert_eq!(delta.judge_part(&(30..40)), Verdict::SendSaved, "it is being saved");
        assert!(delta.not_saved("0x0 0x1000 ?\n"), "it has to be");
        assert_eq!(delta.take_unsaved().as_deref(), Some("0x0 0x1000 ?\n"));
        delta.saved();
        assert_eq!(delta.judge_part(&(40..50)), Verdict::Send);
    }

    #[test]
    fn a_block_is_known_when_all_of_it_is_flushed() {
        let mut delta = delta();
        delta.judge(&(0..BLOCK), NEW);
        delta.record_flushed(&(0..100).into(), &(0..100).into());
        assert!(!delta.known().has(&(0..BLOCK), NEW));
        delta.record_flushed(&(100..BLOCK).into(), &(0..BLOCK).into());
        assert!(delta.known().has(&(0..BLOCK), NEW));
    }

    #[test]
    fn of_a_block_that_was_read_twice_nothing_is_known() {
        let mut delta = delta();
        delta.judge(&(0..BLOCK), NEW);
        delta.record_flushed(&(0..100).into(), &(0..100).into());
        // The other part of the block was lost, and may be newer when it is read again.
        delta.judge_part(&(100..BLOCK));
        delta.record_flushed(&(100..BLOCK).into(), &(0..BLOCK).into());
        assert!(!delta.known().knows_of(&(0..BLOCK)));
    }

    #[test]
    fn zeros_are_judged_in_whole_blocks() {
        let mut delta = delta();
        let end = 5 * BLOCK + 10;
        let judged = delta.judge_zeros(&(50..end), end);
        let expected = [
            (BLOCK..4 * BLOCK, Verdict::Unchanged),
            (4 * BLOCK..end, Verdict::Send),
            (50..BLOCK, Verdict::SendSaved),
        ];
        assert_eq!(judged, expected);
        delta.record_flushed(&(0..end).into(), &(0..end).into());
        assert!(delta.known().has(&(BLOCK..end), Digest::Zeros), "{:?}", delta.known());
        assert!(!delta.known().knows_of(&(0..BLOCK)));
        // A longer source has more bytes in the last block of zeros, so the block has no digest yet.
        let longer = delta.judge_zeros(&(4 * BLOCK..6 * BLOCK), 6 * BLOCK);
        let expected = [
            (4 * BLOCK..5 * BLOCK, Verdict::Unchanged),
            (5 * BLOCK..6 * BLOCK, Verdict::SendSaved),
        ];
        assert_eq!(longer, expected);
    }
}
