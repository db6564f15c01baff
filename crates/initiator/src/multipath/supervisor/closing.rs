//! Ends the sessions of a disk: when the disk is logged out, and when its last handle is dropped.
//!
//! Each session is logged out once the target has finished with its commands. A session that is lost
//! meanwhile reconnects, so that the target drops the commands of the lost session, and is then logged out. A
//! session whose registration by the disk's key is still at the target also reconnects, to end the
//! registration.

use std::sync::Arc;

use iscsi_multipath::topology::Open;
use iscsi_pdu::Isid;
use tokio::time::sleep_until;
use tracing::Instrument;

use crate::error::{Consequence, Error};
use crate::multipath::paths::now;
use crate::multipath::paths::path::Path;
use crate::multipath::paths::set::Remains;
use crate::multipath::supervisor::Supervisor;
use crate::multipath::supervisor::event::{Event, NotOpened};
use crate::multipath::supervisor::reinstatement::Lost;
use crate::state::fencing::SharedFencing;

/// Progress of closing a disk.
#[derive(Debug, Default)]
struct Closing {
    /// Number of sessions that are being logged out.
    logouts: usize,
    /// Error of the first logout that failed.
    failure: Option<Error>,
    /// Error of the last lost session that could not reconnect, for example to end its registration.
    refusal: Option<Error>,
    /// Sessions that reconnected while the disk closes. A session reconnects only once to end its
    /// registration.
    came_back: Vec<Isid>,
}

impl Supervisor {
    /// Logs out all sessions. Waits until all writes of lost sessions are known to have ended and no
    /// registration by the key of the disk is left, or until that fails.
    ///
    /// # Errors
    /// [`Consequence::Unsettled`], [`Consequence::StillRegistered`], or the error that ended a session before
    /// its logout.
    pub(super) async fn close(
        &mut self,
        remains: Remains,
        event: Option<Event>,
    ) -> Result<(), Error> {
        // A logout waits for all commands in flight, so an idle poll without a response would delay the end
        // of the disk.
        if let Some(question) = self.tasks.poll.take() {
            question.abort();
        }
        self.settle_again();
        let mut closing = Closing::default();
        for path in remains.open {
            // The logout below replaces the logout that was waiting for this session to become idle.
            self.no_longer_leaves(&path);
            self.log_out(path, &mut closing);
        }
        for (path, why) in remains.lost {
            self.on_session_lost(path, why);
        }
        self.end_registrations();
        self.reconnect();
        let fencing = self.fencing();
        let mut next = event;
        loop {
            if let Some(event) = next.take() {
                self.handle_while_closing(event, &mut closing);
            }
            // The task of a session that is still being opened is awaited below, because the session may
            // register itself unless the disk was preempted.
            let may_register = fencing.as_ref().is_some_and(|it| it.verdict().is_ok());
            if closing.logouts == 0 && !self.losses.are_settling() && !may_register {
                break;
            }
            match self.tasks.events.join_next().await {
                Some(event) => next = event.ok(),
                None => break,
            }
        }
        let Closing { failure, refusal, .. } = closing;
        if let Some(why) = self.losses.unsettled.take() {
            return Err(Consequence::Unsettled { why }.into());
        }
        if let Some(fencing) = fencing.filter(|it| it.may_be_left()) {
            let why = refusal.or(failure).or_else(|| self.review.refusal.clone());
            return Err(fencing.left_because(why.unwrap_or_else(Error::closed)));
        }
        failure.map_or(Ok(()), Err)
    }

    fn handle_while_closing(&mut self, event: Event, closing: &mut Closing) {
        match event {
            Event::Opened(open, result) => self.opened_while_closing(&open, result, closing),
            Event::Access(..) | Event::Polled(_) | Event::Portals(_) => {}
            Event::LoggedOut(path, result) => {
                closing.logouts -= 1;
                if let Err(why) = result {
                    self.not_logged_out(path, why, closing);
                }
            }
            Event::LetGo(path, result) => {
                self.let_go_ended(path, result);
                self.end_registrations();
                self.reconnect();
            }
            Event::Stayed(path) => {
                self.no_longer_leaves(&path);
            }
            Event::Settled(lost, result) => self.settlement_ended(lost, result),
        }
    }

    /// Ends a session that was opened too late to carry requests. If the session reconnected, its login may
    /// settle the writes of the lost session.
    fn opened_while_closing(
        &mut self,
        open: &Open,
        result: Result<Path, NotOpened>,
        closing: &mut Closing,
    ) {
        self.topology.ended(open.id, now());
        match (self.losses.take(open.why), result) {
            (None, Ok(path)) => self.log_out_registered(path, closing),
            (None, Err(_)) => {}
            (Some(lost), Ok(path)) => {
                closing.came_back.push(path.unit.session().isid());
                let is_settled = lost.settle_by(&path);
                self.after_reopening(lost, is_settled);
                self.log_out_registered(path, closing);
            }
            (Some(lost), Err(NotOpened { why, .. })) => {
                closing.refusal = Some(why.clone());
                self.settlement_ended(lost, Err(why));
            }
        }
    }

    /// Reconnects sessions that are gone and still registered, so that they end the registration.
    fn end_registrations(&mut self) {
        for path in std::mem::take(&mut self.losses.still_registered) {
            self.reopen(Lost::new(path, Error::closed()));
        }
    }

    /// Handles a session whose logout failed. The session reconnects if the target may still have commands or
    /// a registration of it.
    fn not_logged_out(&mut self, path: Path, why: Error, closing: &mut Closing) {
        let session = path.unit.session();
        let may_come_back = !closing.came_back.contains(&session.isid());
        if !session.is_settled() || path.unit.is_registered() && may_come_back {
            self.on_session_lost(path, why);
            self.reconnect();
        } else {
            closing.failure.get_or_insert(why);
        }
    }

    /// Logs out a session that was opened too late, if it is registered. An unregistered session is logged
    /// out when it is dropped.
    fn log_out_registered(&mut self, path: Path, closing: &mut Closing) {
        if path.unit.is_registered() {
            self.log_out(path, closing);
        }
    }

    fn log_out(&mut self, path: Path, closing: &mut Closing) {
        closing.logouts += 1;
        let logout = async move {
            let unregistered = path.unit.unregister().await;
            let result = path.unit.session().logout().await;
            Event::LoggedOut(path, result.and(unregistered))
        };
        self.tasks.events.spawn(logout.in_current_span());
    }

    /// Returns the registrations of the disk, if it has a key.
    fn fencing(&self) -> Option<Arc<SharedFencing>> {
        self.expected.get()?.like.state().membership.fencing().cloned()
    }

    /// Continues to settle the writes that closing could not settle, while another disk of the initiator uses
    /// the unit or may still be opened. Tries again whenever a write of another disk waits for the ranges of
    /// these writes, which stay locked until they are settled.
    pub(super) async fn settle_for_others(&mut self) {
        // No task waits for the sessions that are still being opened or logged out, so their tasks are aborted.
        self.tasks.events.abort_all();
        let is_shared = |lost: &Lost| lost.path().unit.state().is_unit_of_another_disk();
        while let Some(next) = self.wait_to_settle(is_shared, self.opener.node.may_open_disks()) {
            sleep_until(next).await;
            self.settle_later();
            if !self.is_waited_for() {
                continue;
            }
            self.settle_again();
            while let Some(event) = self.tasks.events.join_next().await {
                if let Ok(Event::Settled(lost, result)) = event {
                    self.settlement_ended(lost, result);
                }
            }
        }
    }
}
