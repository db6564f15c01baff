//! What a cache has done.

/// Bytes since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Asked for by reads that the cache serves.
    pub asked: u64,
    /// Bytes of these that were in memory when they were requested.
    pub found: u64,
    /// Read before they were asked for.
    pub read_ahead: u64,
    /// Bytes of reads that are too long to be cached.
    pub passed_by: u64,
}

impl CacheStats {
    /// The share of the bytes that were in memory, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of some digits")]
    pub fn hit_rate(&self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.found as f64 / self.asked as f64 }
    }
}
