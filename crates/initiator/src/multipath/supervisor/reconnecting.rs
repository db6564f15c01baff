//! Reconnects lost sessions, and settles their writes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use crate::error::{Consequence, Error};
use crate::events::disk_event::DiskEvent;
use crate::multipath::paths::Paths;
use crate::multipath::paths::path::Path;
use crate::multipath::supervisor::event::{Event, NotOpened};
use crate::multipath::supervisor::reinstatement::Lost;
use crate::multipath::supervisor::{Supervisor, span_of};

impl Supervisor {
    /// Handles a lost session that has reconnected and is about to join. Returns whether its login settled the
    /// writes of the lost session.
    pub(super) fn reopened(&self, paths: &Paths, lost: &Lost, path: &Path) -> bool {
        self.report().with(|status| status.reconnects += 1);
        self.report_outage_end(paths);
        lost.settle_by(path)
    }

    pub(super) fn after_reopening(&mut self, lost: Lost, is_settled: bool) {
        if is_settled {
            self.settlement_ended(lost, Ok(()));
        } else {
            self.settle_otherwise(lost);
        }
    }

    /// Handles a lost session that will not reconnect. Even if its login reached a target, that may be
    /// another portal group than that of the lost session. So the writes of the lost session are settled by
    /// further logins.
    pub(super) fn not_reopened(&mut self, paths: &Paths, lost: Lost, not_opened: NotOpened) {
        let outlasts = self.outlasts(&not_opened);
        let why = not_opened.why;
        if outlasts && paths.open().is_empty() {
            return self.outlast(paths, lost, why);
        }
        let ((portal, key), error) = (lost.path().place(), why.clone());
        self.add_note_of(&lost, DiskEvent::ReconnectFailed { portal, key, error });
        self.review.refusal = Some(why.clone());
        if paths.open().is_empty() && self.losses.reconnecting.is_empty() {
            let end = lost.why().clone();
            self.settlement_ended(lost, Err(why.clone()));
            let error = Error::from(Consequence::NotReopened { lost: end, why });
            paths.end(&error);
            self.report().publish(&DiskEvent::Ended { error });
        } else {
            self.settle_otherwise(lost);
        }
    }

    /// Starts logins that make the target drop the writes of a lost session, if its reconnect did not do so.
    pub(super) fn settle_otherwise(&mut self, lost: Lost) {
        let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
        let span = span_of(lost.path());
        self.losses.settling.push(lost.path().clone());
        let settlement = async move {
            let result = opener.settle(&lost, expected).await;
            Event::Settled(lost, result)
        };
        self.tasks.events.spawn(settlement.instrument(span));
    }

    /// Handles the end of an attempt to settle the writes of a lost session. A failed attempt is repeated
    /// later, because a network or a target that was unreachable for long may come back.
    pub(super) fn settlement_ended(&mut self, lost: Lost, result: Result<(), Error>) {
        let key = lost.path().unit.session().key();
        let losses = &mut self.losses;
        losses.settling.retain(|path| path.unit.session().key() != key);
        if lost.path().unit.session().is_settled() {
            // The error stays while the writes of another lost session are unsettled.
            losses.unsettled = losses.unsettled.take().filter(|_| !losses.given_up.is_empty());
            return;
        }
        let why = result.err().unwrap_or_else(|| lost.why().clone());
        if self.losses.unsettled.is_none() {
            self.add_note_of(&lost, DiskEvent::WritesInDoubt { key, error: why.clone() });
        }
        self.losses.unsettled = Some(why);
        self.losses.given_up.push(lost);
        self.losses.settle_next = Instant::now() + self.max_pause();
    }

    /// Adds a note of a lost session, within its span.
    pub(super) fn add_note_of(&self, lost: &Lost, note: DiskEvent) {
        span_of(lost.path()).in_scope(|| self.report().add_note(note));
    }

    /// Returns the pause between two attempts to settle the writes of the sessions in `given_up`.
    pub(super) fn max_pause(&self) -> Duration {
        self.opener.node.options().advanced.reconnect_pauses.max_pause
    }

    /// Returns whether a write waits for the sessions in `given_up`. Also sets the time of the next check to
    /// one `max_pause` from now.
    pub(super) fn is_waited_for(&mut self) -> bool {
        self.losses.check_waiting_at = Instant::now() + self.max_pause();
        self.losses.given_up.iter().any(|lost| lost.path().unit.session().is_waited_for())
    }

    /// Retries to settle the writes of the sessions in `given_up`, if the retry is due. On an idle disk,
    /// retries only if a write waits for these writes; that may be a write of another disk.
    pub(super) fn settle_if_due(&mut self) {
        let is_due = !self.losses.given_up.is_empty() && self.losses.settle_next <= Instant::now();
        if is_due && (self.review.pace.is_awake() || self.is_waited_for()) {
            self.settle_again();
        }
    }

    /// Retries to settle the writes of all sessions in `given_up`.
    pub(super) fn settle_again(&mut self) {
        for lost in std::mem::take(&mut self.losses.given_up) {
            self.settle_otherwise(lost);
        }
    }

    /// Returns when to retry to settle the writes of the sessions in `given_up`. Returns `None` if there are
    /// none, or if `may_come` is false and `is_left` holds for none of them.
    pub(super) fn wait_to_settle(
        &self,
        is_left: impl Fn(&Lost) -> bool,
        may_come: bool,
    ) -> Option<Instant> {
        let given_up = &self.losses.given_up;
        let is_wanted = !given_up.is_empty() && (may_come || given_up.iter().any(is_left));
        is_wanted.then_some(self.losses.settle_next)
    }

    /// Sets the time of the next attempt to settle the writes of the sessions in `given_up` to one
    /// `max_pause` from now.
    pub(super) fn settle_later(&mut self) {
        self.losses.settle_next = Instant::now() + self.max_pause();
    }

    pub(super) fn take_lost(&mut self, paths: &Paths) {
        for (path, why) in paths.take_lost() {
            self.on_session_lost(path, why);
        }
    }

    /// Handles the loss of a session, which should reconnect.
    pub(super) fn on_session_lost(&mut self, path: Path, why: Error) {
        let span = span_of(&path);
        let ((portal, key), cause) = (path.place(), Some(why.clone()));
        span.in_scope(|| self.report().add_note(DiskEvent::PathDown { portal, key, cause }));
        self.reopen(Lost::new(path, why));
    }

    /// Adds a lost session to the sessions that should reconnect. Earlier attempts may have failed.
    pub(super) fn reopen(&mut self, lost: Lost) {
        self.losses.reconnecting.push(lost);
    }

    /// Starts to reconnect each lost session that is not reconnecting yet, whatever other sessions there are.
    pub(super) fn reconnect(&mut self) {
        for lost in self.losses.sessions() {
            if let Some(open) = self.topology.reconnect(&lost, self.opener.portals.len()) {
                self.open(open);
            }
        }
    }
}
