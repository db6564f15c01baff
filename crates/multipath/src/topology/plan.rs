//! Applies the rules of the topology to a situation.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use iscsi_pdu::Isid;

use crate::access::{Access, Priority};
use crate::ids::{PathId, PortalId};
use crate::topology::situation::{
    Admission, CloseReason, Count, Session, SessionState, Situation, Why,
};

/// Time between two tries to open a session at a portal.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);
/// Time between two tries to open a session at a portal while no path serves the unit.
pub(super) const INTERVAL_IN_NEED: Duration = Duration::from_secs(1);
/// Maximum number of sessions that move to a better port at the same time.
pub(super) const MAX_MOVES: usize = 4;
/// State of one portal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Portal {
    /// The state of its port for the unit.
    pub(super) access: Option<Access>,
    /// When a session was last tried at this portal alone.
    pub(super) tried: Option<Instant>,
    /// Number of sessions that were closed there because the port did not serve the unit.
    pub(super) closed: u32,
    /// Number of sessions to open there, because the port serves the unit again.
    pub(super) returning: u32,
}

/// The facts that the rules depend on.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    pub(super) portals: Vec<Portal>,
    /// The sessions that are being opened, each with the first portal to try; `None` for any portal.
    pub(super) opening: Vec<(Why, Option<PortalId>)>,
    /// Whether each portal should have a session, also if it is not the best.
    pub(super) has_spares: bool,
    pub(super) uneven_since: Option<Instant>,
    /// When sessions may move to better ports; `None` if the unit has not reported the states of its ports.
    pub(super) moves_from: Option<Instant>,
    pub(super) situation: Situation<'a>,
}

impl Facts<'_> {
    fn all(&self) -> impl Iterator<Item = (PortalId, &Portal)> {
        self.portals.iter().enumerate().map(|(portal, it)| (PortalId(portal), it))
    }

    fn has_session(&self, portal: PortalId) -> bool {
        self.situation.sessions.iter().any(|session| session.portal == portal)
    }

    /// Returns the portal with the most sessions, if it has several, except portals in standby.
    fn most_used(&self) -> Option<PortalId> {
        let at = |portal| self.situation.sessions.iter().filter(|it| it.portal == portal).count();
        let served = self.all().filter(|(_, it)| it.closed == 0);
        let counts = served.map(|(portal, _)| (at(portal), portal));
        counts.max().filter(|(count, _)| *count > 1).map(|(_, portal)| portal)
    }

    /// Returns whether a portal has no session while another one has several.
    pub(super) fn is_uneven(&self) -> bool {
        let mut served = self.all().filter(|(_, it)| it.closed == 0);
        served.any(|(portal, _)| !self.has_session(portal)) && self.most_used().is_some()
    }

    /// Decides how to use a new session at a portal that had no session; `None` if no other portal has several
    /// sessions any more.
    pub(super) fn youngest_of_most_used(&self) -> Option<Admission> {
        let most_used = self.most_used()?;
        let there = self.situation.sessions.iter().filter(|it| it.portal == most_used);
        let youngest = there.filter(|it| it.works()).map(|it| it.path).max();
        Some(youngest.map_or(Admission::Join, Admission::Replace))
    }

    /// Returns whether the state of the port of this portal is known, and no known port is better.
    pub(super) fn is_best(&self, portal: PortalId) -> bool {
        let own = self.portals.get(portal.0).and_then(Portal::priority);
        own.is_some() && own == self.portals.iter().filter_map(Portal::priority).min()
    }

    /// Returns the sessions that should move, the youngest last. At each port that is worse than the best port
    /// with a session, all sessions but the first one should move.
    pub(super) fn misplaced(&self) -> Vec<PathId> {
        let access =
            |session: &Session| self.portals.get(session.portal.0).and_then(|it| it.access);
        let open = self.situation.sessions.iter();
        let served = open.filter_map(access).filter(|access| access.serves());
        let Some(best) = served.map(Access::priority).min() else { return Vec::new() };
        let is_worse =
            |session: &&Session| access(session).is_some_and(|access| access.priority() > best);
        let mut worse: Vec<_> =
            self.situation.sessions.iter().filter(|it| it.works()).filter(is_worse).collect();
        worse.sort_by_key(|session| session.path);
        let mut has_one = Vec::new();
        worse.retain(|session| {
            let is_first = !has_one.contains(&session.portal);
            if is_first {
                has_one.push(session.portal);
            }
            !is_first
        });
        worse.into_iter().map(|session| session.path).collect()
    }
}

