//! When a lost session is opened again, and where.
//!
//! A lost session reconnects under its own ISID with TSIH 0, so that the target ends what is left of the old session at the
//! login (RFC 7143 §6.3.5). The first try begins when the Time2Wait of the end is over (§7.4), and later if sessions
//! of this path have ended soon one after the other. Each try visits the portal of the lost session and then all others, since
//! that one may be gone for good. What may pass is waited for, with pauses that grow and are random in part, until the
//! retry timeout is over.
//!
//! Why it is so: `docs/design/reconnects.md`.

mod back_off;
mod candidates;
mod credential_tries;
mod lifetime;
mod outlook;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use iscsi_session::Entropy;

use crate::ids::PortalId;
use crate::reconnect::candidates::Candidates;

pub use back_off::{BackOff, JitteredBackOff};
pub use credential_tries::CredentialTries;
pub use lifetime::Lifetime;
pub use outlook::Outlook;

/// Pauses and limits of the tries for one session.
#[derive(Clone, Debug)]
pub struct ReconnectLimits {
    /// The longest pause between the first try and the second.
    pub first_pause: Duration,
    /// The longest pause between two tries.
    pub max_pause: Duration,
    /// Random share of each pause, percent, 0 to 100.
    pub jitter: u8,
    /// The time within which the last try begins.
    pub retry_timeout: Duration,
    /// Pauses between logins whose sessions end soon.
    pub after_quick_ends: BackOff,
}

/// The end of a session that is to reconnect.
#[derive(Clone, Copy, Debug)]
pub struct LostSession {
    /// The portal that it went to.
    pub portal: PortalId,
    /// When it was lost; it may have been tried before.
    pub at: Instant,
    /// Time2Wait of its end: from `at` until the first login.
    pub time2wait: Duration,
    /// How long it has lasted.
    pub lifetime: Lifetime,
}

/// What is due next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// A try at this time.
    Try(Instant),
    /// No further try: give the session up at this time.
    GiveUp {
        /// When.
        at: Instant,
        /// Whether no try is of use later either.
        is_final: bool,
    },
}

/// The tries to open one lost session again.
#[derive(Debug)]
pub struct Reconnect<E> {
    limits: ReconnectLimits,
    back_off: JitteredBackOff<E>,
    candidates: Candidates,
    portal: PortalId,
    begun: Instant,
    quick_ends: u32,
    step: Step,
}

impl<E: Entropy> Reconnect<E> {
    /// Begins now. Time2Wait that is longer than the retry timeout leaves no try.
    pub fn new(lost: &LostSession, limits: ReconnectLimits, entropy: E, now: Instant) -> Self {
        let ReconnectLimits { first_pause, max_pause, jitter, retry_timeout, .. } = limits;
        let mut back_off = JitteredBackOff::new(entropy, first_pause, max_pause, jitter);
        let (pause, quick_ends) = lost.lifetime.end(limits.after_quick_ends, now);
        let time2wait = lost.time2wait.saturating_sub(now.saturating_duration_since(lost.at));
        let is_too_long = time2wait > retry_timeout;
        let first = if is_too_long { retry_timeout } else { back_off.first(time2wait.max(pause)) };
        let first = now.checked_add(first).unwrap_or(now);
        Self {
            limits,
            back_off,
            candidates: Candidates::new(retry_timeout, now),
            portal: lost.portal,
            begun: now,
            quick_ends,
            step: if is_too_long {
                Step::GiveUp { at: first, is_final: false }
            } else {
                Step::Try(first)
            },
        }
    }

    /// Returns what is due next.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Begins a try, and returns the portals to visit, in the order of the connections. `portals` is the number of portals that
    /// are known by now.
    pub fn begin_try(&mut self, portals: usize, now: Instant) -> Vec<PortalId> {
        self.candidates.extend(portals.max(1), self.portal, now);
        self.candidates.due(now)
    }

    /// Notes that the login at a portal has failed. Returns whether the try goes on at the other portals.
    pub fn failed_at(&mut self, portal: PortalId, outlook: Outlook, now: Instant) -> bool {
        self.candidates.failed(portal, outlook, now);
        outlook != Outlook::Never
    }

    /// Ends a try that has opened no session.
    pub fn end_try(&mut self, now: Instant) {
        if self.candidates.is_empty() {
            self.step = Step::GiveUp { at: now, is_final: true };
            return;
        }
        let pause = self.back_off.next_pause().max(self.candidates.until_due(now));
        let waited = now.saturating_duration_since(self.begun);
        let is_over = waited.saturating_add(pause) > self.limits.retry_timeout;
        self.step = match now.checked_add(pause) {
            Some(next) if !is_over => Step::Try(next),
            Some(_) | None => Step::GiveUp { at: now, is_final: false },
        };
    }

    /// Returns how the new session begins, after those before it.
    pub const fn lifetime(&self, now: Instant) -> Lifetime {
        Lifetime::next(self.quick_ends, now)
    }
}
