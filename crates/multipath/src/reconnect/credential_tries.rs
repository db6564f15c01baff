//! Limits login tries whose credentials are refused.

use std::time::Duration;

use crate::reconnect::back_off::BackOff;

/// Number of consecutive tries with refused credentials, including the first one.
const TRIES: u32 = 7;
/// The first pause is the retry timeout divided by this number. Each pause is twice the previous one, so all
/// tries fit into the retry timeout.
const FIRST_PAUSE_PART: u32 = 64;
/// Maximum total time of the tries with refused credentials, also if the retry timeout is longer.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// The tries of one login whose credentials are refused.
///
/// A target that is starting may accept connections before it has read its accounts, so a refusal may be
/// temporary. But each try may count towards locking the account, so there are few tries, spread over the
/// retry timeout.
#[derive(Clone, Copy, Debug)]
pub struct CredentialTries {
    pauses: BackOff,
    left: u32,
}

impl CredentialTries {
    /// Creates the tries for a caller that waits for `retry_timeout`.
    #[must_use]
    pub fn within(retry_timeout: Duration) -> Self {
        let first = retry_timeout.min(MAX_WAIT) / FIRST_PAUSE_PART;
        Self { pauses: BackOff::new(first, MAX_WAIT), left: TRIES - 1 }
    }

    /// Counts one more refusal. Returns the pause before the next try, or `None` after the last try.
    pub fn refused(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        Some(self.pauses.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(retry_timeout: Duration) -> Vec<Duration> {
        let mut tries = CredentialTries::within(retry_timeout);
        std::iter::from_fn(|| tries.refused()).collect()
    }

    #[test]
    fn few_tries_are_spread_over_the_time_that_is_waited() {
        let all = pauses(Duration::from_secs(64));
        assert_eq!(all, [1, 2, 4, 8, 16, 32].map(Duration::from_secs));
        let total: Duration = pauses(Duration::MAX).iter().sum();
        assert!(total <= MAX_WAIT, "{total:?}");
        assert_eq!(pauses(Duration::ZERO), [Duration::ZERO; 6]);
    }
}
