//! States of the unit's target port groups, and the questions for them (SPC-4 §5.11).
//!
//! Requests go to the best ports and to no others, by the asymmetric access states of REPORT TARGET PORT
//! GROUPS: active/optimized first, and preferred ports first among equals. The states are asked for when the
//! unit reports a change, when a port refuses a request, and every five seconds while ports differ. One session
//! at each portal is asked, all concurrently, so a session that does not answer delays no other. An answer
//! lists all groups, and counts for a group unless a later question has been answered already.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use iscsi_pdu::scsi::TargetPortGroups;

use crate::access::{Access, Priority};
use crate::ids::{PathId, PortalId};
use crate::reconnect::BackOff;

/// Time between two questions while some ports are worse than others, or not in use. A unit reports a change
/// for the better only to the sessions that gain by it.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time between two questions while no port serves the unit.
const INTERVAL_IN_NEED: Duration = Duration::from_millis(200);
/// States that have not changed for this time are calm. Questions with less time between them have pauses,
/// which grow.
const CALM: Duration = Duration::from_secs(2);

/// Support of the unit for target port groups.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Support {
    None,
    /// The unit claims target port groups (TPGS), and has reported no states yet.
    Claimed,
    Reported,
}

/// State of one path.
#[derive(Debug)]
struct PathRecord {
    portal: PortalId,
    group: Option<u16>,
    /// The state of a port that refuses even the question. It counts, whatever other ports report of its group.
    refusing: Option<Access>,
    asking: Asking,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asking {
    /// The path was never asked, so its group is unknown.
    Due,
    InFlight,
    Answered,
    /// The path has not answered, and is asked again at this time.
    Again(Instant),
}

/// A question for the states of all groups, and for the group of the port that answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the question; it grows with each question.
    pub number: u64,
    /// The paths to send it over.
    pub paths: Vec<PathId>,
}

/// The answer over one path.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The number of the question.
    pub question: u64,
    /// The group of the port, if the unit reports it (VPD page 83h).
    pub group: Option<u16>,
    /// The relative target port identifier, if the unit reports it.
    pub port: Option<u16>,
    /// The states of all groups.
    pub groups: TargetPortGroups,
}

/// Reasons why a path has not answered a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoAnswer {
    /// The unit does not know the command.
    Unknown,
    /// The port refuses the command because of its state.
    Refused(Access),
    /// The session has ended.
    SessionEnded,
    /// Anything else, which may be temporary.
    MayPass,
}

/// The states of the ports of a unit, and the questions for them.
#[derive(Debug)]
pub struct PortGroups {
    support: Support,
    paths: BTreeMap<PathId, PathRecord>,
    /// For each portal, the group that the latest session there has found.
    portals: BTreeMap<PortalId, u16>,
    /// The state of each group, and the question that it answers.
    states: BTreeMap<u16, (u64, Access)>,
    /// When the states changed last.
    changed: Instant,
    question: u64,
    /// Whether there has been a reason to ask since the last question.
    is_called_for: bool,
    /// When to ask for the states without another reason.
    due: Option<Instant>,
    /// Earliest time of the next question, so that a unit that contradicts itself is not asked in a tight loop.
    not_before: Instant,
    back_off: BackOff,
    pauses: BackOff,
    pauses_again: BackOff,
}

impl PortGroups {
    /// Creates the state of a unit of which nothing is known except whether it claims to have target port
    /// groups.
    #[must_use]
    pub const fn new(is_claimed: bool, back_off: BackOff, now: Instant) -> Self {
        Self {
            support: if is_claimed { Support::Claimed } else { Support::None },
            paths: BTreeMap::new(),
            portals: BTreeMap::new(),
            states: BTreeMap::new(),
            changed: now,
            question: 0,
            is_called_for: is_claimed,
            due: None,
            not_before: now,
            back_off,
            pauses: back_off,
            pauses_again: back_off,
        }
    }

