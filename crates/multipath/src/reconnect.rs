//! Decides when and at which portals a lost session reconnects.
//!
//! A lost session reconnects under its own ISID with TSIH 0, so that the target ends the rest of the old
//! session at the login (RFC 7143 §6.3.5). The first try begins when the Time2Wait of the old session is over
//! (§7.4), or later if the old session ended within ten seconds of its login: this pause grows with each
//! consecutive session that does. Each try visits the portal of the lost session and then all others, because
//! that portal may never return. After a failure that may be temporary there is another try, with pauses that
//! grow and are partly random, until the retry timeout is over.
//!
//! Design: `docs/design/reconnects.md`.

mod back_off;
mod candidates;
mod credential_tries;
mod lifetime;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use iscsi_session::Entropy;

use crate::ids::PortalId;
use crate::reconnect::candidates::Candidates;

pub use back_off::{BackOff, JitteredBackOff};
pub use candidates::Outlook;
pub use credential_tries::CredentialTries;
pub use lifetime::Lifetime;

/// Pauses and limits of the tries for one session.
#[derive(Clone, Debug)]
pub struct ReconnectLimits {
    /// Maximum pause between the first try and the second.
    pub first_pause: Duration,
    /// Maximum pause between two tries.
    pub max_pause: Duration,
    /// Random part of each pause, in percent, 0 to 100.
    pub jitter: u8,
    /// Time limit within which the last try must begin.
    pub retry_timeout: Duration,
    /// Pauses before logins of a path whose sessions end soon.
    pub after_quick_ends: BackOff,
}

/// A lost session that is to reconnect.
#[derive(Clone, Copy, Debug)]
pub struct LostSession {
    /// The portal of the session.
    pub portal: PortalId,
    /// When the session was lost. The tries may begin later.
    pub at: Instant,
    /// Time2Wait of the lost session: the minimum time from `at` until the first login.
    pub time2wait: Duration,
    /// When the session began, and how many sessions before it ended soon after their login.
    pub lifetime: Lifetime,
}

/// Next step of a reconnect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Try at this time.
    Try(Instant),
    /// Give the session up at this time, without a further try.
    GiveUp {
        /// The time.
        at: Instant,
        /// Whether later tries would also fail.
        is_final: bool,
    },
}

/// The tries to reconnect one lost session.
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
    /// Creates the tries, which begin now. There is no try if Time2Wait exceeds the retry timeout.
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

    /// Returns the next step.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Begins a try, and returns the portals to visit, in the order of the connections. `portals` is the
    /// number of portals that are known now.
    pub fn begin_try(&mut self, portals: usize, now: Instant) -> Vec<PortalId> {
        self.candidates.extend(portals.max(1), self.portal, now);
        self.candidates.due(now)
    }

    /// Records that the login at a portal has failed. Returns whether the try continues at the other portals.
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

    /// Returns the lifetime of a new session, which begins now. It includes the number of short sessions before it.
    pub const fn lifetime(&self, now: Instant) -> Lifetime {
        Lifetime::next(self.quick_ends, now)
    }
}
