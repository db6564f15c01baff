//! Estimates how long a flush takes, and holds the state of the wait for a second session.

use std::sync::Arc;

use iscsi_multipath::FlushEstimate;
use tokio::sync::Notify;

/// The estimate of how long a flush takes, and the wait for the second session that a very long flush needs.
#[derive(Debug, Default)]
pub(crate) struct FlushWatch {
    pub(crate) estimate: FlushEstimate,
    /// Whether a flush waits for a second session.
    wants_session: bool,
    /// Notified when a path is added, or when no further session will be opened.
    news: Arc<Notify>,
}

impl FlushWatch {
    pub(crate) const fn wants_session(&self) -> bool {
        self.wants_session
    }

    pub(crate) const fn set_wants_session(&mut self, wants: bool) {
        self.wants_session = wants;
    }

    /// Returns the notification that a path was added, or that no further session will be opened.
    pub(crate) fn news(&self) -> Arc<Notify> {
        Arc::clone(&self.news)
    }

    pub(super) fn path_was_added(&self) {
        self.news.notify_waiters();
    }

    /// Ends the wait: no further session will be opened.
    pub(crate) fn none_comes(&mut self) {
        self.wants_session = false;
        self.news.notify_waiters();
    }
}
