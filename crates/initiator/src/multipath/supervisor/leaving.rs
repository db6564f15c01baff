//! Logs out sessions that are not needed.

use std::sync::Arc;

use tracing::Instrument;

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::multipath::paths::Paths;
use crate::multipath::paths::path::Path;
use crate::multipath::supervisor::event::Event;
use crate::multipath::supervisor::reinstatement::Lost;
use crate::multipath::supervisor::{Supervisor, span_of};
use iscsi_multipath::PathId;

impl Supervisor {
    /// Closes a session, and logs it out once nothing is in flight on it.
    pub(super) fn let_go_of(&mut self, paths: &Paths, id: PathId) {
        paths.close(id);
        let Some((_, path)) = paths.open().into_iter().find(|(there, _)| *there == id) else {
            return;
        };
        let (paths, stayed) = (paths.clone(), path.clone());
        let report = Arc::clone(&self.opener.report);
        self.leave(path, async move {
            let Some(path) = paths.remove(id).await else { return Event::Stayed(stayed) };
            report.publish(&closed(&path));
            let_go(path).await
        });
    }

    /// Logs out a session that has nothing in flight.
    pub(super) fn dismiss(&mut self, path: Path) {
        self.leave(path.clone(), let_go(path));
    }

    /// Starts `leaving`, which logs out a session that is not needed, unless the session is needed again
    /// first.
    pub(super) fn leave(
        &mut self,
        path: Path,
        leaving: impl Future<Output = Event> + Send + 'static,
    ) {
        self.losses.leaving.push(path);
        self.tasks.events.spawn(leaving.in_current_span());
    }

    /// Removes a session from `leaving`, because it was logged out or will not be. Returns whether the
    /// session was in `leaving`.
    pub(super) fn no_longer_leaves(&mut self, path: &Path) -> bool {
        let key = path.unit.session().key();
        let mut leaving = self.losses.leaving.iter();
        // Only one entry is removed. The list may have a second one, because the session may be about to be
        // logged out again.
        let at = leaving.position(|leaving| leaving.unit.session().key() == key);
        at.map(|at| self.losses.leaving.swap_remove(at)).is_some()
    }

    /// Handles the result of logging out a session that was not needed. If the session was lost, its writes
    /// are settled.
    pub(super) fn let_go_ended(&mut self, path: Path, result: Result<(), Error>) {
        let was_to_leave = self.no_longer_leaves(&path);
        if was_to_leave && path.unit.is_registered() && path.unit.session().is_settled() {
            self.losses.still_registered.push(path.clone());
        }
        let Err(error) = result else { return };
        let span = span_of(&path);
        tracing::debug!(parent: span, %error, "a session that was let go did not log out in order");
        // If the session was not in `leaving`, it was logged out because the disk is being closed, and
        // closing settles its writes.
        if was_to_leave && !path.unit.session().is_settled() {
            self.settle_otherwise(Lost::new(path, error));
        }
    }
}

/// Returns the event that a session was closed because it is not needed.
pub(super) fn closed(path: &Path) -> DiskEvent {
    let (portal, key) = path.place();
    DiskEvent::PathDown { portal, key, cause: None }
}

/// Ends the registration of a session that is not needed, unless a reservation may end with it, and logs the
/// session out.
pub(super) async fn let_go(path: Path) -> Event {
    path.unit.unregister_unless_holder().await;
    let result = path.unit.session().logout().await;
    Event::LetGo(path, result)
}
