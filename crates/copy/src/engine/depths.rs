//! Limits the number of requests in flight.

use std::ops::{Add, Sub};

/// The length of requests that count as short, bytes.
const SHORT: usize = 4096;

/// The number of requests that a device should have in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// Number of requests of the usual length.
    requests: usize,
    /// Largest number of requests of any length, if their bytes in total are no more than those of `requests`
    /// requests of the usual length. More short requests may be in flight, because a long link is filled by
    /// bytes, not by requests.
    most: usize,
}

/// The load of requests that are in flight or waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Number of requests.
    pub(super) count: usize,
    /// Total bytes of the requests.
    pub(super) bytes: u64,
}

impl Load {
    pub(super) const NONE: Self = Self { count: 0, bytes: 0 };
}

impl Add for Load {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { count: self.count + more.count, bytes: self.bytes + more.bytes }
    }
}

impl Sub for Load {
    type Output = Self;

    fn sub(self, less: Self) -> Self {
        Self { count: self.count - less.count, bytes: self.bytes - less.bytes }
    }
}

impl Depth {
    pub(super) const ONE: Self = Self { requests: 1, most: 1 };

    /// Creates the depth of a fixed number of requests of any length.
    pub(super) const fn fixed(requests: usize) -> Self {
        Self { requests, most: requests }
    }

    /// Creates the depth from `depth_for`, which returns a device's queue depth for a request length.
    pub(super) fn of(io_size: usize, depth_for: impl Fn(usize) -> usize) -> Self {
        let requests = depth_for(io_size);
        Self { requests, most: depth_for(SHORT.min(io_size)).max(requests) }
    }

    /// Returns the number of requests of the usual length.
    pub(super) const fn requests(self) -> usize {
        self.requests
    }

    /// Returns the sum of the depths of two devices, at least `least` requests.
    pub(super) fn and(self, other: Self, least: usize) -> Self {
        Self {
            requests: (self.requests + other.requests).max(least),
            most: (self.most + other.most).max(least),
        }
    }

    /// Returns whether `more` may begin beside the requests in flight. `io_size` is the usual length of a
    /// request, bytes.
    pub(super) fn takes(self, more: Load, under_way: Load, io_size: usize) -> bool {
        let count = under_way.count.saturating_add(more.count);
        let bytes = under_way.bytes.saturating_add(more.bytes);
        let all = (self.requests as u64).saturating_mul(io_size as u64);
        count <= self.requests || count <= self.most && bytes <= all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(count: usize, bytes: u64) -> Load {
        Load { count, bytes }
    }

    #[test]
    fn short_requests_count_by_their_bytes() {
        let depth = Depth::of(1 << 20, |len| if len == 4096 { 100 } else { 4 });
        let short = load(1, 4096);
        assert!(depth.takes(load(1, 1 << 20), load(3, 3 << 20), 1 << 20));
        assert!(!depth.takes(load(1, 1 << 20), load(4, 4 << 20), 1 << 20));
        assert!(!depth.takes(short, load(4, 4 << 20), 1 << 20), "the bytes are under way");
        assert!(depth.takes(short, load(4, 4 * 4096), 1 << 20));
        assert!(depth.takes(short, load(99, 99 * 4096), 1 << 20));
        assert!(!depth.takes(short, load(100, 100 * 4096), 1 << 20), "there are no more of them");
    }

    #[test]
    fn a_fixed_depth_is_one_of_requests() {
        let depth = Depth::fixed(4);
        assert!(depth.takes(load(1, 512), load(3, 1 << 30), 1 << 20));
        assert!(!depth.takes(load(1, 512), load(4, 2048), 1 << 20));
    }
}
