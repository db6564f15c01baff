//! The questions that [`PortGroups`](iscsi_multipath::port_groups::PortGroups) has for the unit, and what follows from the answers.

use iscsi_multipath::port_groups::{Answer, Question};
use iscsi_multipath::{Access, PathId, PortalId};

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::multipath::access::no_answer;
use crate::multipath::event::Event;
use crate::multipath::path::Path;
use crate::multipath::paths::{Paths, now};
use crate::multipath::supervisor::Supervisor;
use crate::state::budget::Budget;

/// What the questions of one session may have in flight.
const QUESTIONS: usize = 2;
const QUESTION_BYTES: usize = 1 << 21;

impl Supervisor {
    /// Where there are several portals, requests may go through another port than one that does not serve the unit.
    pub(super) fn use_all_ports(&self, paths: &Paths) {
        if self.opener.portals.len() < 2 {
            return;
        }
        paths.supervise_ports();
        if let Some(expected) = self.expected.get() {
            expected.like.state().lock().identity.transitions.add_other_ports();
        }
    }

    /// A path is there: which port it leads to is unknown, and meanwhile it counts as the others at its portal.
    pub(super) fn follow_path(&mut self, paths: &Paths, id: PathId, path: &Path) {
        let known = self.port_groups.path_opened(id, PortalId(path.portal));
        if let Some(access) = path.refused.or(known).filter(|_| self.port_groups.is_supported()) {
            paths.set_access([(id, access)]);
        }
    }

    /// Asks for the states of the ports, where there is a reason to.
    pub(super) fn watch_access(&mut self, paths: &Paths) {
        if paths.take_call_for_access() {
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

    /// A session has reported the states of the ports, or has not.
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
        paths.set_access(self.port_groups.known());
        self.port_groups.plan(|id| paths.is_silent(id), now());
    }

    fn no_port_groups(&self, paths: &Paths, error: &Error) {
        paths.follow_access(false);
        paths.set_access(paths.open().into_iter().map(|(id, _)| (id, Access::UNKNOWN)));
        self.report().note(DiskEvent::NoPortGroups { error: error.clone() });
    }
}
