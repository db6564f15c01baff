//! Which writes a volatile cache may still lose, and whether it has (SBC-3 §4.15).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::state::across_sessions::AcrossSessions;
use crate::state::unit_flushes::UnitFlushes;
use crate::state::writes::{Epoch, Oldest};

/// Whether the unit may have lost writes that it had acknowledged: it keeps them in a volatile
/// cache until a flush, and a reset empties that.
///
/// Every session with the unit is told of every reset, at its next command (SAM-5 §5.14). So one
/// session can vouch for the writes of all, if it stood before the oldest of them began and has been
/// told of none since. A command that ends without a status may have been told, so its session cannot say,
/// and another one has to. In doubt writes count as lost: to write again does no harm.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// What all sessions have written is there.
    across: Arc<AcrossSessions>,
    /// Epoch in which this session joined. A reset reported before its first command is accepted
    /// happened earlier.
    joined: AtomicU64,
    /// Epoch in which the first command began that this session had accepted.
    first: AtomicU64,
    /// Epoch in which this session last reported a reset.
    told: AtomicU64,
    /// Epoch in which a command of this session last ended without a status, which may have told of one.
    unsure: AtomicU64,
}

/// Of how many losses one handle has been told: each handle of a disk is told of each loss once, as
/// Linux tells each open file of a failed write-back (errseq_t). A clone knows what its origin knew.
#[derive(Debug)]
pub(crate) struct LossCursor {
    across: Arc<AcrossSessions>,
    seen: AtomicU64,
}

/// What a handle knew of losses when its flush began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenLosses(u64);

/// No command was taken yet.
const NEVER: u64 = u64::MAX;

impl Unflushed {
    /// Of the first session with the unit.
    pub(super) fn following(across: &Arc<AcrossSessions>) -> Self {
        let [joined, first, told, unsure] = Default::default();
        Self { across: Arc::clone(across), joined, first, told, unsure }
    }

    /// A command begins.
    pub(crate) fn begin(&self) -> Epoch {
        self.across.writes.now()
    }

    /// The session was told of a reset.
    pub(crate) fn reset(&self) {
        self.note(&self.told);
    }

    /// The session may have been told of a reset, which is told only once: nobody knows.
    pub(crate) fn may_be_reset(&self) {
        self.note(&self.unsure);
    }

    fn note(&self, what: &AtomicU64) {
        let Epoch(now) = self.across.writes.turn();
        let is_new = self.first.load(Ordering::SeqCst) == NEVER;
        let when = if is_new { &self.joined } else { what };
        when.fetch_max(now, Ordering::SeqCst);
    }

    /// A command was taken that would have been told of a reset.
    pub(crate) fn took(&self, begun: Epoch) {
        // It only ever falls, and mostly need not.
        if begun.0 < self.first.load(Ordering::SeqCst) {
            self.first.fetch_min(begun.0, Ordering::SeqCst);
        }
    }

    /// A write has ended well.
    pub(crate) fn wrote(&self, begun: Epoch) {
        self.took(begun);
        self.across.writes.not_flushed(begun);
    }

    /// The same for a further session with the unit, before its first command there.
    pub(crate) fn follow(&self) -> Self {
        let across = Arc::clone(&self.across);
        let joined = across.writes.turn().0.into();
        let [told, unsure] = Default::default();
        Self { across, joined, first: NEVER.into(), told, unsure }
    }

    /// Whether this session stood before the oldest unflushed write, so that it is told of any reset
    /// since.
    pub(crate) fn is_witness(&self) -> bool {
        self.across.writes.lock().waiting.is_none_or(|oldest| self.stood_at(oldest))
    }

    /// Whether the session was told of a reset since the oldest unflushed write began, or may have been.
    pub(crate) fn was_told(&self) -> bool {
        let oldest = self.across.writes.lock().waiting;
        oldest.is_some_and(|oldest| self.last_told() > oldest || self.is_unsure_since(oldest))
    }

    /// Whether it may have been told of a reset since the oldest write began for which a flush is under way.
    pub(crate) fn is_unsure(&self) -> bool {
        self.across.writes.lock().flushing.is_some_and(|oldest| self.is_unsure_since(oldest))
    }

    fn is_unsure_since(&self, moment: Epoch) -> bool {
        Epoch(self.unsure.load(Ordering::SeqCst)) > moment
    }

    /// When the session was last told of a reset. One that was told before, and not since a write, has
    /// no older reset to be told of any more.
    pub(crate) fn last_told(&self) -> Epoch {
        Epoch(self.told.load(Ordering::SeqCst))
    }

