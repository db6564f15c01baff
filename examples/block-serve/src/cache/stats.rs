//! Statistics of a cache.

/// Statistics of a cache. All numbers count bytes since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes requested by reads that the cache serves.
    pub asked: u64,
    /// Bytes in memory when reads requested them; a part of `asked`.
    pub found: u64,
    /// Bytes that were read ahead of a request.
    pub read_ahead: u64,
    /// Bytes of reads that bypassed the cache, because they are too long.
    pub passed_by: u64,
}

impl CacheStats {
    /// Returns the share of the requested bytes that were in memory, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of some digits")]
    pub fn hit_rate(&self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.found as f64 / self.asked as f64 }
    }
}