impl Portal {
    fn priority(&self) -> Option<Priority> {
        self.access.map(Access::priority)
    }
}

impl Session {
    const fn works(&self) -> bool {
        matches!(self.state, SessionState::Working | SessionState::InUse)
    }
}

/// Actions that follow from the facts.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    facts: &'a Facts<'a>,
    now: Instant,
    /// Sessions to open, each with its portal, or `None` if any portal will do.
    pub(super) opens: Vec<(Why, Option<PortalId>)>,
    pub(super) closes: Vec<(PathId, CloseReason)>,
    /// The earliest time at which another rule may apply.
    pub(super) again: Option<Instant>,
}

impl<'a> Plan<'a> {
    pub(super) const fn new(facts: &'a Facts<'a>, now: Instant) -> Self {
        Self { facts, now, opens: Vec::new(), closes: Vec::new(), again: None }
    }

    /// Applies all rules in their order.
    pub(super) fn wanted(mut self) -> Self {
        self.reconnect();
        self.close_not_served();
        if self.facts.situation.lacks_port {
            self.open_in_need();
        } else {
            self.open_in_standby();
        }
        if self.is_steady() {
            self.open_spares();
            self.spread();
            self.move_to_better();
            self.open_second();
        }
        self.count();
        self
    }

    fn reconnect(&mut self) {
        let opening = self.facts.opening.iter().filter_map(|(why, _)| why.isid());
        let mut names: BTreeSet<_> = opening.map(Isid::to_bytes).collect();
        for lost in self.facts.situation.lost {
            if names.insert(lost.isid.to_bytes()) {
                self.opens.push((Why::Lost(lost.isid), Some(lost.portal)));
            }
        }
    }

    fn close_not_served(&mut self) {
        for session in self.facts.situation.sessions {
            if session.state == SessionState::NotServed {
                self.close(session.path, CloseReason::NotServed);
            }
        }
    }

    fn open_in_need(&mut self) {
        for (portal, it) in self.facts.all() {
            let is_free = !self.facts.has_session(portal) && !self.is_tried(portal);
            if is_free && self.is_due(it.tried.and_then(|at| at.checked_add(INTERVAL_IN_NEED))) {
                self.opens.push((Why::Need, Some(portal)));
            }
        }
    }

    fn open_in_standby(&mut self) {
        for (portal, it) in self.facts.all() {
            for _ in 0..it.returning.min(self.room()) {
                self.opens.push((Why::Standby, Some(portal)));
            }
            let is_free = it.closed > 0 && !self.is_tried(portal) && self.room() > 0;
            if is_free && self.is_due(it.tried.and_then(|at| at.checked_add(INTERVAL))) {
                self.opens.push((Why::Standby, Some(portal)));
            }
        }
    }

    fn open_spares(&mut self) {
        for (portal, it) in self.facts.all().filter(|_| self.facts.has_spares) {
            if self.is_unused(portal, it)
                && self.room() > 0
                && self.is_due(it.tried.and_then(|at| at.checked_add(INTERVAL)))
            {
                self.opens.push((Why::Spare, Some(portal)));
            }
        }
    }