    /// Whether there are writes that this session can vouch for and no flush has.
    pub(crate) fn is_needed(&self) -> bool {
        let Oldest { waiting, flushing } = *self.across.writes.lock();
        waiting.into_iter().chain(flushing).any(|oldest| self.stood_at(oldest))
    }

    /// From when on this session is told of every reset.
    pub(crate) fn told_since(&self) -> Epoch {
        let [joined, first] = [&self.joined, &self.first].map(|when| when.load(Ordering::SeqCst));
        Epoch(joined.max(first))
    }

    /// Whether no reset came after a write that began then.
    fn vouches_for(&self, oldest: Epoch) -> bool {
        self.knows_since(oldest) && self.last_told() <= oldest
    }

    /// Whether the session knows of every reset after a write that began then.
    fn knows_since(&self, oldest: Epoch) -> bool {
        self.stood_at(oldest) && !self.is_unsure_since(oldest)
    }

    fn stood_at(&self, moment: Epoch) -> bool {
        self.told_since() <= moment
    }

    /// What the unit has said that it had written is lost: it has told of a failed write-back.
    pub(crate) fn lost(&self) {
        self.across.writes.lose();
    }

    /// A flush has failed on the medium: the unit need not have kept what it could not write, whichever disk
    /// that came from.
    pub(crate) fn flush_failed(&self) {
        self.across.writes.fail_flush();
    }

    /// Whether anything was lost so far.
    pub(crate) fn has_lost(&self) -> bool {
        self.across.writes.losses() > 0
    }

    /// From now on a flush takes turns with those of the other disks with the unit, and is told which fail.
    pub(crate) fn flush_with(&self, flushes: Arc<UnitFlushes>) {
        self.across.writes.flush_with(flushes);
    }

    /// Whether another disk of the initiator has the unit, too.
    pub(crate) fn is_unit_of_another_disk(&self) -> bool {
        self.across.writes.of_unit().is_some_and(|flushes| Arc::strong_count(flushes) > 1)
    }

    /// The unit keeps writes in a volatile cache, or does not say that it does not.
    pub(crate) fn found_cache(&self) {
        self.across.writes.has_cache.store(true, Ordering::SeqCst);
    }

    /// Whether it was ever seen to keep them so.
    pub(crate) fn has_cache(&self) -> bool {
        self.across.writes.has_cache.load(Ordering::SeqCst)
    }

    /// For a handle that knows of no loss but of those that another one was told of.
    pub(crate) fn cursor(&self) -> LossCursor {
        let seen = self.across.writes.told_of.load(Ordering::SeqCst);
        LossCursor { across: Arc::clone(&self.across), seen: seen.into() }
    }

    /// Begins a flush of the writes that have ended, after those flushes that are under way.
    pub(crate) async fn begin_flush(&self) -> Flush<'_> {
        let turn = self.across.writes.flush.lock().await;
        let turn_of_unit = match self.across.writes.of_unit() {
            Some(flushes) => Some(flushes.turn().await),
            None => None,
        };
        let oldest = {
            let mut unflushed = self.across.writes.lock();
            unflushed.flushing = unflushed.waiting.take();
            unflushed.flushing
        };
        Flush { unflushed: self, begun: self.begin(), oldest, _turn: turn, turn_of_unit }
    }
}

impl LossCursor {
    /// A flush begins.
    pub(crate) fn begin(&self) -> SeenLosses {
        SeenLosses(self.seen.load(Ordering::SeqCst))
    }

    /// Whether more was lost than the handle knew when its flush began. It does not count as told by that.
    pub(crate) fn are_more_than(&self, seen: SeenLosses) -> bool {
        self.across.writes.losses() > seen.0
    }

    /// The flush has ended well, and whoever waits for it is given the result.
    ///
    /// # Errors
    /// [`Error::UnflushedWritesLost`] if something was lost of which the handle did not know when the
    /// flush began: so all who flush at the same time are told.
    pub(crate) fn end(&self, seen: SeenLosses) -> Result<(), Error> {
        let losses = self.across.writes.losses();
        self.seen.fetch_max(losses, Ordering::SeqCst);
        self.across.writes.told_of.fetch_max(losses, Ordering::SeqCst);
        if seen.0 >= losses { Ok(()) } else { Err(Error::UnflushedWritesLost) }
    }
}

/// Where somebody was told already, a clone made for each flush is not told again and again.
impl Clone for LossCursor {
    fn clone(&self) -> Self {
        let [own, told] =
            [&self.seen, &self.across.writes.told_of].map(|seen| seen.load(Ordering::SeqCst));
        Self { across: Arc::clone(&self.across), seen: own.max(told).into() }
    }
}

