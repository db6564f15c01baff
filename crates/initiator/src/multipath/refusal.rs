//! What the ports of the paths do for the unit, and requests that one has refused for its state (SPC-4 §5.11.2).
//!
//! Where the unit tells of its target port groups, such a path stays open, and is used again as soon as the unit
//! says that its port serves it. Where it does not, the session is of no use and gives way, and its portal is in standby: see
//! [`Topology`](iscsi_multipath::topology::Topology).

use iscsi_multipath::Access;

use crate::multipath::paths::{Paths, now};
use iscsi_multipath::PathId;

impl Paths {
    /// The unit tells of its target port groups, and somebody asks for them whenever a port refuses a request; or
    /// it does not any more.
    pub(crate) fn follow_access(&self, follows: bool) {
        self.lock().requests.set_follows_access(follows);
    }

    /// Somebody looks for other ports from now on where none serves the unit: meanwhile requests wait.
    pub(crate) fn supervise_ports(&self) {
        self.lock().requests.set_looks_for_ports(true);
    }

    /// Whether a port has refused a request since the last call.
    pub(crate) fn take_call_for_access(&self) -> bool {
        self.lock().paths.take_call_for_access()
    }

    /// What the ports of these paths do for the unit. Requests that pause may be taken by one that has changed.
    pub(super) fn set_access(&self, all: impl IntoIterator<Item = (PathId, Access)>) {
        self.change(|state| {
            let mut changed = Vec::new();
            for (id, access) in all {
                if state.requests.paths().access(id).is_some_and(|before| before != access) {
                    self.log_access(id, access);
                    changed.push((id, access));
                }
            }
            state.requests.set_access(changed, now());
        });
    }

    pub(super) fn log_access(&self, path: PathId, access: Access) {
        let state = access.state;
        self.report().log(|| tracing::info!(path = path.0, %state, "a port has another state"));
    }

    /// Whether a request has called for another port since the last call.
    pub(crate) fn take_call_for_port(&self) -> bool {
        self.lock().paths.take_call_for_port()
    }
}
