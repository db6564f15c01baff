//! Decides when the writes of a lost session are settled.
//!
//! Writes that were in flight on a session when it was lost may still be executed, however late: their bytes
//! may wait in a network, or in a target that has stopped. Their ranges stay locked until a login has made
//! the target drop that session (RFC 7143 §6.3.5). No time limit shows that they have ended.
//!
//! Design: `docs/design/writes-in-doubt.md`.

use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::paths::path::Path;

/// A path that was lost.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    path: Path,
    at: Instant,
    /// Error that ended the session.
    why: Error,
}

impl Lost {
    /// Creates the record of a path that is lost at this moment.
    pub(super) fn new(path: Path, why: Error) -> Self {
        Self { path, at: Instant::now(), why }
    }

    pub(super) const fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn at(&self) -> Instant {
        self.at
    }

    pub(super) const fn why(&self) -> &Error {
        &self.why
    }

    /// Returns the end of the session's time limit for retries; `None` if there is no limit.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.at.checked_add(self.path.unit.session().policy().patience)
    }

    /// Settles the writes of the path, if the login that has opened `path` shows that they have ended.
    /// Returns whether all of them are settled.
    pub(super) fn settle_by(&self, path: &Path) -> bool {
        settle_by(&self.path, path)
    }
}

/// Settles the writes of a lost path, if the login that has opened `path` shows that they have ended. The
/// login shows this if it was to the same I_T nexus, which includes the portal group (RFC 7143 §4.4.3), and
/// if the target gives its sessions a TSIH. Returns whether all writes are settled.
pub(super) fn settle_by(lost: &Path, path: &Path) -> bool {
    let (old, new) = (lost.unit.session(), path.unit.session());
    let is_same_group = match (old.portal_group(), new.portal_group()) {
        (Some(old), Some(new)) => old == new,
        // If a target does not state its portal group, only the same portal counts.
        (None, None) => lost.portal == path.portal,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_same_group && old.is_reinstated_by_login() {
        old.settle();
    }
    old.is_settled()
}
