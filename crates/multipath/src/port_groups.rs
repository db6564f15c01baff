//! Queries and tracks the states of the unit's target port groups (SPC-4 §5.11).
//!
//! Requests go to the best ports and to no others, by the asymmetric access states of REPORT TARGET PORT
//! GROUPS: active/optimized first, and preferred ports first among equals. The states are queried when the
//! unit reports a change, when a port refuses a request, every five seconds while ports differ or none is
//! active/optimized, and every 200 ms while no port serves the unit. One session at each portal is queried,
//! all concurrently, so a session that does not respond delays no other. A response lists all groups. It is
//! used for a group unless a later query has returned already.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use iscsi_pdu::scsi::TargetPortGroups;

use crate::access::{Access, Priority};
use crate::ids::{PathId, PortalId};
use crate::reconnect::BackOff;

/// Time between two queries while the priorities of the ports differ, or all are worse than active/optimized.
/// Such queries are needed because a unit reports an improvement only to the sessions that gain by it.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time between two queries while no port serves the unit.
const INTERVAL_IN_NEED: Duration = Duration::from_millis(200);
/// Time without a change after which sessions may move to better ports. After this time without a query, the
/// pauses between queries begin again with the shortest.
const CALM: Duration = Duration::from_secs(2);

/// Support of the unit for target port groups.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Support {
    None,
    /// The unit claims target port groups (TPGS), but has not reported states.
    Claimed,
    Reported,
}

/// State of one path.
#[derive(Debug)]
struct PathRecord {
    portal: PortalId,
    group: Option<u16>,
    /// The state of a port that refuses even the query. It overrides the state that other ports report for
    /// its group.
    refusing: Option<Access>,
    asking: Asking,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asking {
    /// The path was never queried, so its group is unknown.
    Due,
    InFlight,
    Answered,
    /// The path has not responded, and is queried again at this time.
    Again(Instant),
}

/// A query for the states of all groups, and for the group of the port that responds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the query; it grows with each query.
    pub number: u64,
    /// The paths over which to send the query.
    pub paths: Vec<PathId>,
}

/// The response over one path.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The number of the query.
    pub question: u64,
    /// The group of the port, if the unit reports it (VPD page 83h).
    pub group: Option<u16>,
    /// The relative target port identifier, if the unit reports it.
    pub port: Option<u16>,
    /// The states of all groups.
    pub groups: TargetPortGroups,
}

/// Reasons why a path has not responded to a query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoAnswer {
    /// The unit does not know the command.
    Unknown,
    /// The port refuses the command because of its state.
    Refused(Access),
    /// The session has ended.
    SessionEnded,
    /// Any other reason, which may be temporary.
    MayPass,
}

/// The states of the ports of a unit, and the queries for them.
#[derive(Debug)]
pub struct PortGroups {
    support: Support,
    paths: BTreeMap<PathId, PathRecord>,
    /// For each portal, the group that the latest session there has reported.
    portals: BTreeMap<PortalId, u16>,
    /// The state of each group, and the number of the query that returned it.
    states: BTreeMap<u16, (u64, Access)>,
    /// When the states changed last.
    changed: Instant,
    question: u64,
    /// Whether there has been a reason for a query since the last query.
    is_called_for: bool,
    /// When to query the states without another reason.
    due: Option<Instant>,
    /// Earliest time of the next query, so that a unit that contradicts itself is not queried in a tight
    /// loop.
    not_before: Instant,
    back_off: BackOff,
    pauses: BackOff,
    pauses_again: BackOff,
}

impl PortGroups {
    /// Creates the state of a unit. Only one fact is known yet: whether the unit claims to have target port
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

    /// Returns whether the unit has target port groups, as far as this is known.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.support != Support::None
    }

    /// Returns whether the unit has reported states.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.support == Support::Reported
    }

    /// Returns the time from which sessions may move, because the states will then have been unchanged for
    /// long enough.
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

    /// Requests a query as soon as the pauses allow it, because the unit has reported a change, or a port has
    /// refused a request.
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

    /// Returns when to call [`ask`](Self::ask) without another reason. If the disk is idle, only
    /// [`call`](Self::call) leads to a query.
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

    /// Returns the query that is due, if there is one. It goes over every path whose port is unknown. If
    /// there is a reason to query all states, it also goes over the oldest path at each portal.
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

    /// Records a response. A response over a path that was removed is ignored.
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

    /// Records that a path has not responded. Returns whether the reason `why` shows that the unit has no
    /// target port groups.
    pub fn not_answered(&mut self, path: PathId, why: NoAnswer, now: Instant) -> bool {
        let is_only = self.paths.len() == 1;
        let Some(record) = self.paths.get_mut(&path) else { return false };
        record.asking = Asking::Answered;
        if why == NoAnswer::Unknown && self.support == Support::Claimed {
            self.support = Support::None;
            return true;
        }
        match why {
            // The refusal over the path itself is more reliable than what other ports report: LIO takes a
            // single port offline without a change of its group.
            NoAnswer::Refused(access) => record.refusing = Some(access),
            // Query the path again: a path with an unknown group would always count as the best.
            NoAnswer::SessionEnded | NoAnswer::MayPass if record.group.is_none() => {
                record.asking = Asking::Again(now + self.pauses_again.next());
            }
            NoAnswer::SessionEnded | NoAnswer::MayPass | NoAnswer::Unknown => {}
        }
        // The only path may be unable to respond while its own port is out of use, so query it again.
        self.is_called_for |= is_only && why != NoAnswer::SessionEnded;
        false
    }

    /// Schedules the next query by the states of all paths that respond.
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
