//! Decides which sessions with the unit there should be.
//!
//! [`Topology`] compares the open sessions with the sessions that there should be, and returns the
//! difference: sessions to open, each with a list of portals in the order of the tries, and sessions to
//! close. All sessions that carry data are at the best ports. The rules, by priority:
//!
//! | situation | action | how often |
//! |---|---|---|
//! | a session is lost | it reconnects | by [`Reconnect`](crate::reconnect::Reconnect) |
//! | a session whose port does not serve the unit, and another one that works | the first one closes, and its portal counts as in standby | |
//! | no path serves a request | a session opens at each portal that has none | a second after the last try there |
//! | a portal in standby | a session opens there, to find out whether its port serves the unit; if it does, as many open as were closed there | a minute after the last try there |
//! | access states are followed, or all portals of the target are used | a session opens at each portal that has none: it receives reports of resets like the others, and takes requests immediately when its port becomes the best | a minute after the last try there |
//! | a portal without a session, and another one with several | a session opens there, and replaces the youngest at the portal with the most | a minute after this situation began, and after the last such session |
//! | several sessions at a port that is worse than another one | all but one move, 4 at a time | when the states have not changed for 2 s, and a minute after a move that failed |
//! | one session, and slow flushes | a second session opens, because a slow flush may end the only one | |
//! | the tuner wants more sessions, or fewer | more open, or the youngest of those in use close | |
//!
//! While sessions reconnect, or further ones are being opened because of the tuner or of slow flushes, only
//! the first four rules and the last one apply.
//!
//! At most [`max`](Situation::max) sessions are open or being opened at the same time. A session that replaces
//! another one, or that is opened because no path serves the unit, may be one more until the other one has
//! closed.
//!
//! Design: `docs/design/paths.md`.

mod plan;
mod situation;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::access::Access;
use crate::ids::PortalId;
use crate::port_groups::PortGroups;
use crate::topology::plan::{Facts, INTERVAL, Plan, Portal};

pub use situation::{
    Admission, Changes, CloseReason, Count, Lost, Open, OpenId, Session, SessionState, Situation,
    Why,
};

/// Minimum time between two queries for the portals of the target.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// Tries of sessions at one portal.
#[derive(Clone, Copy, Debug, Default)]
struct PortalRecord {
    /// When a session was last tried at this portal alone, or closed there because its port did not serve the
    /// unit.
    tried: Option<Instant>,
    /// Number of sessions that were closed at this portal because its port did not serve the unit.
    closed: u32,
    /// Number of sessions to reopen at this portal, because its port serves the unit again.
    returning: u32,
}

/// The sessions that are being opened, and earlier tries.
#[derive(Debug)]
pub struct Topology {
    opening: Vec<Open>,
    next: u32,
    /// Counter that selects the next portal in turn.
    turn: usize,
    portals: Vec<PortalRecord>,
    /// Time from which a portal has had no session while another portal has several, or when a session was
    /// last opened to change this.
    uneven_since: Option<Instant>,
    /// Earliest time of the next move of sessions to better ports.
    moves_from: Option<Instant>,
    discovery: Discovery,
}

/// State of the queries for the portals of the target.
#[derive(Clone, Copy, Debug, Default)]
struct Discovery {
    is_in_flight: bool,
    last: Option<Instant>,
}

impl Topology {
    /// Creates the topology of a disk whose first session is at `first`. Further sessions begin with the next
    /// portal.
    #[must_use]
    pub const fn new(first: PortalId) -> Self {
        Self {
            opening: Vec::new(),
            next: 0,
            turn: first.0.saturating_add(1),
            portals: Vec::new(),
            uneven_since: None,
            moves_from: None,
            discovery: Discovery { is_in_flight: false, last: None },
        }
    }

    /// Returns the sessions to open and to close. After this call the topology counts the sessions to open as
    /// being opened, and the sessions to close as closed.
    pub fn poll(
        &mut self,
        situation: &Situation<'_>,
        groups: &PortGroups,
        now: Instant,
    ) -> Changes {
        let facts = self.facts(situation, groups);
        if facts.is_uneven() {
            self.uneven_since.get_or_insert(now);
        } else {
            self.uneven_since = None;
        }
        let facts = Facts { uneven_since: self.uneven_since, ..facts };
        let plan = Plan::new(&facts, now).wanted();
        let mut changes = Changes { again: plan.again, ..Changes::default() };
        for (path, reason) in plan.closes {
            if reason == CloseReason::NotServed
                && let Some(session) = situation.sessions.iter().find(|it| it.path == path)
            {
                let record = self.record(session.portal);
                (record.closed, record.tried) = (record.closed.saturating_add(1), Some(now));
            }
            changes.close.push((path, reason));
        }
        for (why, at) in plan.opens {
            let portals = match at {
                Some(portal) if matches!(why, Why::Lost(_)) => in_turn(situation.portals, portal.0),
                Some(portal) => {
                    self.record(portal).tried = Some(now);
                    vec![portal]
                }
                None => self.best_in_turn(&facts),
            };
            if why == Why::Spread {
                self.uneven_since = Some(now);
            }
            changes.open.push(self.begin(why, portals));
        }
        // Sessions that could not be reopened now, because there was no room, are not reopened later either.
        self.portals.iter_mut().for_each(|record| record.returning = 0);
        changes
    }

    /// Begins to open further sessions at the start of a disk, when only the portals are known.
    pub fn open_first(&mut self, count: u32, portals: usize) -> Vec<Open> {
        let opens = (0..count).map(|_| {
            let turn = self.next_turn();
            self.begin(Why::Count, in_turn(portals, turn))
        });
        opens.collect()
    }

