//! Ports that do not serve the unit, and when they are looked at again.
//!
//! A port in standby serves the unit when the target makes it active, and says so to nobody (SPC-4
//! §5.15.2). Its sessions are logged out as long as others serve the unit; now and then, and when no other
//! one does, a session shows whether that has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::access::refused;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, now};
use crate::multipath::lane::PathId;
use crate::unit::retry::endurance;

/// Time between two looks at a port while others serve the unit.
const INTERVAL: Duration = Duration::from_secs(60);
/// The same while none does.
const INTERVAL_IN_NEED: Duration = Duration::from_secs(1);

/// The portals whose ports did not serve the unit.
#[derive(Debug)]
pub(super) struct Standby {
    /// How many sessions were logged out there for that reason.
    sessions: BTreeMap<usize, u32>,
    /// Those where a session is being opened.
    looking: BTreeSet<usize>,
    /// When the last one was set aside, or looked at.
    since: Instant,
}

impl Standby {
    pub(super) fn new() -> Self {
        Self { sessions: BTreeMap::new(), looking: BTreeSet::new(), since: Instant::now() }
    }

    /// A session with this portal is logged out, because its port does not serve the unit.
    pub(super) fn add(&mut self, portal: usize) {
        *self.sessions.entry(portal).or_default() += 1;
        self.since = Instant::now();
    }

    /// Whether the port of this portal did not serve the unit.
    pub(super) fn holds(&self, portal: usize) -> bool {
        self.sessions.contains_key(&portal) || self.looking.contains(&portal)
    }

    /// The portals to look at now while others serve the unit.
    pub(super) fn due(&mut self) -> Vec<usize> {
        let portals = self.sessions.keys().copied().collect();
        self.look(portals, INTERVAL)
    }

    /// The portals of those to look at now because no path serves the unit.
    pub(super) fn due_in_need(&mut self, portals: Vec<usize>) -> Vec<usize> {
        self.look(portals, INTERVAL_IN_NEED)
    }

    fn look(&mut self, mut portals: Vec<usize>, interval: Duration) -> Vec<usize> {
        portals.retain(|portal| !self.looking.contains(portal));
        if portals.is_empty() || self.since.elapsed() < interval {
            return Vec::new();
        }
        self.since = Instant::now();
        self.looking.extend(&portals);
        portals
    }

    /// A look at a portal has ended. Where the port serves the unit: how many more sessions were logged
    /// out there.
    pub(super) fn looked(&mut self, portal: usize, serves: bool) -> u32 {
        self.looking.remove(&portal);
        let sessions = if serves { self.sessions.remove(&portal) } else { None };
        sessions.map_or(0, |sessions| sessions.saturating_sub(1))
    }
}

impl<C: Carrier> Paths<C> {
    /// For how long a request is sent again that has ended so on a path, if it is: also where no path
    /// serves the unit, while the ports of other portals may.
    pub(super) fn endurance(&self, path: PathId, error: &Error) -> Option<Duration> {
        let policy = self.policy();
        let passes = endurance(error, policy);
        passes.or_else(|| {
            let is_of_port = error.is_of_path() || refused(error).is_some();
            let is_called_for = is_of_port && self.call_for_port(path);
            is_called_for.then_some(policy.patience)
        })
    }

    /// No path but this one takes requests, and it does not serve the unit. Says whether others are looked
    /// for.
    fn call_for_port(&self, path: PathId) -> bool {
        let mut state = self.lock();
        let follows = state.paths.follows_access();
        let is_last =
            state.schedule.is_last(path) || follows && !state.schedule.others_serve(path, now());
        let is_heard = is_last && state.paths.call_for_port();
        drop(state);
        if is_heard {
            self.attention().notify_one();
        }
        is_heard
    }

    /// Whether a request has called for another port since the last call.
    pub(crate) fn take_call_for_port(&self) -> bool {
        self.lock().paths.take_call_for_port()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ports_are_looked_at_now_and_then_and_at_once_in_need() {
        let mut standby = Standby::new();
        advance(INTERVAL).await;
        assert!(standby.due().is_empty());
        standby.add(3);
        standby.add(3);
        assert!(standby.due().is_empty() && standby.due_in_need(vec![3, 4]).is_empty());
        advance(INTERVAL_IN_NEED).await;
        assert!(standby.due().is_empty());
        assert_eq!(standby.due_in_need(vec![3, 4]), [3, 4]);
        advance(INTERVAL).await;
        assert!(standby.due().is_empty(), "never twice at a time");
        assert_eq!((standby.looked(3, false), standby.looked(4, true)), (0, 0));
        assert_eq!(standby.due(), [3]);
        assert_eq!(standby.looked(3, true), 1, "both are to come back");
        advance(INTERVAL).await;
        assert!(standby.due().is_empty());
    }
}
