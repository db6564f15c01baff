//! Handles outages: a target is unreachable for longer than requests wait, and the disk continues.

use std::time::Duration;

use crate::error::{Consequence, Error};
use crate::events::disk_event::DiskEvent;
use crate::multipath::paths::Paths;
use crate::multipath::supervisor::Supervisor;
use crate::multipath::supervisor::event::NotOpened;
use crate::multipath::supervisor::reinstatement::Lost;
use crate::options::retry_timeout::OnRetryTimeout;

impl Supervisor {
    /// Returns whether the disk continues although its last session failed to reconnect for this reason.
    pub(super) fn outlasts(&self, not_opened: &NotOpened) -> bool {
        let on_timeout = self.opener.node.options().waits.on_retry_timeout;
        on_timeout == OnRetryTimeout::FailRequests && !not_opened.is_final
    }

    /// Fails the requests, because no session has reconnected within their time limit, and continues to
    /// reconnect.
    pub(super) fn outlast(&mut self, paths: &Paths, lost: Lost, why: Error) {
        let error = Error::from(Consequence::NotReopened { lost: lost.why().clone(), why });
        // Requests are refused only if there has been no path for the whole time limit of this session,
        // because another session may have been lost later. The time may be shorter by one pause, because a
        // pause that would end after the limit is not started.
        let patience = lost.path().unit.session().policy().patience;
        if refuse(paths, &error, patience.saturating_sub(self.max_pause())) {
            self.add_note_of(&lost, DiskEvent::RequestsFail { error });
        }
        self.reopen(lost);
    }

    /// Reports the end of an outage, if there is one: a session is about to join.
    pub(super) fn report_outage_end(&self, paths: &Paths) {
        if paths.lock().requests.is_refusing() {
            self.report().add_note(DiskEvent::RequestsResume);
        }
    }
}

/// If there has been no path for `after`, fails the requests that wait, and later requests until there is a
/// path again. Returns whether this has started to refuse requests.
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
