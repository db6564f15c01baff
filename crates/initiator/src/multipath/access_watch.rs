//! Which ports serve the unit, and how well: asked for whenever there is a reason to, and followed (SPC-4 §5.11).
//!
//! One session at each portal is asked, all at once: one that does not answer holds up none of the others. An answer
//! names all groups, and counts for a group unless a later question has been answered already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use iscsi_pdu::scsi::{SenseKey, TargetPortGroups};
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::Error;
use crate::multipath::access::{Access, Rank};
use crate::multipath::dispatch::Paths;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::multipath::supervisor::{Event, Supervisor, outcome};
use crate::options::retry::RetryOptions;
use crate::state::budget::Budget;
use crate::state::unit_changes::{UnitChange, UnitChanges};
use crate::unit::port_groups::TargetPort;
use crate::unit::retry::Pauses;

/// Time between two looks at the states while some ports are worse than others, or not in use: a change for the better
/// is told to those sessions alone that would gain by it.
const INTERVAL: Duration = Duration::from_secs(5);
/// The same while no port serves the unit.
const INTERVAL_IN_NEED: Duration = Duration::from_millis(200);
/// Questions that follow each other sooner have pauses between them.
const CALM: Duration = Duration::from_secs(2);
/// What the questions of one session may have under way.
const QUESTIONS: usize = 2;
const QUESTION_BYTES: usize = 1 << 21;

/// What is known of the ports.
#[derive(Debug)]
pub(super) struct AccessWatch {
    /// The unit has target port groups, and tells their states.
    is_on: bool,
    has_told: bool,
    news: UnitChanges,
    /// There is a reason to ask since the last questions were sent.
    is_called_for: bool,
    /// Paths of which it is not known to which port they lead.
    strange: BTreeSet<PathId>,
    asked: u64,
    /// Paths that have a question to answer.
    under_way: BTreeSet<PathId>,
    /// Not sooner: a unit that contradicts itself is not asked in a tight loop.
    not_before: Instant,
    pauses: Pauses,
    retry: RetryOptions,
    /// When the states are looked at again without another reason.
    due: Option<Instant>,
    /// The group of the port that each path leads to, and each portal.
    groups: BTreeMap<PathId, u16>,
    portals: BTreeMap<usize, u16>,
    /// The state of each group, and by which question it is known.
    states: BTreeMap<u16, (u64, Access)>,
    /// When the states changed last.
    changed: Instant,
}

/// What a session has told of the ports.
#[derive(Debug)]
pub(crate) struct AccessAnswer {
    question: u64,
    port: TargetPort,
    groups: TargetPortGroups,
}

impl AccessWatch {
    /// Nothing is known yet of a unit that says whether it has target port groups.
    pub(super) fn new(is_on: bool, news: UnitChanges, retry: RetryOptions) -> Self {
        let now = Instant::now();
        Self {
            is_on,
            has_told: false,
            news,
            is_called_for: is_on,
            strange: BTreeSet::new(),
            asked: 0,
            under_way: BTreeSet::new(),
            not_before: now,
            pauses: Pauses::new(&retry),
            retry,
            due: None,
            groups: BTreeMap::new(),
            portals: BTreeMap::new(),
            states: BTreeMap::new(),
            changed: now,
        }
    }

    /// Whether the states are known, and followed.
    pub(super) const fn is_followed(&self) -> bool {
        self.is_on && self.has_told
    }

    /// Waits until the unit says that states have changed.
    pub(super) async fn news(&mut self) {
        while let Some(change) = self.news.next().await {
            if self.is_on && change == UnitChange::AccessStates {
                self.is_called_for = true;
                return;
            }
        }
        std::future::pending().await
    }

    /// When there is something to do without an event, if ever.
    pub(super) fn wakes(&self, is_busy: bool) -> Option<Instant> {
        let call = (self.is_called_for && self.is_on).then_some(self.not_before);
        let look = self.due.filter(|_| self.is_on && is_busy);
        call.into_iter().chain(look).min()
    }

