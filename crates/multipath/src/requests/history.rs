//! Counts the failed attempts of one request, and decides whether another attempt is worthwhile.
//!
//! A request that the unit refuses for a temporary reason is retried within the disk's time limit for such
//! errors. A request whose session ended is sent over the next session, however often that happens, unless
//! the request itself ends the sessions. If many requests were in flight on a lost session, it is unknown
//! which of them ended it. So a request that was in flight on three consecutive lost sessions becomes a
//! suspect: it is sent alone on its session, and fails if five more consecutive sessions end under it. If
//! sessions also end without a suspect alone on them, the link may be the cause, and more losses are needed
//! before the request fails.

use std::time::{Duration, Instant};

use crate::reconnect::BackOff;

/// Number of consecutive lost sessions after which a request is sent alone.
const SUSPECT: u32 = 3;
/// Number of lost sessions on which a request was alone after which the request fails.
const GUILTY: u32 = 5;
/// Each session that is lost while no suspected request was alone on it raises `GUILTY` by this number.
const DOUBT: u32 = 3;
/// Maximum by which `GUILTY` is raised.
const MAX_DOUBT: u32 = 15;
/// Number of lost sessions after which a request fails in any case.
const MAX_LOSSES: u32 = 100;
/// Number of consecutive refusals by ports after which a request pauses.
const MAX_REFUSALS: u32 = 8;

/// Failed attempts of a request. `E` is the error of an attempt.
#[derive(Clone, Debug)]
pub struct History<E> {
    /// The last error after which the request may have been executed.
    executed: Option<E>,
    held: Option<Held>,
    /// Number of sessions that were lost under the request, whether or not it had been sent.
    losses: u32,
    suspicion: Suspicion,
    /// Number of consecutive refusals by ports without a pause.
    refusals: u32,
}

/// State of a request that the unit refuses now.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    /// Time limit of the retries for the reason of the last refusal.
    limit: Duration,
    /// When the time limit `limit` began.
    limit_since: Instant,
    pauses: u32,
}

/// Evidence that a request ends the sessions over which it is sent.
#[derive(Clone, Copy, Debug, Default)]
struct Suspicion {
    /// Number of lost sessions over which the request had been sent.
    losses: u32,
    /// Number of lost sessions on which only this request was in flight.
    alone: u32,
    /// Value of `plain_losses` in [`lost`](History::lost) when the request was first alone on a lost session.
    plain_losses: u64,
}

/// Decision after the loss of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AfterLoss {
    /// Make another attempt.
    Retry,
    /// The request ends each session: it ended this number of consecutive sessions with nothing else in flight.
    EndsSessions(u32),
    /// Too many sessions were lost under the request.
    GiveUp,
}

impl<E> Default for History<E> {
    fn default() -> Self {
        Self { executed: None, held: None, losses: 0, suspicion: Suspicion::default(), refusals: 0 }
    }
}

impl<E> History<E> {
    /// Returns the state that affects further attempts, without times.
    pub(crate) const fn fingerprint(&self) -> (bool, Option<u32>, [u32; 4]) {
        let held = match &self.held {
            Some(held) => Some(held.pauses),
            None => None,
        };
        let Suspicion { losses, alone, .. } = self.suspicion;
        (self.executed.is_some(), held, [self.losses, losses, alone, self.refusals])
    }

    /// Returns whether the request must be alone on its path.
    pub const fn is_suspect(&self) -> bool {
        self.suspicion.losses >= SUSPECT
    }

    /// Returns how many sessions have ended while the request was alone on them.
    pub const fn ended_alone(&self) -> u32 {
        self.suspicion.alone
    }

    /// Returns whether another port is tried immediately if a port refuses the request. The number of such
    /// tries is limited, because all ports that are reported to serve the unit may refuse.
    pub const fn refusals_left(&self) -> bool {
        self.refusals + 1 < MAX_REFUSALS
    }

    /// Counts a refusal by a port.
    pub const fn count_refusal(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Records the error of an attempt after which the request may have been executed.
    pub fn may_have_executed(&mut self, error: E) {
        self.executed = Some(error);
    }

    /// Takes the last error after which the request may have been executed.
    pub const fn take_executed(&mut self) -> Option<E> {
        self.executed.take()
    }

    /// Clears the suspicion: the unit has responded, so the request is probably not the reason why sessions
    /// end.
    pub fn answered(&mut self) {
        self.suspicion = Suspicion::default();
    }

    /// Begins a pause, and returns its length; `None` if a time limit of the retries would be exceeded.
    /// `limit` counts from the first pause with this limit. `total` counts from `since`; later pauses use the
    /// value of `since` at the first pause.
    pub fn pause(
        &mut self,
        pauses: BackOff,
        limit: Duration,
        (total, since): (Duration, Instant),
        now: Instant,
    ) -> Option<Duration> {
        let held = self.held.get_or_insert(Held { since, limit, limit_since: now, pauses: 0 });
        if held.limit != limit {
            (held.limit, held.limit_since) = (limit, now);
        }
        let pause = pauses.after(held.pauses).next();
        held.pauses = held.pauses.saturating_add(1);
        let is_over = |since: Instant, limit| {
            now.saturating_duration_since(since).saturating_add(pause) > limit
        };
        if is_over(held.limit_since, limit) || is_over(held.since, total) {
            return None;
        }
        self.refusals = 0;
        Some(pause)
    }

    /// Restarts with the shortest pause, because a port has changed its state and may accept the request.
    pub const fn shorten_pauses(&mut self) {
        if let Some(held) = &mut self.held {
            held.pauses = 0;
        }
    }

    /// Extends the time limits by the time that the request waited for its traffic class, because the unit did
    /// not cause that delay.
    pub fn waited_in_class(&mut self, time: Duration) {
        if let Some(held) = &mut self.held {
            let later = |at: Instant| at.checked_add(time).unwrap_or(at);
            (held.since, held.limit_since) = (later(held.since), later(held.limit_since));
        }
    }

    /// Records that the session or connection that carried the request was lost. `was_sent` is whether the request may
    /// have been executed, `was_alone` whether it was a suspect, which has a path to itself, and `plain_losses` the
    /// number of sessions lost so far that carried no suspect.
    pub fn lost(&mut self, was_sent: bool, was_alone: bool, plain_losses: u64) -> AfterLoss {
        self.losses = self.losses.saturating_add(1);
        // The unit may accept the request over the next session, so the pauses and their time limits begin
        // again.
        self.held = None;
        if was_sent {
            self.suspicion.add(was_alone, plain_losses);
            if self.suspicion.is_proven(plain_losses) {
                return AfterLoss::EndsSessions(self.suspicion.alone);
            }
        }
        if self.losses < MAX_LOSSES { AfterLoss::Retry } else { AfterLoss::GiveUp }
    }
}

impl Suspicion {
    const fn add(&mut self, was_alone: bool, plain_losses: u64) {
        self.losses = self.losses.saturating_add(1);
        if was_alone {
            if self.alone == 0 {
                self.plain_losses = plain_losses;
            }
            self.alone += 1;
        }
    }

