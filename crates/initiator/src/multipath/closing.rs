//! How the sessions of a disk end: when it is logged out, and when its last handle is dropped.
//!
//! Each is logged out once the target has finished with what it carries. One that is lost meanwhile is
//! opened anew, so that the target drops what was left of it, and then logged out.

use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use crate::error::Error;
use crate::multipath::event::Event;
use crate::multipath::path::Path;
use crate::multipath::path_set::Remains;
use crate::multipath::reinstatement::Lost;
use crate::multipath::supervisor::Supervisor;

impl Supervisor {
    /// Ends all sessions in order, and waits until what lost ones have left is settled.
    ///
    /// # Errors
    /// [`Error::Unsettled`], or why a session ended, if not by the logout.
    pub(super) async fn close(
        &mut self,
        remains: Remains<Path>,
        event: Option<Event>,
    ) -> Result<(), Error> {
        self.settle_again();
        let mut failure = None;
        let mut logouts = remains.open.len();
        for path in remains.open {
            // It does not leave by another way.
            self.no_longer_leaves(&path);
            let logout = async move {
                path.unit.unregister().await;
                let result = path.unit.session().logout().await;
                Event::LoggedOut(path, result)
            };
            self.events.spawn(logout.in_current_span());
        }
        for (path, why) in remains.lost {
            self.reopen(path, why);
        }
        let mut next = event;
        loop {
            match next.take() {
                None
                | Some(
                    Event::New(_)
                    | Event::Looked(..)
                    | Event::Spread(_)
                    | Event::Better(_)
                    | Event::Spare(..)
                    | Event::Access(..)
                    | Event::Portals(_),
                ) => {}
                Some(Event::LoggedOut(path, result)) => {
                    logouts -= 1;
                    match result {
                        Err(why) if !path.unit.session().is_settled() => self.reopen(path, why),
                        Err(why) => failure = failure.or(Some(why)),
                        Ok(()) => {}
                    }
                }
                Some(Event::LetGo(path, result)) => self.let_go_ended(path, result),
                Some(Event::Stayed(path)) => {
                    self.no_longer_leaves(&path);
                }
                Some(Event::Again(lost, result)) => self.settled_by_reopening(lost, result),
                Some(Event::Settled(lost, result)) => self.settlement_ended(lost, result),
            }
            if logouts == 0 && !self.is_settling() {
                break;
            }
            match self.events.join_next().await {
                Some(event) => next = event.ok(),
                None => break,
            }
        }
        match self.unsettled.take() {
            Some(why) => Err(Error::Unsettled { why: Box::new(why) }),
            None => failure.map_or(Ok(()), Err),
        }
    }

    /// Goes on with what closing could not settle, as long as another disk of the initiator has the unit, or may yet be
    /// opened: whenever a write there waits for it. Until then what was left keeps its ranges.
    pub(super) async fn settle_for_others(&mut self) {
        // Nobody waits for sessions that are still being opened, or let go.
        self.events.abort_all();
        let is_shared = |lost: &Lost| lost.path().unit.state().unflushed.is_unit_of_another_disk();
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