    /// Returns whether the unit has target port groups, as far as is known.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.support != Support::None
    }

    /// Returns whether the unit has reported states.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.support == Support::Reported
    }

    /// Returns when the states will have been unchanged for long enough that sessions may move.
    #[must_use]
    pub fn calm_at(&self) -> Instant {
        self.changed + CALM
    }

    /// Adds a path, and returns its state. Until its port is known, this is the state of the portal.
    pub fn path_opened(&mut self, path: PathId, portal: PortalId) -> Option<Access> {
        let record = PathRecord { portal, group: None, refusing: None, asking: Asking::Due };
        self.paths.insert(path, record);
        self.access(path)
    }

    /// Removes all paths that are not open.
    pub fn retain(&mut self, is_open: impl Fn(PathId) -> bool) {
        self.paths.retain(|path, _| is_open(*path));
    }

    /// Requests a question as soon as a pause allows it: the unit has reported a change, or a port has refused
    /// a request.
    pub const fn call(&mut self) {
        self.is_called_for = true;
    }

    /// Returns the known state of the port of a path.
    #[must_use]
    pub fn access(&self, path: PathId) -> Option<Access> {
        let record = self.paths.get(&path)?;
        if record.refusing.is_some() {
            return record.refusing;
        }
        let group = record.group.as_ref().or_else(|| self.portals.get(&record.portal))?;
        self.states.get(group).map(|(_, access)| *access)
    }

    /// Returns the known state of the port that a portal leads to.
    #[must_use]
    pub fn access_of_portal(&self, portal: PortalId) -> Option<Access> {
        let group = self.portals.get(&portal)?;
        self.states.get(group).map(|(_, access)| *access)
    }

    /// Returns all paths with a known state.
    #[must_use]
    pub fn known(&self) -> Vec<(PathId, Access)> {
        let all = self.paths.keys();
        all.filter_map(|path| Some((*path, self.access(*path)?))).collect()
    }

    /// Returns when to call [`ask`](Self::ask) without another reason. If the disk is not busy, only
    /// [`call`](Self::call) wakes it.
    #[must_use]
    pub fn poll_timeout(&self, is_busy: bool) -> Option<Instant> {
        if !self.is_supported() {
            return None;
        }
        let call = self.is_called_for.then_some(self.not_before);
        let due = self.due.filter(|_| is_busy).map(|due| due.max(self.not_before));
        let again = self.paths.values().filter_map(|record| match record.asking {
            Asking::Again(at) if is_busy => Some(at),
            Asking::Again(_) | Asking::Due | Asking::InFlight | Asking::Answered => None,
        });
        call.into_iter().chain(due).chain(again).min()
    }

    /// Returns the question that is due, if there is one. Its paths are the oldest one at each portal, if there
    /// is a reason to ask for all states, and each one whose port is unknown.
    pub fn ask(&mut self, now: Instant) -> Option<Question> {
        if !self.is_supported() {
            return None;
        }
        let is_time = self.is_called_for || self.due.is_some_and(|due| due <= now);
        let is_due = is_time && self.not_before <= now;
        let mut portals = BTreeSet::new();
        let asked = self.paths.iter().filter(|(_, record)| {
            let is_first = is_due && portals.insert(record.portal);
            match record.asking {
                Asking::Due => true,
                Asking::InFlight => false,
                Asking::Answered => is_first,
                Asking::Again(at) => is_first || at <= now,
            }
        });
        let paths: Vec<_> = asked.map(|(path, _)| *path).collect();
        if is_due {
            self.plan_after_call(paths.is_empty(), now);
        }
        for path in &paths {
            if let Some(record) = self.paths.get_mut(path) {
                record.asking = Asking::InFlight;
            }
        }
        (!paths.is_empty()).then_some(Question { number: self.question, paths })
    }

    fn plan_after_call(&mut self, has_no_path: bool, now: Instant) {
        self.due = None;
        if has_no_path {
            self.is_called_for = true;
            self.not_before = now + self.back_off.max();
            return;
        }
        if now.saturating_duration_since(self.not_before) >= CALM {
            self.pauses = self.back_off;
        }
        self.is_called_for = false;
        self.not_before = now + self.pauses.next();
        self.question += 1;
    }

    /// Records an answer. An answer over a path that was removed is ignored.
    pub fn answered(&mut self, path: PathId, answer: &Answer, now: Instant) {
        let Some(record) = self.paths.get_mut(&path) else { return };
        if self.support == Support::None {
            return;
        }
        self.support = Support::Reported;
        (record.refusing, record.asking) = (None, Asking::Answered);
        let of_port = |port| answer.groups.group_of_port(port).map(|group| group.id);
        if let Some(group) = answer.group.or_else(|| answer.port.and_then(of_port)) {
            record.group = Some(group);
            self.portals.insert(record.portal, group);
        }
        if !self.paths.values().any(|record| matches!(record.asking, Asking::Again(_))) {
            self.pauses_again = self.back_off;
        }
        for group in &answer.groups.groups {
            let access = Access { state: group.state, preferred: group.preferred };
            let known = self.states.get(&group.id);
            if known.is_some_and(|(question, _)| *question > answer.question) {
                continue;
            }
            if known.is_none_or(|(_, before)| *before != access) {
                self.changed = now;
            }
            self.states.insert(group.id, (answer.question, access));
        }
    }

    /// Records that a path has not answered. Returns whether the unit turns out to have no target port groups.
    pub fn not_answered(&mut self, path: PathId, why: NoAnswer, now: Instant) -> bool {
        let is_only = self.paths.len() == 1;
        let Some(record) = self.paths.get_mut(&path) else { return false };
        record.asking = Asking::Answered;
        if why == NoAnswer::Unknown && self.support == Support::Claimed {
            self.support = Support::None;
            return true;
        }
        match why {
            // The path itself knows this state better than others: LIO takes a single port offline without a
            // change of its group.
            NoAnswer::Refused(access) => record.refusing = Some(access),
            // A path whose group stays unknown would always count as the best.
            NoAnswer::SessionEnded | NoAnswer::MayPass if record.group.is_none() => {
                record.asking = Asking::Again(now + self.pauses_again.next());
            }
            NoAnswer::SessionEnded | NoAnswer::MayPass | NoAnswer::Unknown => {}
        }
        // The only path may be unable to answer while its own port is out of use.
        self.is_called_for |= is_only && why != NoAnswer::SessionEnded;
        false
    }

    /// Schedules the next question by the states of all paths except silent ones.
    pub fn plan(&mut self, is_silent: impl Fn(PathId) -> bool, now: Instant) {
        let all = self.paths.keys().filter(|path| !is_silent(**path));
        let all = all.map(|path| self.access(*path).unwrap_or(Access::UNKNOWN));
        let all: Vec<_> = all.collect();
        let priorities: BTreeSet<Priority> = all.iter().map(|access| access.priority()).collect();
        let interval = if all.iter().any(|access| access.serves()) {
            let is_best = priorities.first() <= Some(&Access::UNKNOWN.priority());
            let is_even = priorities.len() < 2 && is_best;
            (!is_even).then_some(INTERVAL)
        } else {
            Some(INTERVAL_IN_NEED)
        };
        self.due = interval.map(|interval| now + interval);
    }
}