/// A flush under way. If it is dropped before it is known to have ended well, its writes count as
/// unflushed again.
#[derive(Debug)]
pub(crate) struct Flush<'a> {
    unflushed: &'a Unflushed,
    begun: Epoch,
    oldest: Option<Epoch>,
    _turn: tokio::sync::MutexGuard<'a, ()>,
    /// Among the flushes of all disks with the unit, until the unit has answered.
    turn_of_unit: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl Flush<'_> {
    /// The unit has flushed, which is all that the flushes of other disks wait for.
    pub(crate) fn answered(&mut self) {
        self.turn_of_unit = None;
    }

    /// Whether another session has to vouch for what was written: the unit has a cache, and this session
    /// came later, or may have been told of a reset.
    pub(crate) fn needs_witness(&self) -> bool {
        self.unflushed.has_cache() && !self.is_known_to(self.unflushed)
    }

    /// Whether a session knows of every reset since the oldest write began.
    pub(crate) fn is_known_to(&self, session: &Unflushed) -> bool {
        self.oldest.is_none_or(|oldest| session.knows_since(oldest))
    }

    /// The unit has flushed, and all is known that it told this session before, and the other one since:
    /// what was written counts as lost unless one of them can vouch for it. Without a cache nothing is
    /// lost if nobody is left to tell.
    pub(crate) fn ended(mut self, witness: Option<&Unflushed>) {
        self.unflushed.took(self.begun);
        let is_unknown = self.needs_witness();
        let Some(oldest) = self.oldest.take() else { return };
        let is_lost = is_unknown && !witness.is_some_and(|witness| witness.vouches_for(oldest));
        if is_lost || self.unflushed.last_told() > oldest {
            self.unflushed.lost();
        }
    }

    /// The unit could not write to the medium, which counts as a loss already: nothing is left that another
    /// flush could vouch for.
    pub(crate) fn failed(mut self) {
        self.oldest = None;
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        let writes = &self.unflushed.across.writes;
        if let Some(oldest) = self.oldest {
            writes.not_flushed(oldest);
        }
        writes.lock().flushing = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(session: &Unflushed) {
        session.wrote(session.begin());
    }

    /// A handle flushes that was told of all before; whether it is told of nothing.
    async fn flush(session: &Unflushed) -> bool {
        let cursor = session.cursor();
        let seen = cursor.begin();
        session.begin_flush().await.ended(None);
        cursor.end(seen).is_ok()
    }

    fn cached() -> Unflushed {
        let unflushed = Unflushed::default();
        unflushed.found_cache();
        unflushed
    }

    #[tokio::test]
    async fn only_a_reset_between_write_and_flush_loses_writes() {
        let state = cached();
        state.reset();
        write(&state);
        assert!(flush(&state).await);
        state.reset();
        assert!(flush(&state).await, "nothing was unflushed");
        write(&state);
        state.reset();
        write(&state);
        assert!(!flush(&state).await);
        assert!(flush(&state).await, "the loss is told once");
    }

    #[tokio::test]
    async fn one_session_vouches_for_the_writes_of_all() {
        let first = cached();
        first.reset();
        let second = first.follow();
        write(&second);
        assert!(first.is_witness() && second.is_witness());
        assert!(flush(&first).await);
        write(&second);
        // Each is told of the same reset.
        first.reset();
        second.reset();
        write(&second);
        assert!(!flush(&first).await);
        write(&second);
        assert!(flush(&first).await);
    }

    /// It is told of what came before it, and that is told to nobody else.
    #[tokio::test]
    async fn what_a_new_session_is_told_first_is_no_news() {
        let first = cached();
        write(&first);
        assert!(flush(&first).await);
        let second = first.follow();
        let early = second.begin();
        second.reset();
        second.took(early);
        write(&second);
        assert!(flush(&first).await);
        assert!(first.last_told() < second.begin());
        // A reset that both are told of.
        write(&first);
        first.reset();
        assert!(!flush(&first).await);
        write(&first);
        second.reset();
        assert!(flush(&first).await, "the older word of a witness is the exact one");
    }

    #[tokio::test]
    async fn a_session_that_came_later_cannot_vouch() {
        let first = cached();
        write(&first);
        let later = first.follow();
        assert!(!later.is_witness());
        assert!(!flush(&later).await);
        write(&later);
        assert!(flush(&later).await);

        let first = Unflushed::default();
        write(&first);
        assert!(flush(&first.follow()).await, "there is no cache");
        write(&first);
        first.found_cache();
        assert!(!flush(&first.follow()).await, "there is one by now");
    }

    /// What it was told at its first commands may be a reset after a write of another session.
    #[tokio::test]
    async fn a_session_vouches_for_nothing_before_it_was_told_all_that_was() {
        let first = cached();
        let later = first.follow();
        let begun = later.begin();
        write(&first);
        later.reset();
        later.took(begun);
        assert!(!later.is_witness());
        assert!(!flush(&later).await);
    }

    #[tokio::test]
    async fn another_session_vouches_for_what_came_before_this_one() {
        let first = cached();
        assert!(!first.is_needed());
        let lost = async |first: &Unflushed, is_reset: bool| {
            write(first);
            let later = first.follow();
            assert!(first.is_needed() && !later.is_needed());
            let (cursor, flush) = (later.cursor(), later.begin_flush().await);
            assert!(first.is_needed() && flush.needs_witness() && flush.is_known_to(first));
            if is_reset {
                first.reset();
            }
            let seen = cursor.begin();
            flush.ended(Some(first));
            assert!(!first.is_needed());
            cursor.end(seen).is_err()
        };
        assert!(!lost(&first, false).await);
        assert!(lost(&first, true).await);
    }

    #[tokio::test]
    async fn a_write_counts_from_its_beginning() {
        let state = cached();
        let begun = state.begin();
        state.reset();
        state.wrote(begun);
        assert!(!flush(&state).await);
    }

    #[tokio::test]
    async fn a_flush_that_does_not_end_leaves_its_writes_unflushed() {
        let state = cached();
        write(&state);
        let flushing = state.begin_flush().await;
        state.reset();
        write(&state);
        drop(flushing);
        assert!(!flush(&state).await);
    }

    #[tokio::test]
    async fn each_handle_is_told_of_each_loss_once() {
        let state = cached();
        let [one, other] = [state.cursor(), state.cursor()];
        write(&state);
        state.reset();
        let early = one.begin();
        let late = one.begin();
        state.begin_flush().await.ended(None);
        assert!(one.end(early).is_err());
        assert!(one.end(late).is_err(), "all who flush at the same time are told");
        assert!(one.end(one.begin()).is_ok());
        let (clone, fresh) = (other.clone(), state.cursor());
        assert!(other.end(other.begin()).is_err(), "another handle was told, this one was not");
        assert!(other.end(other.begin()).is_ok());
        assert!(
            clone.end(clone.begin()).is_ok() && fresh.end(fresh.begin()).is_ok(),
            "somebody had been told"
        );
    }

    #[tokio::test]
    async fn a_handle_that_comes_later_is_told_of_what_nobody_was_told() {
        let state = cached();
        let first = state.cursor();
        state.lost();
        let [clone, later] = [first.clone(), state.cursor()];
        let seen = [&first, &clone, &later].map(|cursor| (cursor, cursor.begin()));
        assert!(seen.into_iter().all(|(cursor, seen)| cursor.end(seen).is_err()));
    }

    /// The abort of the copy of a request that is not needed any more leaves a session without a status.
    #[tokio::test]
    async fn another_session_vouches_for_one_that_may_have_been_told() {
        let flushed_with = async |first: &Unflushed, witness: Option<&Unflushed>| {
            let cursor = first.cursor();
            let seen = cursor.begin();
            let flush = first.begin_flush().await;
            assert!(flush.needs_witness() && first.is_unsure());
            flush.ended(witness);
            cursor.end(seen).is_ok()
        };
        let first = cached();
        write(&first);
        assert!(flush(&first).await);
        let second = first.follow();
        second.took(second.begin());
        for (is_reset, is_unsure) in [(false, false), (true, false), (false, true)] {
            write(&first);
            first.may_be_reset();
            assert!(first.was_told() && !second.was_told(), "the second one had better flush");
            if is_reset {
                second.reset();
            } else if is_unsure {
                second.may_be_reset();
            }
            assert_eq!(flushed_with(&first, Some(&second)).await, !is_reset && !is_unsure);
        }
        write(&first);
        first.may_be_reset();
        assert!(!flushed_with(&first, None).await);
        write(&first);
        assert!(flush(&first).await, "whatever came before was told by then");
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_lost() {
        let state = cached();
        let cursor = state.cursor();
        write(&state);
        let flushing = state.begin_flush().await;
        state.lost();
        flushing.failed();
        assert!(cursor.end(cursor.begin()).is_err());
        assert!(flush(&state).await, "nothing is left to be lost");
    }
}
