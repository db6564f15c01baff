//! What is known of the ports that serve the unit, and when to ask for it (SPC-4 §5.11).
//!
//! An answer names all groups, and counts for a group unless a later question has been answered already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use iscsi_pdu::scsi::TargetPortGroups;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::access::{Access, Rank};
use crate::multipath::dispatch::Paths;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::options::retry::RetryOptions;
use crate::state::unit_changes::{ChangeLog, UnitChange, UnitChanges};
use crate::unit::execute::is_refused;
use crate::unit::port_groups::TargetPort;
use crate::unit::retry::Pauses;

/// Time between two looks at the states while some ports are worse than others, or not in use: a change for the better
/// is told to those sessions alone that would gain by it.
const INTERVAL: Duration = Duration::from_secs(5);
/// The same while no port serves the unit.
const INTERVAL_IN_NEED: Duration = Duration::from_millis(200);
/// Questions that follow each other sooner have pauses between them.
const CALM: Duration = Duration::from_secs(2);

/// What is known of the ports.
#[derive(Debug)]
pub(super) struct AccessWatch {
    /// The unit has target port groups, and tells their states.
    pub(super) is_on: bool,
    pub(super) has_told: bool,
    news: UnitChanges,
    /// There is a reason to ask since the last questions were sent.
    pub(super) is_called_for: bool,
    /// Paths of which it is not known to which port they lead.
    pub(super) strange: BTreeSet<PathId>,
    /// Those that have not told it when they were asked, and when they are asked again.
    again: BTreeMap<PathId, Instant>,
    pauses_again: Pauses,
    pub(super) asked: u64,
    /// Paths that have a question to answer.
    pub(super) under_way: BTreeSet<PathId>,
    /// Not sooner: a unit that contradicts itself is not asked in a tight loop.
    not_before: Instant,
    pauses: Pauses,
    retry: RetryOptions,
    /// When the states are looked at again without another reason.
    due: Option<Instant>,
    /// The group of the port that each path leads to, and each portal.
    groups: BTreeMap<PathId, u16>,
    portals: BTreeMap<usize, u16>,
    /// What ports are that refuse even the question, whatever others tell of their groups.
    refusing: BTreeMap<PathId, Access>,
    /// The state of each group, and by which question it is known.
    states: BTreeMap<u16, (u64, Access)>,
    /// When the states changed last.
    changed: Instant,
}

/// What a session has told of the ports.
#[derive(Debug)]
pub(crate) struct AccessAnswer {
    pub(super) question: u64,
    pub(super) port: TargetPort,
    pub(super) groups: TargetPortGroups,
}

impl AccessWatch {
    /// Of a disk whose unit says whether it has target port groups; requests count on that from now on.
    pub(super) fn of(paths: &Paths<Path>, retry: RetryOptions) -> Self {
        let open = paths.open();
        let state = open.first().map(|(_, path)| path.unit.state());
        let profile = state.and_then(|state| state.profile.get());
        let is_on = profile.is_some_and(|profile| profile.target_port_group_support.is_supported());
        paths.follow_access(is_on);
        let news = state
            .map_or_else(|| ChangeLog::default().follow(), |state| state.known().changes.follow());
        Self::new(is_on, news, retry)
    }

