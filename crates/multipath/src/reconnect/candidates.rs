//! Chooses the portals at which a lost session is tried again, and the time of the next try at each.

use std::time::{Duration, Instant};

use crate::ids::PortalId;
use crate::reconnect::credential_tries::CredentialTries;

/// Whether further logins may succeed, by the cause of a failed login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outlook {
    /// The cause may be temporary.
    MayPass,
    /// The target accepted the login. The later failure may be temporary.
    LoginAccepted,
    /// Authentication of the initiator or of the target has failed. A target may read its accounts only after
    /// it accepts connections, but each try may count towards locking the account, so there are few tries.
    Credentials,
    /// Another try at the same portal would fail in the same way, but another portal may be the right one.
    OtherPortal,
    /// No later try can succeed.
    Never,
}

#[derive(Debug)]
struct Candidate {
    portal: PortalId,
    credentials: CredentialTries,
    /// When to try this portal next.
    at: Instant,
}

/// The portals at which another try may succeed, in the order of the tries.
#[derive(Debug)]
pub(super) struct Candidates {
    all: Vec<Candidate>,
    /// Number of portals that have been added, including those that were removed again.
    known: usize,
    retry_timeout: Duration,
    /// End of the time limit; `None` if it exceeds the range of the clock. The last try is not later, however
    /// long the pause for credentials would be.
    end: Option<Instant>,
}

impl Candidates {
    /// Creates the portals of tries that begin now.
    pub(super) fn new(retry_timeout: Duration, now: Instant) -> Self {
        Self { all: Vec::new(), known: 0, retry_timeout, end: now.checked_add(retry_timeout) }
    }

    fn add(&mut self, portal: PortalId, now: Instant) {
        let credentials = CredentialTries::within(self.retry_timeout);
        self.all.push(Candidate { portal, credentials, at: now });
    }

    /// Adds the portals among the first `count` that were not added before, beginning with `first`. A portal
    /// that was removed is not added again.
    pub(super) fn extend(&mut self, count: usize, first: PortalId, now: Instant) {
        let new = count.saturating_sub(self.known);
        let start = first.0.clamp(self.known, count.max(self.known));
        for turn in 0..new {
            let portal = self.known + (start - self.known + turn) % new;
            self.add(PortalId(portal), now);
        }
        self.known = self.known.max(count);
    }

    /// Returns whether no further try can succeed.
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn due(&self, now: Instant) -> Vec<PortalId> {
        self.all.iter().filter(|one| one.at <= now).map(|one| one.portal).collect()
    }

    /// Returns the time until the next portal is due.
    pub(super) fn until_due(&self, now: Instant) -> Duration {
        let first = self.all.iter().map(|one| one.at).min();
        first.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    pub(super) fn failed(&mut self, portal: PortalId, outlook: Outlook, now: Instant) {
        match outlook {
            Outlook::MayPass => {}
            // The target has accepted the credentials, so all tries are available again: only consecutive
            // refusals count.
            Outlook::LoginAccepted => {
                let of_portal = self.all.iter_mut().find(|one| one.portal == portal);
                let credentials = CredentialTries::within(self.retry_timeout);
                of_portal.into_iter().for_each(|one| one.credentials = credentials);
            }
            Outlook::OtherPortal => self.all.retain(|one| one.portal != portal),
            Outlook::Never => self.all.clear(),
            Outlook::Credentials => self.all.retain_mut(|one| {
                if one.portal != portal {
                    return true;
                }
                let before = one.credentials;
                let pause = one.credentials.refused();
                let next = pause.and_then(|pause| now.checked_add(pause)).unwrap_or(now);
                one.at = next;
                if let Some(end) = self.end.filter(|end| *end < next) {
                    // A try that is moved forward to the end of the time limit does not count as one of the
                    // limited tries.
                    (one.at, one.credentials) = (end, before);
                }
                pause.is_some()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn candidates(count: usize, first: usize) -> (Candidates, Instant) {
        let now = Instant::now();
        let mut candidates = Candidates::new(Duration::from_secs(64), now);
        candidates.extend(count, PortalId(first), now);
        (candidates, now)
    }

    #[test]
    fn the_portal_of_the_lost_session_comes_first_and_new_ones_last() {
        let (mut candidates, now) = candidates(3, 1);
        candidates.extend(5, PortalId(1), now);
        assert_eq!(candidates.due(now), [1, 2, 0, 3, 4].map(PortalId));
    }

    /// LOG-18: a temporary failure never removes a portal. A failure that another try would repeat removes
    /// its portal, and a failure that every later try would repeat removes all portals.
    #[test]
    fn log_18_a_portal_is_left_only_where_another_try_ends_the_same_way() {
        let (mut candidates, now) = candidates(2, 1);
        for portal in [1, 0].repeat(100) {
            candidates.failed(PortalId(portal), Outlook::MayPass, now);
        }
        assert_eq!(candidates.due(now), [1, 0].map(PortalId));
        candidates.failed(PortalId(0), Outlook::OtherPortal, now);
        assert_eq!(candidates.due(now), [PortalId(1)]);
        candidates.extend(3, PortalId(1), now);
        assert_eq!(candidates.due(now), [1, 2].map(PortalId), "one that was left is not new");
        candidates.failed(PortalId(2), Outlook::Never, now);
        assert!(candidates.is_empty());
    }

    /// LOG-18: a wrong password is tried a few times at one portal with growing pauses, independently of the
    /// other portals.
    #[test]
    fn log_18_refused_credentials_rest_longer_and_longer() {
        let (mut candidates, mut now) = candidates(2, 0);
        candidates.failed(PortalId(1), Outlook::Credentials, now);
        assert_eq!(candidates.due(now), [PortalId(0)], "the other portal does not rest");
        candidates.failed(PortalId(0), Outlook::OtherPortal, now);
        let mut rests = Vec::new();
        while !candidates.is_empty() {
            rests.push(candidates.until_due(now).as_secs());
            now += candidates.until_due(now);
            assert_eq!(candidates.due(now), [PortalId(1)]);
            candidates.failed(PortalId(1), Outlook::Credentials, now);
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32]);
    }

    /// LOG-18: a target accepts a password between two refusals. Then the number of tries and the pauses
    /// begin again.
    #[test]
    fn log_18_credentials_that_were_accepted_are_tried_as_often_again() {
        for (outlook, expected) in [(Outlook::MayPass, 8), (Outlook::LoginAccepted, 1)] {
            let (mut candidates, mut now) = candidates(1, 0);
            for _ in 0..3 {
                candidates.failed(PortalId(0), Outlook::Credentials, now);
                now += candidates.until_due(now);
            }
            candidates.failed(PortalId(0), outlook, now);
            candidates.failed(PortalId(0), Outlook::Credentials, now);
            assert_eq!(candidates.until_due(now).as_secs(), expected, "{outlook:?}");
        }
    }
}
