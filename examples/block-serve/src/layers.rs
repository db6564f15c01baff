//! Stacks the layers between the clients and the unit.

use std::sync::Arc;

use iscsi_examples_common::place::Opened;
use iscsi_initiator::device::Device;

use crate::cache::{Cache, CacheStats};
use crate::write_behind::WriteBehind;

/// A unit or a volume, with a cache and a write-behind window in front of it: the unit receives the writes in
/// the window after they were answered. Each [client](Self::client) has a separate handle, so that a loss is
/// reported to each of them.
#[derive(Debug)]
pub struct Layers {
    opened: Opened,
    cache: Option<Cache>,
    behind: Option<WriteBehind>,
}

impl Layers {
    /// Puts a cache of `memory` bytes, and a write-behind window of `window` bytes, in front of a device. With 0
    /// there is no cache or no window.
    #[must_use]
    pub fn new(opened: impl Into<Opened>, window: u32, memory: u64) -> Self {
        let opened = opened.into();
        let cache = (memory > 0).then(|| Cache::new(opened.handle(), memory));
        let mut layers = Self { opened, cache, behind: None };
        layers.behind = (window > 0).then(|| WriteBehind::new(layers.cached(), window));
        layers
    }

    /// Returns a handle for one more client.
    #[must_use]
    pub fn client(&self) -> Arc<dyn Device> {
        match &self.behind {
            Some(behind) => Arc::new(behind.handle(self.cached())),
            None => self.cached(),
        }
    }

    fn cached(&self) -> Arc<dyn Device> {
        let unit = self.opened.handle();
        match &self.cache {
            Some(cache) => Arc::new(cache.handle(unit)),
            None => unit,
        }
    }

    /// Returns the unit or volume that is served.
    #[must_use]
    pub const fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Returns the statistics of the cache, if there is one.
    #[must_use]
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.cache.as_ref().map(Cache::stats)
    }

    /// Returns the number of bytes whose writes were answered and are not on the unit yet.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.behind.as_ref().map_or(0, WriteBehind::pending_bytes)
    }

    /// Returns the number of changes that have failed after they were answered, since the start.
    #[must_use]
    pub fn failed_changes(&self) -> u64 {
        self.behind.as_ref().map_or(0, WriteBehind::failed_changes)
    }
}
