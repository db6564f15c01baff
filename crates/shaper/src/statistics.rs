//! What is counted of a class.

use std::time::Duration;

/// Requests, and their bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Volume {
    /// How many requests.
    pub requests: u64,
    /// How many bytes they move.
    pub bytes: u64,
}

impl Volume {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// So many bytes were counted where so many were moved.
    pub(crate) fn correct(&mut self, counted: u64, moved: u64) {
        self.bytes = self.bytes.saturating_sub(counted).saturating_add(moved);
    }
}

/// What has passed through a class, and through all below it, since it was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// All that was granted.
    pub sent: Volume,
    /// What of it was borrowed from a class above.
    pub borrowed: Volume,
    /// What the class has lent to those below it.
    pub lent: Volume,
    /// Requests that were not granted immediately.
    pub waited: Volume,
    /// How long that waited, in sum over the requests.
    pub waiting_time: Duration,
    /// Requests that wait now; of a class that has others below it, none.
    pub waiting: usize,
}
