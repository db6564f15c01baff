//! The portals at which a lost session is tried again, and when each has its turn.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::error::outlook::Outlook;
use crate::multipath::credential_tries::CredentialTries;

/// One portal.
#[derive(Debug)]
struct Candidate {
    portal: usize,
    credentials: CredentialTries,
    /// The next try.
    at: Instant,
}

/// The portals at which another try may be of use.
#[derive(Debug)]
pub(super) struct Candidates {
    all: Vec<Candidate>,
    /// All portals below this number have been added.
    known: usize,
    patience: Duration,
}

impl Candidates {
    /// These portals, in this order, for as long as `patience`.
    pub(super) fn new(portals: &[usize], patience: Duration) -> Self {
        let mut candidates = Self { all: Vec::new(), known: 0, patience };
        portals.iter().for_each(|portal| candidates.add(*portal));
        candidates.known = portals.len();
        candidates
    }

    fn add(&mut self, portal: usize) {
        let credentials = CredentialTries::within(self.patience);
        self.all.push(Candidate { portal, credentials, at: Instant::now() });
    }

    /// There are `count` portals now: adds the new ones.
    pub(super) fn extend(&mut self, count: usize) {
        (self.known..count).for_each(|portal| self.add(portal));
        self.known = self.known.max(count);
    }

    /// Whether another try is of no use anywhere.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The portals whose turn it is.
    pub(super) fn due(&self) -> Vec<usize> {
        let now = Instant::now();
        self.all.iter().filter(|one| one.at <= now).map(|one| one.portal).collect()
    }

    /// The time until a portal has its turn.
    pub(super) fn until_due(&self) -> Duration {
        let first = self.all.iter().map(|one| one.at).min();
        first.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    /// A try at a portal has failed.
    pub(super) fn failed(&mut self, portal: usize, error: &Error) {
        match error.outlook_of_reopening() {
            Outlook::MayPass => {}
            Outlook::OtherPortal => self.all.retain(|one| one.portal != portal),
            Outlook::Never => self.all.clear(),
            Outlook::Credentials => {
                let now = Instant::now();
                self.all.retain_mut(|one| {
                    if one.portal != portal {
                        return true;
                    }
                    let pause = one.credentials.refused();
                    one.at = pause.and_then(|pause| now.checked_add(pause)).unwrap_or(now);
                    pause.is_some()
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// LOG-18: while a target comes back, only the password and the unit itself end a portal.
    #[tokio::test(start_paused = true)]
    async fn log_18_a_portal_is_left_only_where_another_try_ends_the_same_way() {
        let mut candidates = Candidates::new(&[1, 0], Duration::from_secs(64));
        for detail in [2, 3, 4, 6].repeat(100) {
            candidates.failed(1, &Error::refused_login(2, detail));
        }
        candidates.failed(0, &Error::Closed);
        assert_eq!(candidates.due(), [1, 0]);
        let before = "serial number 1".to_owned();
        candidates.failed(0, &different(before));
        assert_eq!(candidates.due(), [1]);
        candidates.extend(3);
        assert_eq!(
            candidates.due(),
            [1, 2],
            "a portal that was left does not come back as a new one"
        );
        candidates.failed(2, &Error::CapacityChanged { before: 1, now: 2 });
        assert!(candidates.is_empty());
    }

    fn different(first: String) -> Error {
        Error::DifferentUnits {
            portal: "192.0.2.1:3260".to_owned(),
            expected: first,
            found: "serial number 2".to_owned(),
        }
    }

    /// LOG-18: a wrong password is tried a few times, each later than the last, and not with the other portals.
    #[tokio::test(start_paused = true)]
    async fn log_18_refused_credentials_rest_longer_and_longer() {
        let mut candidates = Candidates::new(&[0, 1], Duration::from_secs(64));
        candidates.failed(1, &Error::refused_login(2, 1));
        assert_eq!(candidates.due(), [0], "the other portal does not rest");
        candidates.all.retain(|one| one.portal == 1);
        let mut rests = Vec::new();
        while !candidates.is_empty() {
            rests.push(candidates.until_due().as_secs());
            advance(candidates.until_due()).await;
            assert_eq!(candidates.due(), [1]);
            candidates.failed(1, &Error::refused_login(2, 1));
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32]);
    }
}
