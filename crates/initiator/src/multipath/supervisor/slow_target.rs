//! Watches the sessions of a disk: their ends, the notices of the target, and whether slow flushes need a
//! second session.

use std::pin::pin;
use std::sync::Arc;

use iscsi_session::Notice;
use tracing::Instrument;

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::multipath::paths::Paths;
use crate::multipath::paths::path::Path;
use crate::multipath::report::Report;
use crate::multipath::supervisor::{Supervisor, span_of};
use crate::options::sessions::Sessions;
use crate::session::Session;
use iscsi_multipath::PathId;

impl Supervisor {
    /// Watches for the end of a session, so that its loss is noticed while it is idle, and reports the notices
    /// of the target. A session that is logged out on purpose is not a path by then, so its end has no effect.
    pub(super) fn watch(&mut self, id: PathId, path: &Path) {
        let watch = watch(path.unit.session().clone(), Arc::clone(&self.opener.report));
        self.tasks.ends.spawn(async move { (id, watch.await) }.instrument(span_of(path)));
    }

    /// Returns whether a second session is useful: because writes wait for slow flushes while there is
    /// traffic, or because a flush waits for a second session.
    pub(super) fn wants_second(&self, paths: &Paths) -> bool {
        let is_auto = matches!(self.review.sessions, Sessions::Auto { .. });
        let waits = paths.lock().flushes.wants_session();
        is_auto
            && self.are_steady()
            && (waits || self.review.moves && paths.lock().flushes.estimate.is_slow())
    }

    /// Ends the wait of a flush for a second session if no session is being opened.
    pub(super) fn no_second_comes(&self, paths: &Paths) {
        let mut state = paths.lock();
        if self.topology.opening() == 0 && state.flushes.wants_session() {
            state.flushes.none_comes();
        }
    }
}

/// Waits for the end of a session. Meanwhile reports the notices of the target.
async fn watch(session: Session, report: Arc<Report>) -> Error {
    let mut notices = session.notices();
    let mut closed = pin!(session.closed());
    let mut noted: Option<String> = None;
    loop {
        tokio::select! {
            biased;
            end = &mut closed => return end.err().unwrap_or_else(Error::closed),
            Some(notice) = notices.recv() => {
                let is_busy = matches!(notice, Notice::Busy { .. });
                let event = DiskEvent::Notice { key: session.key(), notice };
                if is_busy {
                    let old = noted.replace(event.to_string());
                    report.replace_note(old.as_deref(), event);
                } else {
                    report.publish(&event);
                }
            }
        }
    }
}
