//! What is known of the ports that serve the unit, and when to ask for it (SPC-4 §5.11).
//!
//! An answer names all groups, and counts for a group unless a later question has been answered already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use iscsi_pdu::scsi::TargetPortGroups;
use tokio::time::Instant;

use crate::multipath::access::{Access, Rank};
use crate::multipath::dispatch::Paths;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::options::retry::RetryOptions;
use crate::state::unit_changes::{ChangeLog, UnitChange, UnitChanges};
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
    pub(super) groups: BTreeMap<PathId, u16>,
    portals: BTreeMap<usize, u16>,
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
        let news =
            state.map_or_else(|| ChangeLog::default().follow(), |state| state.changes.follow());
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
        let look = look.map(|due| due.max(self.not_before));
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
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        let is_time = self.is_called_for || self.due.is_some_and(|due| due <= now);
        self.is_on && is_time && self.not_before <= now
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

    /// Takes in what a path has told.
    pub(super) fn learn(&mut self, id: PathId, portal: usize, answer: &AccessAnswer) {
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
    pub(super) fn access(&self, id: PathId, portal: usize) -> Option<Access> {
        let group = self.groups.get(&id).or_else(|| self.portals.get(&portal))?;
        self.states.get(group).map(|(_, access)| *access)
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
