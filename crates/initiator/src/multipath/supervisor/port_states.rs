//! Sends the queries of [`PortGroups`](iscsi_multipath::port_groups::PortGroups) to the unit, and applies the
//! results.
//!
//! If the unit reports the states of its port groups (SPC-4 §5.11.2), a path whose port does not serve the
//! unit stays open, and is used again as soon as the unit reports that the port serves it. If the unit does
//! not report the states, such a session cannot be used and is closed, and its portal is in standby: see
//! [`Topology`](iscsi_multipath::topology::Topology).

use iscsi_multipath::port_groups::{Answer, Question};
use iscsi_multipath::{Access, PathId, PortalId};

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::multipath::paths::path::Path;
use crate::multipath::paths::{Paths, now};
use crate::multipath::requests::outputs::log_access;
use crate::multipath::supervisor::Supervisor;
use crate::multipath::supervisor::access::no_answer;
use crate::multipath::supervisor::event::Event;
use crate::state::budget::Budget;

/// Limit of concurrent queries of one session.
const QUESTIONS: usize = 2;
const QUESTION_BYTES: usize = 1 << 21;

impl Supervisor {
    /// If the disk has several portals, makes requests wait while no port serves the unit, because another
    /// portal may have a port that does.
    pub(super) fn use_all_ports(&self, paths: &Paths) {
        if self.opener.portals.len() < 2 {
            return;
        }
        // The supervisor tries the other portals meanwhile.
        paths.lock().requests.set_discovers_ports(true);
        // With other ports, a check of the unit's identity does not wait for a port that changes its state.
        if let Some(expected) = self.expected.get() {
            expected.like.state().lock().identity.transitions.add_other_ports();
        }
    }

    /// Tracks the port of a path that was opened. Until its port is known, the path has the state of the
    /// other paths at its portal.
    pub(super) fn follow_path(&mut self, paths: &Paths, id: PathId, path: &Path) {
        let known = self.port_groups.path_opened(id, PortalId(path.portal));
        if let Some(access) = path.refused.or(known).filter(|_| self.port_groups.is_supported()) {
            set_access(paths, [(id, access)]);
        }
    }

    /// Queries the states of the ports, if there is a reason to.
    pub(super) fn watch_access(&mut self, paths: &Paths) {
        if paths.lock().paths.take_call_for_access() {
            self.port_groups.call();
        }
        let open = paths.open();
        self.port_groups.retain(|id| open.iter().any(|(there, _)| *there == id));
        let Some(Question { number, paths: asked }) = self.port_groups.ask(now()) else { return };
        for (id, path) in open.into_iter().filter(|(id, _)| asked.contains(id)) {
            let budget = Budget::new(QUESTIONS, QUESTION_BYTES);
            let unit = path.unit.with_questions(budget);
            let answer = async move {
                let (port, groups) = tokio::join!(unit.target_port(), unit.port_groups_now());
                let (port, groups) = (port?, groups?);
                Ok(Answer { question: number, group: port.group, port: port.relative_id, groups })
            };
            self.start(answer, move |answer| Event::Access(id, answer));
        }
    }

    /// Handles the result of a query of the states of the ports.
    pub(super) fn access_answered(
        &mut self,
        paths: &Paths,
        id: PathId,
        answer: Result<Answer, Error>,
    ) {
        let open = paths.open();
        let Some((_, path)) = open.iter().find(|(there, _)| *there == id) else { return };
        self.port_groups.retain(|id| open.iter().any(|(there, _)| *there == id));
        match answer {
            Ok(answer) => {
                self.port_groups.answered(id, &answer, now());
                let time = answer.groups.implicit_transition_time;
                path.unit.state().lock().identity.transitions.on_report(time);
            }
            Err(error) => {
                if self.port_groups.not_answered(id, no_answer(&error), now()) {
                    return self.no_port_groups(paths, &error);
                }
                tracing::debug!(path = id.0, %error, "a session does not report the states of the ports");
            }
        }
        if !self.port_groups.is_supported() {
            return;
        }
        set_access(paths, self.port_groups.known());
        let is_silent = |id| paths.lock().requests.paths().is_silent(id, now());
        self.port_groups.plan(is_silent, now());
    }

    fn no_port_groups(&self, paths: &Paths, error: &Error) {
        paths.lock().requests.set_follows_access(false);
        set_access(paths, paths.open().into_iter().map(|(id, _)| (id, Access::UNKNOWN)));
        self.report().add_note(DiskEvent::NoPortGroups { error: error.clone() });
    }
}

/// Sets the access states of the ports of these paths. Waiting requests may be sent over a path whose state
/// has changed.
fn set_access(paths: &Paths, all: impl IntoIterator<Item = (PathId, Access)>) {
    paths.change(|state| {
        let mut changed = Vec::new();
        for (id, access) in all {
            if state.requests.paths().access(id).is_some_and(|before| before != access) {
                log_access(paths.report(), id, access);
                changed.push((id, access));
            }
        }
        state.requests.set_access(changed, now());
    });
}
