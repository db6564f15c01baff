//! A disk that outlasts a target that is gone for longer than requests wait.

use std::time::Duration;

use crate::error::{Consequence, Error};
use crate::events::disk_event::DiskEvent;
use crate::multipath::event::NotOpened;
use crate::multipath::paths::Paths;
use crate::multipath::reinstatement::Lost;
use crate::multipath::supervisor::Supervisor;
use crate::options::retry_timeout::OnRetryTimeout;

impl Supervisor {
    /// Whether the disk goes on though its last session has not come back, for this reason.
    pub(super) fn outlasts(&self, not_opened: &NotOpened) -> bool {
        let on_timeout = self.opener.node.options().waits.on_retry_timeout;
        on_timeout == OnRetryTimeout::FailRequests && !not_opened.is_final
    }

    /// No session has come back for as long as requests wait: they fail, and it is tried on.
    pub(super) fn outlast(&mut self, paths: &Paths, lost: Lost, why: Error) {
        let error = Error::from(Consequence::NotReopened { lost: lost.why().clone(), why });
        // What was lost later is waited for as long; the last pause is not begun.
        let patience = lost.path().unit.session().policy().patience;
        if refuse(paths, &error, patience.saturating_sub(self.max_pause())) {
            self.note_of(&lost, DiskEvent::RequestsFail { error });
        }
        self.reopen(lost);
    }

    /// A session is about to join.
    pub(super) fn note_return(&self, paths: &Paths) {
        if paths.lock().requests.is_refusing() {
            self.report().note(DiskEvent::RequestsResume);
        }
    }
}

/// Where there has been no path for so long, what waits fails, and what comes, until there is one again. Says whether that is
/// news.
fn refuse(paths: &Paths, why: &Error, after: Duration) -> bool {
    paths.change(|state| {
        if !state.paths.are_gone_for(after) {
            return false;
        }
        let was_refusing = state.requests.is_refusing();
        state.requests.refuse(&why.as_not_executed());
        !was_refusing
    })
}