    /// Begins to reconnect a lost session without regard to the other sessions, unless it reconnects already.
    pub fn reconnect(&mut self, lost: &Lost, portals: usize) -> Option<Open> {
        let why = Why::Lost(lost.isid);
        let is_opening = self.opening.iter().any(|open| open.why == why);
        (!is_opening).then(|| self.begin(why, in_turn(portals, lost.portal.0)))
    }

    /// Records that a session is open at `portal`, and decides how it is used.
    pub fn opened(
        &mut self,
        id: OpenId,
        portal: PortalId,
        situation: &Situation<'_>,
        groups: &PortGroups,
        now: Instant,
    ) -> Admission {
        let Some(open) = self.take(id) else { return Admission::Dismiss };
        let facts = self.facts(situation, groups);
        let admission = match open.why {
            Why::Spread => facts.youngest_of_most_used(),
            Why::Better if facts.is_best(portal) => facts.misplaced().pop().map(Admission::Replace),
            Why::Better => None,
            Why::Count | Why::Flush | Why::Lost(_) | Why::Spare => Some(Admission::Join),
            Why::Need | Why::Standby => {
                let record = self.record(portal);
                record.returning += std::mem::take(&mut record.closed).saturating_sub(1);
                Some(Admission::Join)
            }
        };
        if open.why == Why::Better && admission.is_none() {
            self.moves_from = now.checked_add(INTERVAL);
        }
        admission.unwrap_or(Admission::Dismiss)
    }

    /// Records that opening a session has failed, or that the session was closed again because the disk is
    /// being closed.
    pub fn ended(&mut self, id: OpenId, now: Instant) {
        if let Some(open) = self.take(id)
            && open.why == Why::Better
        {
            self.moves_from = now.checked_add(INTERVAL);
        }
    }

    /// Returns the number of further sessions that are being opened for `Why::Count` or `Why::Flush`.
    #[must_use]
    pub fn opening(&self) -> u32 {
        count(self.opening.iter().filter(|open| matches!(open.why, Why::Count | Why::Flush)))
    }

    /// Returns the number of lost sessions that reconnect.
    #[must_use]
    pub fn reconnecting(&self) -> u32 {
        count(self.opening.iter().filter(|open| matches!(open.why, Why::Lost(_))))
    }

    /// Begins a query for the portals of the target, if ten seconds have passed since the last one ended.
    /// Returns whether it begins.
    pub fn begin_discovery(&mut self, now: Instant) -> bool {
        let is_time = self
            .discovery
            .last
            .is_none_or(|last| now.saturating_duration_since(last) >= DISCOVERY_INTERVAL);
        let begins = is_time && !self.discovery.is_in_flight;
        self.discovery.is_in_flight |= begins;
        begins
    }

    /// Records the end of a query for the portals of the target.
    pub const fn end_discovery(&mut self, now: Instant) {
        self.discovery = Discovery { is_in_flight: false, last: Some(now) };
    }

    fn facts<'a>(&self, situation: &Situation<'a>, groups: &PortGroups) -> Facts<'a> {
        let portals = (0..situation.portals).map(|portal| {
            let record = self.portals.get(portal).copied().unwrap_or_default();
            let access = groups.access_of_portal(PortalId(portal));
            let PortalRecord { tried, closed, returning } = record;
            Portal { access, tried, closed, returning }
        });
        let opening = self.opening.iter().map(|open| (open.why, open.portals.first().copied()));
        let moves_from = groups.is_followed().then(|| {
            let calm = groups.calm_at();
            self.moves_from.map_or(calm, |from| from.max(calm))
        });
        Facts {
            portals: portals.collect(),
            opening: opening.collect(),
            has_spares: groups.is_followed() || situation.wants_all_portals,
            uneven_since: self.uneven_since,
            moves_from,
            situation: *situation,
        }
    }

    fn begin(&mut self, why: Why, portals: Vec<PortalId>) -> Open {
        let open = Open { id: OpenId(self.next), why, portals };
        self.next = self.next.wrapping_add(1);
        self.opening.push(open.clone());
        open
    }

    fn take(&mut self, id: OpenId) -> Option<Open> {
        let at = self.opening.iter().position(|open| open.id == id)?;
        Some(self.opening.swap_remove(at))
    }

    fn next_turn(&mut self) -> usize {
        let turn = self.turn;
        self.turn = self.turn.wrapping_add(1);
        turn
    }

    /// Returns all portals, with the best ports first. Among equal ports, the portal in turn is first.
    fn best_in_turn(&mut self, facts: &Facts<'_>) -> Vec<PortalId> {
        let turn = self.next_turn();
        let mut portals = in_turn(facts.portals.len(), turn);
        let access = |portal: &PortalId| facts.portals.get(portal.0).and_then(|it| it.access);
        portals.sort_by_key(|portal| access(portal).unwrap_or(Access::UNKNOWN).priority());
        portals
    }

    fn record(&mut self, portal: PortalId) -> &mut PortalRecord {
        if self.portals.len() <= portal.0 {
            self.portals.resize(portal.0 + 1, PortalRecord::default());
        }
        &mut self.portals[portal.0]
    }
}

/// Returns all portals, beginning with `first`.
fn in_turn(portals: usize, first: usize) -> Vec<PortalId> {
    let count = portals.max(1);
    (0..count).map(|turn| PortalId((first % count + turn) % count)).collect()
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}
