//! Whether a session still leads to the unit that it led to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// The reasons to ask which unit it is, as a target may put another one behind a number while a session
/// goes on: it says so by a unit attention, if at all.
///
/// Until the unit has been recognized nothing is sent to it but questions, and what has ended well
/// meanwhile is not believed.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// Those that have come over this session.
    own: AtomicU64,
    /// Those that hold for all sessions with the unit.
    shared: Arc<AtomicU64>,
    /// How many of both there were when the unit was asked before it was recognized last.
    resolved: AtomicU64,
    /// One asks for all.
    turn: tokio::sync::Mutex<()>,
    /// What the session leads to is not the unit of before.
    verdict: Mutex<Option<Error>>,
}

impl Doubts {
    /// The same for a further session with the unit, which has been asked there, or will be.
    pub(crate) fn follow(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        let resolved = shared.load(Ordering::SeqCst).into();
        Self { shared, resolved, ..Self::default() }
    }

    /// There is a reason to ask over this session.
    pub(crate) fn raise(&self) {
        self.own.fetch_add(1, Ordering::SeqCst);
    }

    /// How many reasons there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.own.load(Ordering::SeqCst) + self.shared.load(Ordering::SeqCst)
    }

    /// Whether the unit has to be asked, or is known to be another one.
    pub(crate) fn is_any(&self) -> bool {
        self.count() > self.resolved.load(Ordering::SeqCst)
    }

    /// How many of them the last recognition has settled.
    pub(crate) fn resolved(&self) -> u64 {
        self.resolved.load(Ordering::SeqCst)
    }

    /// The unit was asked when there had been so many reasons, and is the one of before.
    pub(crate) fn resolve(&self, count: u64) {
        self.resolved.fetch_max(count, Ordering::SeqCst);
    }

    /// The unit is another one, for good: nothing is sent to it over this session any more, and the
    /// others have reason to ask.
    pub(crate) fn found_another(&self, verdict: &Error) {
        self.lock().get_or_insert_with(|| verdict.clone());
        self.shared.fetch_add(1, Ordering::SeqCst);
    }

    /// The error of all requests, if the unit is another one.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        self.lock().clone().map_or(Ok(()), Err)
    }

    /// Waits until nobody else asks.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    fn lock(&self) -> MutexGuard<'_, Option<Error>> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_that_comes_while_the_unit_is_asked_stays() {
        let doubts = Doubts::default();
        assert!(!doubts.is_any());
        doubts.raise();
        let asked = doubts.count();
        doubts.raise();
        doubts.resolve(asked);
        assert!(doubts.is_any());
        doubts.resolve(doubts.count());
        assert!(!doubts.is_any());
    }

    #[test]
    fn another_unit_is_a_reason_for_all_to_ask_and_final_for_one() {
        let first = Doubts::default();
        let second = first.follow();
        second.raise();
        assert!(second.is_any() && !first.is_any(), "each is told by itself");
        second.found_another(&Error::Closed);
        second.resolve(second.count() - 1);
        assert!(second.is_any() && second.verdict().is_err());
        assert!(first.is_any() && first.verdict().is_ok());
        assert!(!first.follow().is_any(), "it is asked before anything is sent there");
    }
}