    /// How long the states have been what they are.
    pub(super) fn is_calm(&self) -> bool {
        self.changed.elapsed() >= CALM
    }

    /// What the port of a portal does for the unit, as far as is known.
    pub(super) fn of_portal(&self, portal: usize) -> Option<Access> {
        let group = self.portals.get(&portal)?;
        self.states.get(group).map(|(_, access)| *access)
    }

    /// Whether to ask now.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        let is_time = self.is_called_for || self.due.is_some_and(|due| due <= now);
        self.is_on && is_time && self.not_before <= now
    }

    /// Questions are sent.
    fn ask(&mut self) -> u64 {
        let now = Instant::now();
        if now.saturating_duration_since(self.not_before) >= CALM {
            self.pauses = Pauses::new(&self.retry);
        }
        self.not_before = now + self.pauses.next();
        (self.is_called_for, self.due) = (false, None);
        self.asked += 1;
        self.asked
    }

    /// Takes in what a path has told.
    fn learn(&mut self, id: PathId, portal: usize, answer: &AccessAnswer) {
        self.has_told = true;
        let of_port = |port| answer.groups.group_of_port(port).map(|group| group.id);
        let group = answer.port.group.or_else(|| answer.port.relative_id.and_then(of_port));
        if let Some(group) = group {
            self.groups.insert(id, group);
            self.portals.insert(portal, group);
        }
        for group in &answer.groups.groups {
            let access = Access { state: group.state, preferred: group.preferred };
            let known = self.states.get(&group.id);
            if known.is_none_or(|(question, _)| *question <= answer.question) {
                if known.is_none_or(|(_, before)| *before != access) {
                    self.changed = Instant::now();
                }
                self.states.insert(group.id, (answer.question, access));
            }
        }
    }

    /// What is known of the port of a path.
    fn access(&self, id: PathId, portal: usize) -> Option<Access> {
        let group = self.groups.get(&id).or_else(|| self.portals.get(&portal))?;
        self.states.get(group).map(|(_, access)| *access)
    }

    /// When to look again, by what the ports of all paths do.
    fn plan(&mut self, all: &[Access]) {
        let ranks: BTreeSet<Rank> = all.iter().map(|access| access.rank()).collect();
        let interval = if all.iter().any(|access| access.serves()) {
            let is_even = ranks.len() < 2 && ranks.first() <= Some(&Access::UNKNOWN.rank());
            (!is_even).then_some(INTERVAL)
        } else {
            Some(INTERVAL_IN_NEED)
        };
        self.due = interval.map(|interval| Instant::now() + interval);
    }
}

impl Supervisor {
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
        self.access.groups.retain(|id, _| open.iter().any(|(there, _)| there == id));
        let mut portals = BTreeSet::new();
        let watch = &self.access;
        let asked: Vec<_> = open
            .into_iter()
            .filter(|(id, path)| {
                let is_first = is_due && portals.insert(path.portal);
                (is_first || watch.strange.contains(id)) && !watch.under_way.contains(id)
            })
            .collect();
        if asked.is_empty() || !watch.is_on {
            return;
        }
        // What is still to be answered says nothing of what has happened since: those are asked once more.
        let is_left = is_due && !self.access.under_way.is_empty();
        let question = if is_due { self.access.ask() } else { self.access.asked };
        self.access.is_called_for |= is_left;
        for (id, path) in asked {
            self.access.strange.remove(&id);
            self.access.under_way.insert(id);
            let budget = Budget::new(QUESTIONS, QUESTION_BYTES);
            let unit = path.unit.with_questions(budget);
            let answer = async move {
                let (port, groups) = tokio::join!(unit.target_port(), unit.port_groups_now());
                Ok(AccessAnswer { question, port: port?, groups: groups? })
            };
            let answer = async move {
                Event::Access(id, outcome(answer).await.unwrap_or(Err(Error::Closed)))
            };
            self.events.spawn(answer.in_current_span());
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
                path.unit.state().transitions.learn(answer.groups.implicit_transition_time);
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
