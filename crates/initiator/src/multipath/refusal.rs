//! What the ports of the paths do for the unit, and requests that one has refused for its state (SPC-4 §5.11.2).
//!
//! Where the unit tells of its target port groups, such a path stays open, and is used again as soon as the unit
//! says that its port serves it. Where it does not, the session is of no use and gives way, and its portal is in standby: see
//! [`Topology`](iscsi_multipath::topology::Topology).

use std::time::Duration;

use iscsi_multipath::Access;

use crate::error::Error;
use crate::multipath::access::{refused, suspected};
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, now};
use crate::multipath::lane::PathId;
use crate::unit::retry::endurance;

impl<C: Carrier> Paths<C> {
    /// The unit tells of its target port groups, and somebody asks for them whenever a port refuses a request; or
    /// it does not any more.
    pub(crate) fn follow_access(&self, follows: bool) {
        self.lock().paths.follow_access(follows);
    }

    /// Takes in how a request has ended over a path; `is_plain` if any disk knows the command. Says whether its port has
    /// refused it, and the unit is asked for the states of all by that.
    pub(super) fn is_refused_by_port(&self, path: PathId, error: &Error, is_plain: bool) -> bool {
        let suspected = || suspected(error).filter(|_| is_plain && self.others_serve(path));
        let Some(access) = refused(error).or_else(suspected) else { return false };
        if !self.lock().paths.call_for_access() {
            return false;
        }
        self.set_access([(path, access)]);
        self.attention().notify_one();
        true
    }

    /// Whether the unit is served over another path than this one, which answers.
    pub(super) fn others_serve(&self, path: PathId) -> bool {
        self.lock().schedule.others_serve(path, now())
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
            if state.schedule.set_access(id, access) {
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
        if state.schedule.is_last(id) {
            return false;
        }
        if !state.schedule.is_closing(id) {
            self.report().log(|| tracing::debug!(path = id.0, %error, "a session is of no use"));
            state.schedule.close(id);
            state.paths.set_aside(id, error);
            self.attention().notify_one();
        }
        true
    }

    /// For how long a request is sent again that has ended so on a path, if it is: also where no path
    /// serves the unit, while the ports of other portals may.
    pub(super) fn endurance(&self, path: PathId, error: &Error) -> Option<Duration> {
        let policy = self.policy();
        let passes = endurance(error, policy);
        passes.or_else(|| {
            let is_of_port = error.is_of_path() || refused(error).is_some();
            let is_called_for = is_of_port && self.call_for_port(path);
            is_called_for.then_some(policy.patience)
        })
    }

    /// No path but this one takes requests, and it does not serve the unit. Says whether others are looked
    /// for.
    fn call_for_port(&self, path: PathId) -> bool {
        let mut state = self.lock();
        let follows = state.paths.follows_access();
        let is_last =
            state.schedule.is_last(path) || follows && !state.schedule.others_serve(path, now());
        let is_heard = is_last && state.paths.call_for_port();
        drop(state);
        if is_heard {
            self.attention().notify_one();
        }
        is_heard
    }

    /// Whether a request has called for another port since the last call.
    pub(crate) fn take_call_for_port(&self) -> bool {
        self.lock().paths.take_call_for_port()
    }
}