    fn is_proven(&self, plain_losses: u64) -> bool {
        let others = u32::try_from(plain_losses.saturating_sub(self.plain_losses));
        let doubt = DOUBT.saturating_mul(others.unwrap_or(MAX_DOUBT)).min(MAX_DOUBT);
        self.alone >= GUILTY + doubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_PAUSE: Duration = Duration::from_secs(1);
    const PAUSES: BackOff = BackOff::new(Duration::from_millis(10), MAX_PAUSE);
    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns the time from which the tests count.
    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_request_is_held_as_long_as_its_limits_allow() {
        let start = start();
        let mut history = History::<()>::default();
        let (mut now, mut waited) = (start, Duration::ZERO);
        while let Some(pause) = history.pause(PAUSES, MINUTE, (MINUTE, start), now) {
            now += pause;
            waited += pause;
        }
        assert!(waited <= MINUTE && waited + MAX_PAUSE > MINUTE, "{waited:?}");
        // A shorter limit counts from the first pause with that limit.
        let mut history = History::<()>::default();
        assert!(history.pause(PAUSES, MINUTE, (MINUTE, start), start).is_some());
        let later = start + MINUTE / 2;
        let short = Duration::from_secs(5);
        assert!(history.pause(PAUSES, short, (MINUTE, start), later).is_some());
        assert!(history.pause(PAUSES, short, (MINUTE, start), later + short).is_none());
    }

    #[test]
    fn the_time_in_the_class_does_not_count() {
        let start = start();
        let mut history = History::<()>::default();
        assert!(history.pause(PAUSES, MINUTE, (MINUTE, start), start).is_some());
        history.waited_in_class(MINUTE * 2);
        assert!(history.pause(PAUSES, MINUTE, (MINUTE, start), start + MINUTE * 2).is_some());
        history.waited_in_class(Duration::MAX);
    }

    /// Returns the number of lost sessions after which the request fails. Before each session that is lost with
    /// only this request on it, `plain_per_loss` other sessions are lost.
    fn losses_until_proven(plain_per_loss: u64) -> Option<u32> {
        let mut history = History::<()>::default();
        let mut plain = 0;
        for loss in 1..MAX_LOSSES {
            let was_alone = history.is_suspect();
            plain += if was_alone { plain_per_loss } else { 1 };
            match history.lost(true, was_alone, plain) {
                AfterLoss::Retry => {}
                AfterLoss::EndsSessions(_) => return Some(loss),
                AfterLoss::GiveUp => return None,
            }
        }
        None
    }

    #[test]
    fn a_request_that_ends_sessions_alone_is_proven_guilty() {
        assert_eq!(losses_until_proven(0), Some(SUSPECT + GUILTY));
        // If as many sessions are lost without the request as with it, the request fails `MAX_DOUBT` losses later.
        assert_eq!(losses_until_proven(1), Some(SUSPECT + GUILTY + MAX_DOUBT));
    }

    #[test]
    fn an_answer_acquits_and_what_was_not_sent_is_no_evidence() {
        let mut history = History::<()>::default();
        for _ in 0..SUSPECT {
            assert_eq!(history.lost(true, false, 0), AfterLoss::Retry);
        }
        assert!(history.is_suspect());
        history.answered();
        assert!(!history.is_suspect());
        for _ in 0..MAX_LOSSES - SUSPECT - 1 {
            assert_eq!(history.lost(false, false, 0), AfterLoss::Retry);
        }
        assert!(!history.is_suspect());
        assert_eq!(history.lost(false, false, 0), AfterLoss::GiveUp);
    }

    #[test]
    fn ports_that_refuse_in_a_row_are_counted_until_a_pause() {
        let mut history = History::<()>::default();
        let mut refused = 0;
        while history.refusals_left() {
            history.count_refusal();
            refused += 1;
        }
        assert_eq!(refused, MAX_REFUSALS - 1);
        assert!(history.pause(PAUSES, MINUTE, (MINUTE, start()), start()).is_some());
        assert!(history.refusals_left());
    }
}
