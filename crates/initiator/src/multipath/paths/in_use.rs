//! Lists the paths of a disk: those that take requests, and the state of each open path.

use iscsi_multipath::topology::{Session, SessionState};
use iscsi_multipath::{Access, PathId, PortalId};

use crate::error::Error;
use crate::multipath::paths::path::Path;
use crate::multipath::paths::status::{PathState, PathStatus};
use crate::multipath::paths::{Paths, now};

impl Paths {
    /// Returns the open paths that requests are sent to.
    pub(crate) fn in_use(&self) -> Vec<(PathId, Path)> {
        let (state, now) = (self.lock(), now());
        let (open, in_use) = (state.paths.open().iter(), state.requests.paths().in_use(now));
        open.filter(|(id, _)| in_use.binary_search(id).is_ok()).cloned().collect()
    }

    /// Returns the state of each open session. `not_served` lists paths whose port has refused requests.
    pub(crate) fn sessions(&self, not_served: &[(PathId, Error)]) -> Vec<Session> {
        let (state, now) = (self.lock(), now());
        // A disk may have 1,024 sessions, so each lookup searches a sorted list.
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

    /// Returns the state of each open path, in the order in which the paths were opened.
    pub(crate) fn statuses(&self) -> Vec<PathStatus> {
        let (state, now) = (self.lock(), now());
        let selector = state.requests.paths();
        let (in_use, closing) = (selector.in_use(now), selector.closing());
        let state_of = |id: PathId| {
            if closing.binary_search(&id).is_ok() {
                PathState::Draining
            } else if selector.is_silent(id, now) {
                PathState::Silent
            } else if in_use.binary_search(&id).is_err() {
                PathState::Standby
            } else if selector.is_held_up(id, now) {
                PathState::Busy
            } else {
                PathState::Open
            }
        };
        let read = |((id, path), in_flight): (&(PathId, Path), (u64, u64))| {
            (path.clone(), state_of(*id), selector.access(*id), in_flight)
        };
        let read: Vec<_> =
            state.paths.open().iter().zip(state.paths.in_flight()).map(read).collect();
        drop(state);
        let status = |(path, state, access, in_flight): (Path, _, Option<Access>, _)| {
            let (portal, key) = path.place();
            let link = path.unit.session().of_plan(|plan| plan.link);
            let (requests_in_flight, bytes_in_flight) = in_flight;
            PathStatus {
                portal,
                key,
                state,
                access: access.map(|access| access.state),
                round_trip: link.and_then(|link| link.rtt.map(|_| link.round_trip())),
                requests_in_flight,
                bytes_in_flight,
            }
        };
        read.into_iter().map(status).collect()
    }
}
