//! Which writes a volatile cache may still lose, and whether it has (SBC-3 §4.15).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether the unit may have lost writes that it had acknowledged: it keeps them in a volatile
/// cache until a flush, and a reset empties that.
///
/// Every session with the unit is told of every reset, at its next command (SAM-5 §5.14). So one
/// session can vouch for the writes of all, if it stood before the oldest of them began and has been
/// told of none since. In doubt writes count as lost: to write again does no harm.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    writes: Arc<Writes>,
    /// Epoch in which this session joined. A reset reported before its first command is accepted
    /// happened earlier.
    joined: AtomicU64,
    /// Epoch in which the first command began that this session had accepted.
    first: AtomicU64,
    /// Epoch in which this session last reported a reset.
    told: AtomicU64,
}

/// What all sessions of a disk have written.
#[derive(Debug, Default)]
struct Writes {
    now: AtomicU64,
    /// When the oldest unflushed write began.
    oldest: Mutex<Option<Epoch>>,
    /// One flush at a time.
    flush: tokio::sync::Mutex<()>,
    /// Flushes that have found writes lost.
    losses: AtomicU64,
}

/// A moment in the life of a disk: what matters of it is what lies between two of them. A session
/// that joins makes a new one, and so does a reset that one is told of.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Epoch(u64);

/// No command was taken yet.
const NEVER: u64 = u64::MAX;

impl Unflushed {
    /// A command begins.
    pub(crate) fn begin(&self) -> Epoch {
        Epoch(self.writes.now.load(Ordering::SeqCst))
    }

    /// The session was told of a reset.
    pub(crate) fn reset(&self) {
        let now = self.writes.turn();
        let is_new = self.first.load(Ordering::SeqCst) == NEVER;
        let when = if is_new { &self.joined } else { &self.told };
        when.fetch_max(now, Ordering::SeqCst);
    }

    /// A command was taken that would have been told of a reset.
    pub(crate) fn took(&self, begun: Epoch) {
        self.first.fetch_min(begun.0, Ordering::SeqCst);
    }

    /// A write has ended well.
    pub(crate) fn wrote(&self, begun: Epoch) {
        self.took(begun);
        self.writes.not_flushed(begun);
    }

    /// The same for a further session with the unit, before its first command there.
    pub(crate) fn follow(&self) -> Self {
        let writes = Arc::clone(&self.writes);
        let joined = writes.turn().into();
        Self { writes, joined, first: NEVER.into(), told: AtomicU64::default() }
    }

    /// Whether this session stood before the oldest unflushed write, so that it is told of any reset
    /// since.
    pub(crate) fn is_witness(&self) -> bool {
        self.writes.lock().is_none_or(|oldest| self.stood_at(oldest))
    }

    /// Whether the session was told of a reset since the oldest unflushed write began.
    pub(crate) fn was_told(&self) -> bool {
        self.writes.lock().is_some_and(|oldest| self.last_told() > oldest)
    }

    /// When the session was last told of a reset: of several witnesses the one that was told least
    /// lately knows most.
    pub(crate) fn last_told(&self) -> Epoch {
        Epoch(self.told.load(Ordering::SeqCst))
    }

    fn stood_at(&self, moment: Epoch) -> bool {
        let [joined, first] = [&self.joined, &self.first].map(|when| when.load(Ordering::SeqCst));
        Epoch(joined.max(first)) <= moment
    }

    /// Begins a flush of the writes that have ended, after those flushes that are under way.
    pub(crate) async fn begin_flush(&self) -> Flush<'_> {
        let losses = self.writes.losses.load(Ordering::SeqCst);
        let turn = self.writes.flush.lock().await;
        let was_lost = self.writes.losses.load(Ordering::SeqCst) != losses;
        let oldest = self.writes.lock().take();
        Flush { unflushed: self, begun: self.begin(), oldest, was_lost, _turn: turn }
    }
}

impl Writes {
    /// A new moment.
    fn turn(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn not_flushed(&self, begun: Epoch) {
        let mut oldest = self.lock();
        *oldest = Some(oldest.map_or(begun, |oldest| oldest.min(begun)));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Epoch>> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flush under way. If it is dropped before it is known to have ended well, its writes count as
/// unflushed again.
#[derive(Debug)]
pub(crate) struct Flush<'a> {
    unflushed: &'a Unflushed,
    begun: Epoch,
    oldest: Option<Epoch>,
    /// A flush before this one, which was under way when this was asked for, has found writes lost.
    was_lost: bool,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Flush<'_> {
    /// The unit has flushed: whether all that was written was still there to be flushed. Without a
    /// cache nothing is lost if nobody is left to tell.
    pub(crate) fn ended(mut self, has_cache: bool) -> bool {
        self.unflushed.took(self.begun);
        let Some(oldest) = self.oldest.take() else { return !self.was_lost };
        let is_known = self.unflushed.stood_at(oldest) || !has_cache;
        let is_kept = is_known && self.unflushed.last_told() <= oldest;
        if !is_kept {
            self.unflushed.writes.losses.fetch_add(1, Ordering::SeqCst);
        }
        is_kept && !self.was_lost
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        if let Some(oldest) = self.oldest {
            self.unflushed.writes.not_flushed(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(session: &Unflushed) {
        session.wrote(session.begin());
    }

    async fn flush(session: &Unflushed) -> bool {
        session.begin_flush().await.ended(true)
    }

    #[tokio::test]
    async fn only_a_reset_between_write_and_flush_loses_writes() {
        let state = Unflushed::default();
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
        let first = Unflushed::default();
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
        let first = Unflushed::default();
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
        let first = Unflushed::default();
        write(&first);
        let later = first.follow();
        assert!(!later.is_witness());
        assert!(!flush(&later).await);
        write(&later);
        assert!(flush(&later).await);
        write(&first);
        assert!(first.follow().begin_flush().await.ended(false), "there is no cache");
    }

    /// What it was told at its first commands may be a reset after a write of another session.
    #[tokio::test]
    async fn a_session_vouches_for_nothing_before_it_was_told_all_that_was() {
        let first = Unflushed::default();
        let later = first.follow();
        let begun = later.begin();
        write(&first);
        later.reset();
        later.took(begun);
        assert!(!later.is_witness());
        assert!(!flush(&later).await);
    }

    #[tokio::test]
    async fn a_write_counts_from_its_beginning() {
        let state = Unflushed::default();
        let begun = state.begin();
        state.reset();
        state.wrote(begun);
        assert!(!flush(&state).await);
    }

    #[tokio::test]
    async fn a_flush_that_does_not_end_leaves_its_writes_unflushed() {
        let state = Unflushed::default();
        write(&state);
        let flushing = state.begin_flush().await;
        state.reset();
        write(&state);
        drop(flushing);
        assert!(!flush(&state).await);
    }

    #[tokio::test]
    async fn a_loss_is_told_to_all_who_flush_at_the_time() {
        let state = Unflushed::default();
        write(&state);
        state.reset();
        let first = state.begin_flush().await;
        let mut second = Box::pin(state.begin_flush());
        let waits = std::future::poll_fn(|context| {
            std::task::Poll::Ready(second.as_mut().poll(context).is_pending())
        });
        assert!(waits.await);
        assert!(!first.ended(true));
        assert!(!second.await.ended(true));
        assert!(flush(&state).await);
    }
}
