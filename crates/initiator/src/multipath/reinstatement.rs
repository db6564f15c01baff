//! What a lost session has left at the target, and what proves that it is past.
//!
//! What a session was writing when it was lost may still be carried out, however late: its bytes may wait
//! in a network, or in a target that has stopped. Its ranges stay taken until a login has made the target
//! drop that session (RFC 7143 §6.3.5). No time proves it.
//!
//! Why it is so: `docs/design/writes-in-doubt.md`.

use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::path::Path;

/// A path that was lost.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    path: Path,
    at: Instant,
    /// What ended it.
    why: Error,
}

impl Lost {
    /// A path that is lost now.
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

    /// Until when it is worth a try to settle it.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.at.checked_add(self.path.unit.session().policy().patience)
    }

    /// Settles what was left, if the login that has opened `path` proves it. Says whether all is settled now.
    pub(super) fn settle_by(&self, path: &Path) -> bool {
        settle_by(&self.path, path)
    }
}

/// Settles what a lost path has left, if the login that has opened `path` proves it: it was to the same I_T nexus,
/// of which the portal group is a part (RFC 7143 §4.4.3), and the target gives its sessions a TSIH.
/// Says whether all is settled now.
pub(super) fn settle_by(lost: &Path, path: &Path) -> bool {
    let (old, new) = (lost.unit.session(), path.unit.session());
    let is_same_group = match (old.portal_group(), new.portal_group()) {
        (Some(old), Some(new)) => old == new,
        // A target that does not state it can be taken at its address only.
        (None, None) => lost.portal == path.portal,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_same_group && old.is_reinstated_by_login() {
        old.settle();
    }
    old.is_settled()
}
