//! Counters of a class.

use std::time::Duration;

/// Number and bytes of requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Volume {
    /// Number of requests.
    pub requests: u64,
    /// Bytes that the requests move.
    pub bytes: u64,
}

impl Volume {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Corrects the bytes of a request that was counted with `counted` bytes and moved `moved` bytes.
    pub(crate) fn correct(&mut self, counted: u64, moved: u64) {
        self.bytes = self.bytes.saturating_sub(counted).saturating_add(moved);
    }
}

/// Requests that have passed through a class, and through all classes below it, since the class was created.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// All requests that were granted.
    pub sent: Volume,
    /// Requests that were sent with tokens of an ancestor of the class.
    pub borrowed: Volume,
    /// Requests of classes below this class that were sent with tokens of this class.
    pub lent: Volume,
    /// Requests that were not granted immediately.
    pub waited: Volume,
    /// Total time that the requests in `waited` have waited.
    pub waiting_time: Duration,
    /// Requests that are waiting now; 0 for a class that has classes below it.
    pub waiting: usize,
}
