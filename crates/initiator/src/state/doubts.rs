//! Whether a session still leads to the unit that it led to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::state::across_sessions::AcrossSessions;

/// The reasons to ask which unit it is, as a target may put another one behind a number while a session
/// goes on: it says so by a unit attention, if at all.
///
/// Until the unit has been recognized nothing is sent to it but questions, and what has ended well
/// meanwhile is not believed.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// Those that hold for all sessions with the unit are there.
    across: Arc<AcrossSessions>,
    /// Those that have come over this session.
    own: AtomicU64,
    /// Commands of this session that were given up: their status may have been one.
    given_up: AtomicU64,
    /// How many of all there were when the unit was asked before it was recognized last.
    resolved: AtomicU64,
    /// One asks for all.
    turn: tokio::sync::Mutex<()>,
    /// What the session leads to is not the unit of before. Boxed, as it lies between what each request needs.
    verdict: Mutex<Option<Box<Error>>>,
}

/// What there were of them when a command began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    resolved: u64,
    given_up: u64,
}

impl Doubts {
    /// Of a session with the unit, which has been asked there, or will be.
    pub(crate) fn following(across: &Arc<AcrossSessions>) -> Self {
        Self::following_since(across, across.doubts.load(Ordering::SeqCst))
    }

    /// The same where there were so many that hold for all sessions when the unit was asked.
    pub(crate) fn following_since(across: &Arc<AcrossSessions>, count: u64) -> Self {
        Self { across: Arc::clone(across), resolved: count.into(), ..Self::default() }
    }

    /// How many reasons there were so far that hold for all sessions.
    pub(crate) fn count_across(&self) -> u64 {
        self.across.doubts.load(Ordering::SeqCst)
    }

    /// There is a reason to ask over this session.
    pub(crate) fn raise(&self) {
        self.own.fetch_add(1, Ordering::SeqCst);
    }

    /// A command of this session was given up: nobody knows what its status would have told.
    pub(crate) fn give_up(&self) {
        self.given_up.fetch_add(1, Ordering::SeqCst);
    }

    /// How many reasons there were so far.
    pub(crate) fn count(&self) -> u64 {
        let counts = [&self.own, &self.given_up, &self.across.doubts];
        counts.into_iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// A command begins.
    pub(crate) fn begin(&self) -> Before {
        self.begin_while(|| {})
    }

    /// The same, while another one is given up or the unit is asked.
    fn begin_while(&self, happens: impl FnOnce()) -> Before {
        // In this order, one that is given up and resolved in between counts as one that was told since, at worst. In the
        // other one it would count as resolved and as given up since, and so hide one that is told later.
        let resolved = self.resolved.load(Ordering::SeqCst);
        happens();
        Before { resolved, given_up: self.given_up.load(Ordering::SeqCst) }
    }

    /// Whether another unit may have come and gone since: there were two reasons. All commands that were given up
    /// are one, and not two of them: else what takes long would never end where many are given up.
    pub(crate) fn may_be_two_since(&self, before: Before) -> bool {
        let given_up = self.given_up.load(Ordering::SeqCst) - before.given_up;
        let told = (self.count() - before.resolved).saturating_sub(given_up);
        told > 1 || told == 1 && given_up > 0
    }

    /// Whether the unit has to be asked, or is known to be another one.
    pub(crate) fn is_any(&self) -> bool {
        let is_in_question = self.across.medium.is_in_question();
        is_in_question || self.count() > self.resolved.load(Ordering::SeqCst)
    }

    /// The unit was asked when there had been so many reasons, and is the one of before.
    pub(crate) fn resolve(&self, count: u64) {
        self.resolved.fetch_max(count, Ordering::SeqCst);
    }

    /// The unit is another one, for good: nothing is sent to it over this session any more, and the
    /// others have reason to ask.
    pub(crate) fn found_another(&self, verdict: &Error) {
        self.lock().get_or_insert_with(|| Box::new(verdict.clone()));
        self.across.doubts.fetch_add(1, Ordering::SeqCst);
    }

    /// The error of all requests, if the unit is another one, or may have another medium.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        if self.across.medium.is_in_question() {
            return Err(Error::MediumChanged);
        }
        self.lock().as_deref().cloned().map_or(Ok(()), Err)
    }

    /// Waits until nobody else asks.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Error>>> {
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
    fn what_was_given_up_counts_as_one_beside_what_was_told() {
        let doubts = Doubts::default();
        let before = doubts.begin();
        (0..3).for_each(|_| doubts.give_up());
        assert!(doubts.is_any() && !doubts.may_be_two_since(before));
        doubts.resolve(doubts.count());
        doubts.raise();
        assert!(doubts.may_be_two_since(before));
        assert!(!doubts.may_be_two_since(doubts.begin()));
        doubts.raise();
        assert!(doubts.may_be_two_since(doubts.begin()));
    }

    /// What is given up and resolved meanwhile is not taken off those that come later.
    #[test]
    fn what_is_resolved_while_a_command_begins_hides_nothing_that_comes_later() {
        let doubts = Doubts::default();
        let before = doubts.begin_while(|| {
            doubts.give_up();
            doubts.resolve(doubts.count());
        });
        doubts.raise();
        doubts.give_up();
        assert!(doubts.may_be_two_since(before));
    }

    #[test]
    fn another_unit_is_a_reason_for_all_to_ask_and_final_for_one() {
        let across = Arc::default();
        let [first, second] = [(); 2].map(|()| Doubts::following(&across));
        second.raise();
        assert!(second.is_any() && !first.is_any(), "each is told by itself");
        second.found_another(&Error::Closed);
        second.resolve(second.count() - 1);
        assert!(second.is_any() && second.verdict().is_err());
        assert!(first.is_any() && first.verdict().is_ok());
        assert!(!Doubts::following(&across).is_any(), "it is asked before anything is sent there");
    }

    #[test]
    fn another_unit_that_is_found_after_a_further_session_was_asked_is_a_reason_to_ask_it_again() {
        let across = Arc::default();
        let [first, second] = [(); 2].map(|()| Doubts::following(&across));
        first.found_another(&Error::Closed);
        let asked = second.count_across();
        assert!(!Doubts::following_since(&across, asked).is_any());
        first.found_another(&Error::Closed);
        let further = Doubts::following_since(&across, asked);
        assert!(further.is_any());
        further.resolve(further.count());
        assert!(!further.is_any());
    }
}