    /// Opens a session at a portal without a session: the portal that was tried least recently. One such
    /// session is opened at a time.
    fn spread(&mut self) {
        let Some(since) = self.facts.uneven_since else { return };
        if self.is_opening(|why| why == Why::Spread) {
            return;
        }
        let unused = self.facts.all().filter(|(portal, it)| self.is_unused(*portal, it));
        let Some((portal, it)) = unused.min_by_key(|(_, it)| it.tried) else { return };
        let from = it.tried.map_or(since, |tried| tried.max(since));
        if self.is_due(from.checked_add(INTERVAL)) {
            self.opens.push((Why::Spread, Some(portal)));
        }
    }

    fn move_to_better(&mut self) {
        let Some(from) = self.facts.moves_from else { return };
        let moves = self.facts.misplaced().len().min(MAX_MOVES);
        if moves > 0 && !self.is_opening(|why| why == Why::Better) && self.is_due(Some(from)) {
            self.opens.extend((0..moves).map(|_| (Why::Better, None)));
        }
    }

    fn open_second(&mut self) {
        let is_only = self.facts.situation.sessions.len() == 1;
        if self.facts.situation.wants_second && is_only && self.room() > 0 {
            self.opens.push((Why::Flush, None));
        }
    }

    fn count(&mut self) {
        match self.facts.situation.count {
            Count::Stay => {}
            Count::More(more) => {
                self.opens.extend((0..more.min(self.room())).map(|_| (Why::Count, None)));
            }
            Count::Fewer(fewer) => {
                // Only sessions in use are closed: a session at a worse port carries no data, and would be
                // opened again.
                let sessions = self.facts.situation.sessions.iter();
                let in_use = sessions.filter(|it| it.state == SessionState::InUse);
                let mut in_use: Vec<_> = in_use.map(|it| it.path).collect();
                in_use.sort_unstable();
                let kept = in_use.len().saturating_sub(fewer as usize).max(1);
                for path in in_use.into_iter().skip(kept) {
                    self.close(path, CloseReason::Surplus);
                }
            }
        }
    }

    /// Closes a session, unless no working session would be left.
    fn close(&mut self, path: PathId, reason: CloseReason) {
        let is_closed = |it: PathId| self.closes.iter().any(|(closed, _)| *closed == it);
        let works = |it: &&Session| it.works() && it.path != path && !is_closed(it.path);
        if self.facts.situation.sessions.iter().any(|it| works(&it)) {
            self.closes.push((path, reason));
        }
    }

    /// Returns whether no session reconnects, and none is being opened for [`Why::Count`] or [`Why::Flush`].
    fn is_steady(&self) -> bool {
        !self.is_opening(|why| matches!(why, Why::Count | Why::Flush | Why::Lost(_)))
    }

    /// Returns whether a portal has no session, is not being tried, and is not in standby.
    fn is_unused(&self, portal: PortalId, it: &Portal) -> bool {
        it.closed == 0 && !self.facts.has_session(portal) && !self.is_tried(portal)
    }

    fn whys(&self) -> impl Iterator<Item = Why> {
        self.facts.opening.iter().chain(&self.opens).map(|(why, _)| *why)
    }

    fn is_opening(&self, is_it: impl Fn(Why) -> bool) -> bool {
        self.whys().any(is_it)
    }

    /// Returns whether a session is being opened at this portal alone.
    fn is_tried(&self, portal: PortalId) -> bool {
        let is_alone =
            |why: Why| matches!(why, Why::Need | Why::Standby | Why::Spare | Why::Spread);
        let mut all = self.facts.opening.iter().chain(&self.opens);
        all.any(|(why, at)| is_alone(*why) && *at == Some(portal))
    }

    /// Returns how many more sessions may be opened.
    fn room(&self) -> u32 {
        let there = self.facts.situation.sessions.len() + self.whys().count();
        self.facts.situation.max.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX))
    }

    /// Returns whether a rule is due at `at`; `None` means immediately. If it is not due yet, its time is
    /// noted in `again`.
    fn is_due(&mut self, at: Option<Instant>) -> bool {
        let Some(at) = at.filter(|at| *at > self.now) else { return true };
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
        false
    }
}
