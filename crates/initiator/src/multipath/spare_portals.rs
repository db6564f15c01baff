//! Portals without a session, and sessions on their way to others.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Time between two tries to have a session at a portal that has none.
const INTERVAL: Duration = Duration::from_secs(60);

/// When a session was tried last at each portal that has none.
#[derive(Debug, Default)]
pub(super) struct SparePortals {
    tried: BTreeMap<usize, Instant>,
    /// Sessions that are being opened there.
    pub(super) opening: u32,
    /// Sessions that move to better ports.
    pub(super) moving: u32,
}

impl SparePortals {
    /// Whether it is time to try this one.
    pub(super) fn is_due(&self, portal: usize) -> bool {
        self.tried.get(&portal).is_none_or(|tried| tried.elapsed() >= INTERVAL)
    }

    /// A session is tried there.
    pub(super) fn begin(&mut self, portal: usize) {
        self.tried.insert(portal, Instant::now());
        self.opening += 1;
    }
}
