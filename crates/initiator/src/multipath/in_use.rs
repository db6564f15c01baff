//! The paths that requests go to.

use iscsi_multipath::topology::{Session, SessionState};
use iscsi_multipath::{PathId, PortalId};

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, now};
use crate::multipath::path::Path;

impl<C: Carrier> Paths<C> {
    /// The best that there are, but for those that are being let go.
    pub(crate) fn in_use(&self) -> Vec<(PathId, C)> {
        let (state, now) = (self.lock(), now());
        let (open, in_use) = (state.paths.open().iter(), state.requests.paths().in_use(now));
        open.filter(|(id, _)| in_use.binary_search(id).is_ok()).cloned().collect()
    }
}

impl Paths<Path> {
    /// What each open session does; the ports of some have refused requests.
    pub(super) fn sessions(&self, not_served: &[(PathId, Error)]) -> Vec<Session> {
        let (state, now) = (self.lock(), now());
        // A disk may have 1,024 sessions: each is looked up in lists that are in order.
        let (in_use, closing) =
            (state.requests.paths().in_use(now), state.requests.paths().closing());
        let session = |(path, it): &(PathId, Path)| {
            let portal = PortalId(it.portal);
            let state = if not_served.iter().any(|(id, _)| id == path) {
                SessionState::NotServed
            } else if closing.binary_search(path).is_ok() {
                SessionState::Closing
            } else if in_use.binary_search(path).is_ok() {
                SessionState::InUse
            } else {
                SessionState::Working
            };
            Session { path: *path, portal, state }
        };
        state.paths.open().iter().map(session).collect()
    }
}
