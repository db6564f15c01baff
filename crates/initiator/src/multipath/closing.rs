//! How the sessions of a disk end: when it is logged out, and when its last handle is dropped.
//!
//! Each is logged out once the target has finished with what it carries. One that is lost meanwhile is
//! opened anew, so that the target drops what was left of it, and then logged out. So is one whose registration by the
//! key of the disk outlives it.

use std::sync::Arc;

use iscsi_pdu::Isid;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use crate::error::Error;
use crate::multipath::event::Event;
use crate::multipath::path::Path;
use crate::multipath::path_set::Remains;
use crate::multipath::reinstatement::{Lost, NotBack};
use crate::multipath::supervisor::Supervisor;
use crate::state::registration::Registration;

/// What has come of closing so far.
#[derive(Debug, Default)]
struct Closing {
    /// Sessions that are being logged out.
    logouts: usize,
    /// Why one did not end in order.
    failure: Option<Error>,
    /// Why one that was lost has not come back to end its registration.
    refusal: Option<Error>,
    /// Those that have come back for that: they do so once.
    came_back: Vec<Isid>,
}

impl Supervisor {
    /// Ends all sessions in order, and waits until what lost ones have left is settled, and until no nexus is registered by the
    /// key of the disk any more.
    ///
    /// # Errors
    /// [`Error::Unsettled`], [`Error::StillRegistered`], or why a session ended, if not by the logout.
    pub(super) async fn close(
        &mut self,
        remains: Remains<Path>,
        event: Option<Event>,
    ) -> Result<(), Error> {
        self.polls.give_up();
        self.settle_again();
        let mut closing = Closing::default();
        for path in remains.open {
            // It does not leave by another way.
            self.no_longer_leaves(&path);
            self.log_out(path, &mut closing);
        }
        for (path, why) in remains.lost {
            self.reopen(path, why);
        }
        for path in std::mem::take(&mut self.still_registered) {
            self.try_to_reopen(Lost::new(path, Error::Closed));
        }
        let registration = self.registration();
        let mut next = event;
        loop {
            if let Some(event) = next.take() {
                self.handle_while_closing(event, &mut closing);
            }
            // Each session that is still being opened may be registered by then.
            let may_register = registration.as_ref().is_some_and(|it| it.verdict().is_ok());
            if closing.logouts == 0 && !self.is_settling() && !may_register {
                break;
            }
            match self.events.join_next().await {
                Some(event) => next = event.ok(),
                None => break,
            }
        }
        let Closing { failure, refusal, .. } = closing;
        if let Some(why) = self.unsettled.take() {
            return Err(Error::Unsettled { why: Box::new(why) });
        }
        if let Some(registration) = registration.filter(|it| it.is_left()) {
            let why = refusal.or(failure).or_else(|| self.refusal.clone());
            return Err(registration.left_because(why.unwrap_or(Error::Closed)));
        }
        failure.map_or(Ok(()), Err)
    }

    fn handle_while_closing(&mut self, event: Event, closing: &mut Closing) {
        match event {
            Event::New(Ok(path))
            | Event::Looked(_, Ok(path))
            | Event::Spread(Ok(path))
            | Event::Better(Ok(path))
            | Event::Spare(_, Ok(path)) => self.log_out_registered(path, closing),
            Event::New(Err(_))
            | Event::Looked(_, Err(_))
            | Event::Spread(Err(_))
            | Event::Better(Err(_))
            | Event::Spare(_, Err(_))
            | Event::Access(..)
            | Event::Polled(_)
            | Event::Portals(_) => {}
            Event::LoggedOut(path, result) => {
                closing.logouts -= 1;
                if let Err(why) = result {
                    self.not_logged_out(path, why, closing);
                }
            }
            Event::LetGo(path, result) => {
                self.let_go_ended(path, result);
                for path in std::mem::take(&mut self.still_registered) {
                    self.try_to_reopen(Lost::new(path, Error::Closed));
                }
            }
            Event::Stayed(path) => {
                self.no_longer_leaves(&path);
            }
            Event::Again(lost, Ok(path)) => {
                closing.came_back.push(path.unit.session().isid());
                self.settled_by_reopening(lost, Ok(path.clone()));
                self.log_out_registered(path, closing);
            }
            Event::Again(lost, Err(NotBack { why, .. })) => {
                closing.refusal = Some(why.clone());
                self.settled_by_reopening(lost, Err(why));
            }
            Event::Settled(lost, result) => self.settlement_ended(lost, result),
        }
    }

    /// A session did not end in order. It is opened anew if something may be left of it.
    fn not_logged_out(&mut self, path: Path, why: Error, closing: &mut Closing) {
        let session = path.unit.session();
        let may_come_back = !closing.came_back.contains(&session.isid());
        if !session.is_settled() || path.unit.is_registered() && may_come_back {
            self.reopen(path, why);
        } else {
            closing.failure.get_or_insert(why);
        }
    }

    /// Logs a session out that has come too late to carry anything. One that is not registered does so by itself.
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
        self.events.spawn(logout.in_current_span());
    }

    /// The registrations of the disk, if it has a key.
    fn registration(&self) -> Option<Arc<Registration>> {
        self.expected.get()?.like.state().membership.registration().cloned()
    }

    /// Goes on with what closing could not settle, as long as another disk of the initiator has the unit, or may yet be
    /// opened: whenever a write there waits for it. Until then what was left keeps its ranges.
    pub(super) async fn settle_for_others(&mut self) {
        // Nobody waits for sessions that are still being opened, or let go.
        self.events.abort_all();
        let is_shared = |lost: &Lost| lost.path().unit.state().is_unit_of_another_disk();
        while !self.given_up.is_empty()
            && (self.opener.node.may_open_disks() || self.given_up.iter().any(is_shared))
        {
            sleep_until(self.settle_next).await;
            self.settle_next = Instant::now() + self.max_pause();
            if !self.is_waited_for() {
                continue;
            }
            self.settle_again();
            while let Some(event) = self.events.join_next().await {
                if let Ok(Event::Settled(lost, result)) = event {
                    self.settlement_ended(lost, result);
                }
            }
        }
    }

    /// A lost session is back, for no other reason than to be settled, or it is not.
    fn settled_by_reopening(&mut self, lost: Lost, result: Result<Path, Error>) {
        match result {
            Ok(path) if lost.settle_by(&path) => {}
            Ok(_) => self.settle_otherwise(lost),
            Err(why) => self.settlement_ended(lost, Err(why)),
        }
    }
}
