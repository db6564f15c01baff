//! Which blocks of a source the destination has already, and what may be said of it later.
//!
//! ```text
//!                 read                   saved          written, flushed          saved
//!   known to be A ────► unknown, to be B ─────► may be sent ─────────────► known to be B ─────► in the file
//! ```
//! Invariant: the file says that a block is A only while the destination holds A, durably. So what it says is
//! taken back, durably, before the first write of anything else; and a block is known again when all
//! of it was written from one read, and a flush has covered it. Part of a block that is read again, after a
//! loss, may be newer than the rest: then nothing is known of the block in this copy.

use std::ops::Range;

use iscsi_block_device::RangeSet;

use super::{Digest, Digests, known, unknown};

/// What the destination holds, what it will hold, and what of that is to be saved.
#[derive(Debug)]
pub(crate) struct Delta {
    known: Digests,
    /// Blocks that were read as a whole and are not flushed as a whole yet.
    pending: Digests,
    /// Lines for the file.
    unsaved: String,
    /// Blocks that those lines take back, and the lines that are being saved.
    taken_back: RangeSet,
    being_taken_back: RangeSet,
}

/// What is to be done with a block that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The destination has it.
    Unchanged,
    /// It may be sent.
    Send,
    /// It may be sent when everything [unsaved](Delta::take_unsaved) is saved.
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

    /// Judges a block that was read as a whole, or blocks of zeros.
    pub(crate) fn judge(&mut self, range: &Range<u64>, digest: Digest) -> Verdict {
        if self.known.has(range, digest) {
            return Verdict::Unchanged;
        }
        self.pending.insert(range.clone(), digest);
        self.take_back(range)
    }

    /// Judges zeros in a copy that ends at `end`, piece by piece.
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

    /// Judges a part of a block.
    pub(crate) fn judge_part(&mut self, range: &Range<u64>) -> Verdict {
        self.pending.forget(range);
        self.take_back(range)
    }

    /// Knows nothing more of what will be overwritten, or is gone.
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

    /// Whether the file still says what was taken back, and nobody saves it.
    pub(crate) fn has_taken_back(&self) -> bool {
        !self.taken_back.is_empty()
    }

    /// These bytes are flushed now, as all of those are.
    pub(crate) fn settle(&mut self, now: &RangeSet, flushed: &RangeSet) {
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

    /// What the file does not say yet, to be saved now.
    pub(crate) fn take_unsaved(&mut self) -> Option<String> {
        self.being_taken_back.extend(std::mem::take(&mut self.taken_back).iter());
        (!self.unsaved.is_empty()).then(|| std::mem::take(&mut self.unsaved))
    }

    /// All that was taken is saved.
    pub(crate) fn saved(&mut self) {
        self.being_taken_back = RangeSet::new();
    }

    /// It could not be saved; whether something is to be overwritten that the file still tells of.
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
        delta.settle(&(0..100).into(), &(0..100).into());
        assert!(!delta.known().has(&(0..BLOCK), NEW));
        delta.settle(&(100..BLOCK).into(), &(0..BLOCK).into());
        assert!(delta.known().has(&(0..BLOCK), NEW));
    }

    #[test]
    fn of_a_block_that_was_read_twice_nothing_is_known() {
        let mut delta = delta();
        delta.judge(&(0..BLOCK), NEW);
        delta.settle(&(0..100).into(), &(0..100).into());
        // The rest was lost, and may be newer when it is read again.
        delta.judge_part(&(100..BLOCK));
        delta.settle(&(100..BLOCK).into(), &(0..BLOCK).into());
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
        delta.settle(&(0..end).into(), &(0..end).into());
        assert!(delta.known().has(&(BLOCK..end), Digest::Zeros), "{:?}", delta.known());
        assert!(!delta.known().knows_of(&(0..BLOCK)));
        // A longer source has more than that in its last block.
        let longer = delta.judge_zeros(&(4 * BLOCK..6 * BLOCK), 6 * BLOCK);
        let expected = [
            (4 * BLOCK..5 * BLOCK, Verdict::Unchanged),
            (5 * BLOCK..6 * BLOCK, Verdict::SendSaved),
        ];
        assert_eq!(longer, expected);
    }
}
