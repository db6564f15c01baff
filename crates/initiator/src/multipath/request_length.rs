//! How long a request had better be.

use crate::multipath::paths::{Paths, now};

impl Paths {
    /// How long a write had better be, bytes: where paths differ, as the best of them takes it.
    pub(crate) fn max_request_len(&self) -> u64 {
        let state = self.lock();
        let of_paths = state.paths.open().iter().map(|(_, carrier)| carrier.longest_write());
        let longest = of_paths.max().unwrap_or(u64::MAX);
        longest.min(state.requests.paths().max_request_len(now))
    }

    /// How long a read had better be, bytes: where paths differ, as the best of them brings it.
    pub(crate) fn max_read_len(&self) -> u64 {
        let state = self.lock();
        let of_paths = state.paths.open().iter().map(|(_, carrier)| carrier.longest_read());
        of_paths.max().unwrap_or(u64::MAX)
    }
}
