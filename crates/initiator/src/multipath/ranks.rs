//! Sessions where the ports serve the unit best, and one at each of the others.
//!
//! All that carry data are at the best ports. One at each other port is kept for the time when that is the best: it is
//! told of resets like the others, and takes requests at once.

use std::sync::Arc;

use iscsi_multipath::{Access, PortalId, Priority};

use crate::error::Error;
use crate::multipath::dispatch::{Paths, now};
use crate::multipath::event::Event;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::multipath::supervisor::Supervisor;

/// Sessions that move at a time.
const MAX_MOVES: u32 = 4;

impl Supervisor {
    /// Opens a session at each portal that has none, and moves those that are of less use than they could be.
    pub(super) fn follow_ranks(&mut self, paths: &Paths<Path>) {
        let is_wanted = self.access.is_followed() || self.opener.portals.are_asked_for();
        if !is_wanted || self.opening + self.reopening > 0 {
            return;
        }
        self.open_spares(paths);
        if self.access.is_followed() && now() >= self.access.calm_at() {
            self.move_to_better(paths);
        }
    }

    fn open_spares(&mut self, paths: &Paths<Path>) {
        let open = paths.open();
        for portal in 0..self.opener.portals.len() {
            let is_used = open.iter().any(|(_, path)| path.portal == portal);
            let is_due = self.spares.is_due(portal);
            if is_used || !is_due || self.standby.holds(portal) || self.missing(paths) == 0 {
                continue;
            }
            self.spares.begin(portal);
            let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
            let opened = async move { opener.open_spare(portal, expected).await };
            self.start(opened, move |result| Event::Spare(portal, result));
        }
    }

    /// A session was opened at a portal that had none, or was not.
    pub(super) fn spare_opened(
        &mut self,
        paths: &Paths<Path>,
        portal: usize,
        result: Result<Path, Error>,
    ) {
        self.spares.opening = self.spares.opening.saturating_sub(1);
        match result {
            Ok(path) => self.join(paths, path),
            Err(error) => {
                let name = self.opener.portal_name(portal);
                self.report.note(format!(
                    "no session with the unit could be opened at portal {name}: {error}"
                ));
            }
        }
    }

    /// Where several sessions are at a worse port than there is, all but one of them move.
    fn move_to_better(&mut self, paths: &Paths<Path>) {
        if self.spares.moving > 0 {
            return;
        }
        let more = self.misplaced(paths).len();
        let more = u32::try_from(more).unwrap_or(MAX_MOVES).min(MAX_MOVES);
        for _ in 0..more {
            self.spares.moving += 1;
            let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
            self.start(async move { opener.open(expected).await }, Event::Better);
        }
    }

    /// A session was opened at a better port: one at a worse one goes, or the new one if all is even by now.
    pub(super) fn moved(&mut self, paths: &Paths<Path>, result: Result<Path, Error>) {
        self.spares.moving = self.spares.moving.saturating_sub(1);
        let path = match result {
            Ok(path) => path,
            Err(error) => {
                tracing::debug!(%error, "no session could be opened at a better port");
                return;
            }
        };
        let Some(id) = self.misplaced(paths).pop().filter(|_| self.is_best(path.portal)) else {
            self.dismiss(path);
            return;
        };
        self.join(paths, path);
        paths.close(id);
        self.release(paths, id);
    }

    /// The sessions beside the first at worse ports than the best, the youngest last.
    fn misplaced(&self, paths: &Paths<Path>) -> Vec<PathId> {
        let working = paths.working();
        let Some(best) = self.best_rank(paths) else { return Vec::new() };
        let mut has_one = Vec::new();
        let mut misplaced = Vec::new();
        for (id, path) in paths.open() {
            let access = self.access.access_of_portal(PortalId(path.portal));
            if !working.contains(&id) || access.is_none_or(|access| access.priority() <= best) {
                continue;
            }
            if has_one.contains(&path.portal) {
                misplaced.push(id);
            } else {
                has_one.push(path.portal);
            }
        }
        misplaced
    }

    /// How good the best port is that has a session.
    fn best_rank(&self, paths: &Paths<Path>) -> Option<Priority> {
        let open = paths.open();
        let all =
            open.iter().filter_map(|(_, path)| self.access.access_of_portal(PortalId(path.portal)));
        all.filter(|access| access.serves()).map(Access::priority).min()
    }

    /// Whether no port is known to be better than that of a portal.
    fn is_best(&self, portal: usize) -> bool {
        let rank = self.access.access_of_portal(PortalId(portal)).map(Access::priority);
        let all = (0..self.opener.portals.len())
            .filter_map(|portal| self.access.access_of_portal(PortalId(portal)));
        rank.is_some() && rank == all.map(Access::priority).min()
    }
}
