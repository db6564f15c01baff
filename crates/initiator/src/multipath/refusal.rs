//! What the ports of the paths do for the unit, and requests that one has refused for its state (SPC-4 §5.11.2).
//!
//! Where the unit tells of its target port groups, such a path stays open, and is used again as soon as the unit
//! says that its port serves it. Where it does not, the session is of no use and gives way, and its portal is in standby: see
//! [`Topology`](iscsi_multipath::topology::Topology).

use iscsi_multipath::Access;

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, now};
use iscsi_multipath::PathId;

impl<C: Carrier> Paths<C> {
    /// The unit tells of its target port groups, and somebody asks for them whenever a port refuses a request; or
    /// it does not any more.
    pub(crate) fn follow_access(&self, follows: bool) {
        self.lock().paths.follow_access(follows);
    }

    /// Somebody looks for other ports from now on where none serves the unit: meanwhile requests wait.
    pub(crate) fn supervise_ports(&self) {
        self.lock().paths.supervise_ports();
    }

    /// Whether a port has refused a request since the last call.
    pub(crate) fn take_call_for_access(&self) -> bool {
        self.lock().paths.take_call_for_access()
    }

    /// What the ports of these paths do for the unit. Those who wait for a port that serves it are told.
    pub(super) fn set_access(&self, all: impl IntoIterator<Item = (PathId, Access)>) {
        let mut state = self.lock();
        let mut is_news = false;
        for (id, access) in all {
            if state.selector.set_access(id, access) {
                is_news = true;
                let state = access.state;
                let log = || tracing::info!(path = id.0, %state, "a port has another state");
                self.report().log(log);
            }
        }
        if is_news {
            state.access_changes += 1;
            self.dispatch(&mut state, now());
            drop(state);
            self.access_news().notify_waiters();
        }
    }

    /// How often a port was found in another state.
    pub(super) fn access_changes(&self) -> u64 {
        self.lock().access_changes
    }

    /// Waits until that was more often than this.
    pub(super) async fn access_changes_beyond(&self, seen: u64) {
        loop {
            // What is found from here on is noticed.
            let news = self.access_news().notified();
            if self.access_changes() > seen {
                return;
            }
            news.await;
        }
    }

    /// A path is not served by the unit: others take its requests. Says whether there are any.
    pub(super) fn set_aside(&self, id: PathId, error: &Error) -> bool {
        let mut state = self.lock();
        if state.selector.is_last(id) {
            return false;
        }
        if !state.selector.is_closing(id) {
            self.report().log(|| tracing::debug!(path = id.0, %error, "a session is of no use"));
            state.selector.close(id);
            state.paths.set_aside(id, error);
            self.attention().notify_one();
        }
        true
    }

    /// Whether a request has called for another port since the last call.
    pub(crate) fn take_call_for_port(&self) -> bool {
        self.lock().paths.take_call_for_port()
    }
}
