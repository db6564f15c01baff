//! The states of the ports, asked for whenever there is a reason to, and followed (SPC-4 §5.11).
//!
//! One session at each portal is asked, all at once: one that does not answer holds up none of the others.

use std::collections::BTreeSet;

use iscsi_pdu::scsi::SenseKey;

use crate::error::Error;
use crate::multipath::access::Access;
use crate::multipath::access_watch::AccessAnswer;
use crate::multipath::dispatch::Paths;
use crate::multipath::event::Event;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::multipath::supervisor::Supervisor;
use crate::state::budget::Budget;

/// What the questions of one session may have under way.
const QUESTIONS: usize = 2;
const QUESTION_BYTES: usize = 1 << 21;

impl Supervisor {
    /// Where there are several portals, requests may go through another port than one that does not serve the unit.
    pub(super) fn use_all_ports(&self, paths: &Paths<Path>) {
        if self.opener.portals.len() < 2 {
            return;
        }
        paths.supervise_ports();
        if let Some(expected) = self.expected.get() {
            expected.like.state().lock().identity.transitions.add_other_ports();
        }
    }

    /// A path is there: which port it leads to is to be asked, and meanwhile it counts as the others at its portal.
    pub(super) fn follow_path(&mut self, paths: &Paths<Path>, id: PathId, path: &Path) {
        let watch = &mut self.access;
        if !watch.is_on {
            return;
        }
        let known = path.refused.or_else(|| watch.access(id, path.portal));
        if let Some(access) = known {
            paths.set_access([(id, access)]);
        }
        watch.strange.insert(id);
    }

    /// Asks for the states of the ports, where there is a reason to.
    pub(super) fn watch_access(&mut self, paths: &Paths<Path>) {
        self.access.is_called_for |= paths.take_call_for_access();
        let is_due = self.access.is_due();
        let open = paths.open();
        self.access.retain(&open);
        let mut portals = BTreeSet::new();
        let watch = &self.access;
        if !watch.is_on {
            return;
        }
        let asked: Vec<_> = open
            .into_iter()
            .filter(|(id, path)| {
                let is_first = is_due && portals.insert(path.portal);
                (is_first || watch.is_strange(*id)) && !watch.under_way.contains(id)
            })
            .collect();
        if asked.is_empty() {
            if is_due {
                self.access.postpone();
            }
            return;
        }
        let question = if is_due { self.access.ask() } else { self.access.asked };
        for (id, path) in asked {
            self.access.begin(id);
            let budget = Budget::new(QUESTIONS, QUESTION_BYTES);
            let unit = path.unit.with_questions(budget);
            let answer = async move {
                let (port, groups) = tokio::join!(unit.target_port(), unit.port_groups_now());
                Ok(AccessAnswer { question, port: port?, groups: groups? })
            };
            self.start(answer, move |answer| Event::Access(id, answer));
        }
    }

    /// A session has told the states of the ports, or has not.
    pub(super) fn heard_of_access(
        &mut self,
        paths: &Paths<Path>,
        id: PathId,
        answer: Result<AccessAnswer, Error>,
    ) {
        self.access.under_way.remove(&id);
        let open = paths.open();
        let Some((_, path)) = open.iter().find(|(there, _)| *there == id) else { return };
        match answer {
            Ok(answer) => {
                self.access.learn(id, path.portal, &answer);
                let time = answer.groups.implicit_transition_time;
                path.unit.state().lock().identity.transitions.on_report(time);
            }
            Err(error) if is_refused(&error) && !self.access.has_told => {
                self.access.is_on = false;
                paths.follow_access(false);
                paths.set_access(open.iter().map(|(id, _)| (*id, Access::UNKNOWN)));
                let note = "the unit says that it has target port groups (TPGS), and does not tell their \
                            states: each of its ports counts as any other";
                return self.report.note(format!("{note}: {error}"));
            }
            Err(error) => {
                tracing::debug!(path = id.0, %error, "a session does not tell the states of the ports");
                self.access.refused(id, &error);
                // It may not be able to, where its own port is out of use.
                self.access.is_called_for |= !error.is_of_session() && open.len() == 1;
            }
        }
        let known = open.iter().filter_map(|(id, path)| {
            self.access.access(*id, path.portal).map(|access| (*id, access))
        });
        let known: Vec<_> = known.collect();
        paths.set_access(known.iter().copied());
        let all: Vec<_> = open
            .iter()
            .filter(|(id, _)| !paths.is_silent(*id))
            .map(|(id, path)| self.access.access(*id, path.portal).unwrap_or(Access::UNKNOWN))
            .collect();
        self.access.plan(&all);
        let ranks = (0..self.opener.portals.len())
            .filter_map(|portal| Some((portal, self.access.of_portal(portal)?.rank())));
        self.opener.rank(ranks.collect());
    }
}

/// Whether the unit does not know the command.
fn is_refused(error: &Error) -> bool {
    let sense = error.sense().filter(|sense| !sense.deferred);
    sense.is_some_and(|sense| sense.key == SenseKey::IllegalRequest)
}
