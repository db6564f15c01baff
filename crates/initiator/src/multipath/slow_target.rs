//! What a slow target asks of the sessions of a disk.

use std::pin::pin;
use std::sync::Arc;

use iscsi_session::Notice;
use tracing::Instrument;

use crate::error::Error;
use crate::multipath::dispatch::Paths;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::multipath::report::Report;
use crate::multipath::supervisor::{Supervisor, count, span_of};
use crate::options::sessions::Sessions;
use crate::session::Session;

impl Supervisor {
    /// Watches for the end of a session, so that its loss is noticed while it is idle. A session that was logged out is
    /// no path any more by then.
    pub(super) fn watch(&mut self, id: PathId, path: &Path) {
        let watch = watch(path.unit.session().clone(), Arc::clone(&self.report));
        self.ends.spawn(async move { (id, watch.await) }.instrument(span_of(path)));
    }

    /// Whether writes wait for flushes that take long because there is no other session.
    pub(super) fn lacks_one_for_flushes(&self, paths: &Paths<Path>) -> bool {
        let is_auto = matches!(self.sessions, Sessions::Auto { .. });
        is_auto
            && self.are_steady()
            && paths.has_slow_flushes()
            && count(&paths.open()) == 1
            && self.missing(paths) > 0
    }
}

impl Paths<Path> {
    /// The write data outstanding on each connection that the target takes in time, bytes, if it is slow.
    pub(super) fn limit_of_slow_target(&self) -> Option<u64> {
        let open = self.open();
        open.iter().filter_map(|(_, path)| path.unit.session().limit_of_slow_target()).min()
    }
}

/// Waits for the end of a session, and reports meanwhile when the target is busy.
async fn watch(session: Session, report: Arc<Report>) -> Error {
    let mut notices = session.notices();
    let mut closed = pin!(session.closed());
    let mut told = None;
    loop {
        tokio::select! {
            biased;
            end = &mut closed => return end.err().unwrap_or(Error::Closed),
            Some(notice) = notices.recv() => {
                if let Notice::Busy { operation, silence, .. } = notice {
                    let busy = format!("the target is busy: {operation} for {} s", silence.as_secs());
                    report.note_instead(told.replace(busy.clone()), busy);
                }
            }
        }
    }
}