    /// Nothing is known yet of a unit that says whether it has target port groups.
    fn new(is_on: bool, news: UnitChanges, retry: RetryOptions) -> Self {
        let now = Instant::now();
        Self {
            is_on,
            has_told: false,
            news,
            is_called_for: is_on,
            strange: BTreeSet::new(),
            again: BTreeMap::new(),
            pauses_again: Pauses::new(&retry),
            asked: 0,
            under_way: BTreeSet::new(),
            not_before: now,
            pauses: Pauses::new(&retry),
            retry,
            due: None,
            groups: BTreeMap::new(),
            portals: BTreeMap::new(),
            refusing: BTreeMap::new(),
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
        let look = look.map(|due| due.max(self.not_before));
        let again = self.again.values().copied().filter(|_| self.is_on && is_busy);
        call.into_iter().chain(look).chain(again).min()
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
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        let is_time = self.is_called_for || self.due.is_some_and(|due| due <= now);
        self.is_on && is_time && self.not_before <= now
    }

    /// Whether it is to be asked now to which port a path leads.
    pub(super) fn is_strange(&self, id: PathId) -> bool {
        let is_due = |at: &Instant| *at <= Instant::now();
        self.strange.contains(&id) || self.again.get(&id).is_some_and(is_due)
    }

    /// A path is being asked.
    pub(super) fn begin(&mut self, id: PathId) {
        self.strange.remove(&id);
        self.again.remove(&id);
        self.under_way.insert(id);
    }

    /// Questions are sent.
    pub(super) fn ask(&mut self) -> u64 {
        let now = Instant::now();
        if now.saturating_duration_since(self.not_before) >= CALM {
            self.pauses = Pauses::new(&self.retry);
        }
        self.not_before = now + self.pauses.next();
        (self.is_called_for, self.due) = (false, None);
        self.asked += 1;
        self.asked
    }

    /// There is nobody who could be asked now.
    pub(super) fn postpone(&mut self) {
        (self.is_called_for, self.due) = (true, None);
        self.not_before = Instant::now() + self.retry.max_pause;
    }

    /// A path has not told. Where its port refuses the question for its state, that state is known better there than
    /// from others: LIO takes a single port offline, and its group stays what it was. Otherwise a path that has never told
    /// to which port it leads would count as the best for good, so it is asked again, but for one that does not know the question.
    pub(super) fn refused(&mut self, id: PathId, error: &Error) {
        if let Some(access) = Access::refused(error) {
            self.refusing.insert(id, access);
        } else if !self.groups.contains_key(&id) && !is_refused(error) {
            self.again.insert(id, Instant::now() + self.pauses_again.next());
        }
    }

    /// Takes in what a path has told.
    pub(super) fn learn(&mut self, id: PathId, portal: usize, answer: &AccessAnswer) {
        self.has_told = true;
        self.refusing.remove(&id);
        if self.again.is_empty() {
            self.pauses_again = Pauses::new(&self.retry);
        }
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
    pub(super) fn access(&self, id: PathId, portal: usize) -> Option<Access> {
        if let Some(access) = self.refusing.get(&id) {
            return Some(*access);
        }
        let group = self.groups.get(&id).or_else(|| self.portals.get(&portal))?;
        self.states.get(group).map(|(_, access)| *access)
    }

    /// Forgets what is known of paths that are gone.
    pub(super) fn retain(&mut self, open: &[(PathId, Path)]) {
        let is_open = |id: &PathId| open.iter().any(|(there, _)| there == id);
        self.groups.retain(|id, _| is_open(id));
        self.refusing.retain(|id, _| is_open(id));
        self.again.retain(|id, _| is_open(id));
        self.strange.retain(is_open);
    }

    /// When to look again, by what the ports of all paths do.
    pub(super) fn plan(&mut self, all: &[Access]) {
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

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::{AccessState, Sense};

    use super::*;

    /// An answer to a question, through the port of a group, that tells one state of each of two groups.
    fn answer(question: u64, of_group: u16, states: [u8; 2]) -> AccessAnswer {
        let group = |id: u8, state: u8| [state, 0x0f, 0, id, 0, 0, 0, 1, 0, 0, 0, id];
        let groups = [group(1, states[0]), group(2, states[1])].concat();
        let data = [&[0, 0, 0, 24][..], &groups].concat();
        let groups = TargetPortGroups::decode(&data).unwrap();
        let port = TargetPort { group: Some(of_group), ..TargetPort::default() };
        AccessAnswer { question, port, groups }
    }

    fn watch() -> AccessWatch {
        AccessWatch::new(true, ChangeLog::default().follow(), RetryOptions::default())
    }

    fn state(watch: &AccessWatch, path: u32) -> Option<AccessState> {
        watch.access(PathId(path), path as usize).map(|access| access.state)
    }

    #[tokio::test]
    async fn of_each_group_the_answer_to_the_latest_question_counts() {
        let mut watch = watch();
        watch.learn(PathId(0), 0, &answer(2, 1, [0, 1]));
        watch.learn(PathId(1), 1, &answer(1, 2, [2, 0]));
        assert_eq!(state(&watch, 0), Some(AccessState::ActiveOptimized));
        assert_eq!(state(&watch, 1), Some(AccessState::ActiveNonOptimized));
        watch.learn(PathId(1), 1, &answer(3, 2, [2, 0]));
        assert_eq!(state(&watch, 0), Some(AccessState::Standby));
        assert_eq!(state(&watch, 2), None, "nobody has told where it leads");
    }

    /// SPC-4 §5.11.2.8: the offline state may be that of one port, whatever its group is.
    #[tokio::test]
    async fn a_port_that_refuses_the_question_is_known_by_that_until_it_answers() {
        let mut watch = watch();
        watch.learn(PathId(0), 0, &answer(1, 1, [0, 0]));
        let refusal = |key, asc, ascq| {
            let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
            let sense = Box::new(Sense::decode(&bytes).unwrap());
            Error::CheckCondition { command: "INQUIRY", sense }
        };
        watch.refused(PathId(0), &refusal(0x2, 0x04, 0x12));
        watch.learn(PathId(1), 1, &answer(2, 2, [0, 0]));
        assert_eq!(state(&watch, 0), Some(AccessState::Offline));
        assert_eq!(state(&watch, 1), Some(AccessState::ActiveOptimized));
        watch.refused(PathId(1), &Error::Closed);
        assert_eq!(state(&watch, 1), Some(AccessState::ActiveOptimized));
        assert!(!watch.again.contains_key(&PathId(1)), "it has told where it leads");
        watch.refused(PathId(2), &refusal(0x5, 0x20, 0x00));
        assert!(!watch.again.contains_key(&PathId(2)), "it does not know the question");
        watch.learn(PathId(0), 0, &answer(3, 1, [1, 0]));
        assert_eq!(state(&watch, 0), Some(AccessState::ActiveNonOptimized));
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_that_does_not_tell_its_port_is_asked_again_after_a_pause() {
        let mut watch = watch();
        let status = iscsi_pdu::scsi::Status::BUSY;
        let busy = Error::Status { command: "REPORT TARGET PORT GROUPS", status };
        let mut pauses = Vec::new();
        watch.ask();
        watch.strange.insert(PathId(7));
        for _ in 0..3 {
            assert!(watch.is_strange(PathId(7)));
            watch.begin(PathId(7));
            assert!(!watch.is_strange(PathId(7)));
            watch.refused(PathId(7), &busy);
            assert_eq!((watch.is_strange(PathId(7)), watch.wakes(false)), (false, None));
            let at = watch.wakes(true).unwrap();
            pauses.push((at - Instant::now()).as_millis());
            tokio::time::advance(at - Instant::now()).await;
        }
        assert_eq!(pauses, [10, 20, 40]);
        watch.begin(PathId(7));
        watch.learn(PathId(7), 1, &answer(1, 2, [0, 1]));
        assert_eq!((watch.is_strange(PathId(7)), watch.wakes(true)), (false, None));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_have_pauses_between_them_and_never_a_tight_loop() {
        let mut watch = watch();
        assert!(watch.is_due());
        watch.ask();
        assert_eq!(watch.wakes(true), None, "nothing is called for");
        watch.is_called_for = true;
        assert!(!watch.is_due());
        assert!(watch.wakes(false).is_some_and(|at| at > Instant::now()));
        watch.postpone();
        assert!(watch.wakes(false).is_some_and(|at| at > Instant::now()));
        watch.plan(&[Access::UNKNOWN; 2]);
        assert_eq!(watch.due, None);
        watch.plan(&[Access { state: AccessState::Standby, ..Access::UNKNOWN }]);
        let soon = Instant::now() + INTERVAL_IN_NEED;
        assert_eq!(watch.due, Some(soon));
        watch.is_called_for = false;
        watch.not_before = soon + INTERVAL;
        assert_eq!(watch.wakes(true), Some(watch.not_before), "not before it may ask");
    }
}
