//! Opens and closes sessions as the [`Topology`](iscsi_multipath::topology::Topology) decides.

use std::sync::Arc;

use iscsi_multipath::topology::{
    Admission, Changes, CloseReason, Count, Lost as LostSession, Open, Session, Situation, Why,
};
use iscsi_multipath::{PathId, PortalId};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::multipath::paths::path::Path;
use crate::multipath::paths::{Paths, now};
use crate::multipath::supervisor::event::{Event, NotOpened};
use crate::multipath::supervisor::reinstatement::Lost;
use crate::multipath::supervisor::reopen::{ExpectedUnitReceiver, Opener, may_pass};
use crate::multipath::supervisor::{Supervisor, count, outcome, span_of};

impl Supervisor {
    /// Opens and closes sessions as the topology decides.
    pub(super) fn follow_topology(&mut self, paths: &Paths, count: Count) {
        let not_served = paths.take_useless();
        for (id, error) in &not_served {
            if let Some((_, path)) = paths.open().iter().find(|(there, _)| there == id) {
                let ((portal, key), error) = (path.place(), error.clone());
                self.report().add_note(DiskEvent::PathUnserved { portal, key, error });
            }
            self.review.refusal = Some(error.clone());
        }
        let sessions = paths.sessions(&not_served);
        let lost = self.losses.sessions();
        // A separate statement, because the expression below would hold the lock.
        let lacks_port = paths.lock().paths.take_call_for_port();
        let situation = Situation {
            count,
            lacks_port,
            wants_second: self.wants_second(paths),
            ..self.situation(&sessions, &lost)
        };
        let Changes { open, close, again } =
            self.topology.poll(&situation, &self.port_groups, now());
        self.again = again.map(Instant::from_std);
        self.log_count(&open, &close);
        for (id, reason) in close {
            match reason {
                CloseReason::NotServed => self.retire(paths, id),
                CloseReason::Surplus => self.let_go_of(paths, id),
            }
        }
        for open in open {
            self.open(open);
        }
        self.no_second_comes(paths);
    }

    fn situation<'a>(&self, sessions: &'a [Session], lost: &'a [LostSession]) -> Situation<'a> {
        Situation {
            portals: self.opener.portals.len(),
            sessions,
            lost,
            max: self.review.sessions.max(),
            count: Count::Stay,
            wants_all_portals: self.opener.portals.are_asked_for(),
            lacks_port: false,
            wants_second: false,
        }
    }

    fn log_count(&self, open: &[Open], close: &[(PathId, CloseReason)]) {
        let is_further = |open: &&Open| matches!(open.why, Why::Count | Why::Flush);
        let more = open.iter().filter(is_further).count();
        let fewer = close.iter().filter(|(_, reason)| *reason == CloseReason::Surplus).count();
        let reason = self.review.count.reason();
        if more > 0 {
            tracing::info!(more, reason, "more sessions");
        }
        if fewer > 0 {
            tracing::info!(fewer, reason, "fewer sessions");
        }
    }

    /// Starts to open a session.
    pub(super) fn open(&mut self, open: Open) {
        let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
        let lost = self.losses.get(open.why).cloned();
        let span = lost.as_ref().map_or_else(Span::current, |lost| span_of(lost.path()));
        let task = open_as_wanted(opener, open, lost, expected);
        self.tasks.events.spawn(task.instrument(span));
    }

    /// Handles a session that was opened: it joins the others, perhaps in place of one of them.
    pub(super) fn opened(&mut self, paths: &Paths, open: &Open, path: Path) {
        let sessions = paths.sessions(&[]);
        let (portal, situation) = (PortalId(path.portal), self.situation(&sessions, &[]));
        let admission = self.topology.opened(open.id, portal, &situation, &self.port_groups, now());
        let lost = self.losses.take(open.why);
        let is_settled = lost.as_ref().map(|lost| self.reopened(paths, lost, &path));
        match admission {
            Admission::Join => self.join(paths, path),
            Admission::Replace(id) => {
                self.join(paths, path);
                self.let_go_of(paths, id);
            }
            Admission::Dismiss => self.dismiss(path),
        }
        if let Some((lost, is_settled)) = lost.zip(is_settled) {
            self.after_reopening(lost, is_settled);
        }
    }

    /// Handles a session that could not be opened. The disk continues with the other sessions.
    pub(super) fn not_opened(&mut self, paths: &Paths, open: &Open, not_opened: NotOpened) {
        self.topology.ended(open.id, now());
        let error = &not_opened.why;
        match open.why {
            Why::Lost(_) => {
                if let Some(lost) = self.losses.take(open.why) {
                    self.not_reopened(paths, lost, not_opened);
                }
            }
            Why::Count | Why::Flush => {
                let note = DiskEvent::SessionNotOpened { portal: None, error: error.clone() };
                self.report().add_note(note);
                if !may_pass(error) {
                    let coming = self.topology.reconnecting() + self.topology.opening();
                    let why = format!("no further session can be opened: {error}");
                    self.review.count.cap(count(&paths.open()) + coming, why);
                }
                self.review.refusal = Some(not_opened.why);
            }
            Why::Spare => {
                let portal = open.portals.first().map_or(0, |portal| portal.0);
                let (portal, error) = (self.opener.portals.get(portal), error.clone());
                self.report().add_note(DiskEvent::SessionNotOpened { portal, error });
            }
            Why::Need | Why::Standby | Why::Spread | Why::Better => {
                tracing::debug!(reason = ?open.why, portals = ?open.portals, %error, "a session was not opened");
            }
        }
    }
}

/// Opens a session, and returns the result as an event, even if that panics.
pub(crate) async fn open_as_wanted(
    opener: Arc<Opener>,
    open: Open,
    lost: Option<Lost>,
    expected: ExpectedUnitReceiver,
) -> Event {
    let portals = open.portals.iter().map(|portal| portal.0).collect();
    let why = open.why;
    let session = Box::pin(async move {
        match lost {
            Some(lost) => opener.reopen(&lost, expected).await,
            None => opener.open(why, portals, expected).await.map_err(NotOpened::yet),
        }
    });
    let opened = outcome(session).await.unwrap_or(Err(NotOpened::yet(Error::closed())));
    Event::Opened(open, opened)
}
