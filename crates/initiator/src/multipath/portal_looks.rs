//! Sessions that are opened to see whether a portal is of use by now: its port did not serve the unit, or it
//! has no session.
//!
//! Where a session is opened at a portal that had none, one goes from where there are most: it takes nothing
//! more, and is logged out when what is under way on it has ended.

use std::sync::Arc;

use crate::error::Error;
use crate::multipath::dispatch::Paths;
use crate::multipath::event::Event;
use crate::multipath::path::Path;
use crate::multipath::supervisor::Supervisor;
use crate::multipath::unused_portals::most_used;

impl Supervisor {
    /// Opens sessions with ports that did not serve the unit, to see whether they do by now: now and
    /// then, and where no path serves it, also with portals that have no session.
    pub(super) fn look_at_standby(&mut self, paths: &Paths<Path>) {
        let portals = if paths.take_call_for_port() {
            let open = paths.open();
            let has_none = |portal: &usize| open.iter().all(|(_, path)| path.portal != *portal);
            self.standby.due_in_need((0..self.opener.portals.len()).filter(has_none).collect())
        } else if self.missing(paths) > 0 {
            self.standby.due()
        } else {
            Vec::new()
        };
        portals.into_iter().for_each(|portal| self.look_at(portal));
    }

    fn look_at(&mut self, portal: usize) {
        let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
        let opened = async move { opener.open_if_served(portal, expected).await };
        self.start(opened, move |result| Event::Looked(portal, result));
    }

    /// A look at a portal has ended: where the port serves the unit, all that were logged out come back.
    pub(super) fn looked(
        &mut self,
        paths: &Paths<Path>,
        portal: usize,
        result: Result<Path, Error>,
    ) {
        let more = self.standby.looked(portal, result.is_ok());
        match result {
            Ok(path) => self.join(paths, path),
            Err(error) => {
                tracing::debug!(portal, %error, "a port does not serve the unit yet");
                return;
            }
        }
        for _ in 0..more.min(self.missing(paths)) {
            self.look_at(portal);
        }
    }

    /// Looks at a portal without a session, where it is time.
    pub(super) fn look_at_unused(&mut self, paths: &Paths<Path>) {
        if self.opening + self.reopening > 0 {
            return;
        }
        let sessions = self.sessions_of_portals(paths);
        let Some(portal) = self.unused.due(&sessions) else { return };
        let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
        self.start(async move { opener.open_if_served(portal, expected).await }, Event::Spread);
    }

    /// A session is there at a portal that had none: another one goes, where there are several.
    pub(super) fn spread_to(&mut self, paths: &Paths<Path>, result: Result<Path, Error>) {
        self.unused.looked();
        let sessions = self.sessions_of_portals(paths);
        let path = match result {
            Ok(path) => path,
            Err(error) => {
                tracing::debug!(%error, "a portal without a session is of no use yet");
                return;
            }
        };
        let Some(most_used) = most_used(&sessions) else {
            self.dismiss(path);
            return;
        };
        self.join(paths, path);
        let working = paths.working();
        let there = paths.open().into_iter().filter(|(_, path)| path.portal == most_used);
        let youngest = there.map(|(id, _)| id).filter(|id| working.contains(id)).max();
        if let Some(id) = youngest {
            paths.close(id);
            self.release(paths, id);
        }
    }

    /// How many sessions each portal has; `None` where the port does not serve the unit.
    fn sessions_of_portals(&self, paths: &Paths<Path>) -> Vec<Option<u32>> {
        let portals = 0..self.opener.portals.len();
        let serving = portals.map(|portal| (!self.standby.holds(portal)).then_some(0));
        let mut sessions: Vec<_> = serving.collect();
        for (_, path) in paths.open() {
            if let Some(Some(count)) = sessions.get_mut(path.portal) {
                *count += 1;
            }
        }
        sessions
    }
}
