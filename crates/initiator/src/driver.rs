//! Drives a session: owns its state machine and its sockets, behind a lock.
//!
//! A caller hands its request to the session directly, and sends a small request itself if no other request is
//! expected to be sent with it. The [event loop](event_loop) waits for everything else: sockets, deadlines, and
//! the messages that callers leave in a queue. The driver never waits for a caller: each request has a separate
//! channel for its result.

mod alarm;
pub(crate) mod answers;
mod bytes;
pub(crate) mod clear_text;
pub(crate) mod connection_count;
pub(crate) mod connector;
mod event_loop;
pub(crate) mod handle;
mod links;
mod lock;
pub(crate) mod measure;
pub(crate) mod peer;
mod queue;
pub(crate) mod referral;
pub(crate) mod request;
mod requests;
pub(crate) mod shared;
mod stalls;
mod transports;
mod turns;
pub(crate) mod waiter;

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;

use iscsi_pdu::{Cid, Itt, TargetAddress};
use iscsi_session::{Notice, Output, Session, SessionError, SubmitError, TransportError};
use tokio::time::Instant;
use tracing::Span;

use crate::driver::connector::{Connected, Opening, Reach};
use crate::driver::peer::Peer;
use crate::driver::queue::Queue;
use crate::driver::referral::portal_at;
use crate::driver::request::{Message, Outcome, Submission};
use crate::driver::shared::{LoginResult, SessionPhase, Shared};
use crate::error::{Error, LinkCause};
use links::{Links, LoopCall};
use requests::Requests;
use transports::{Transport, span_of};

/// CID of the leading connection: the one that a session begins with.
const LEADING: Cid = Cid(0);

/// A session and its connections.
pub(crate) struct Driver {
    session: Session,
    peer: Peer,
    shared: Arc<Shared>,
    /// Span of the session's log entries: a copy of the span in `shared`, so that a request need not read
    /// `shared`.
    span: Span,
    inbox: Inbox,
    reach: Reach,
    links: Links,
    /// Time at which the present turn began, used for everything in the turn. It is read from the runtime's
    /// clock, so that tests can control it.
    now: Instant,
    event_loop: LoopCall,
    requests: Requests,
    ended: bool,
}

/// The messages for a driver.
#[derive(Default)]
struct Inbox {
    /// Number of messages that the queue has reported to the event loop and that are not handled yet.
    announced: usize,
    /// Messages taken from the queue in a turn; kept between turns to reuse its memory.
    messages: Vec<Message>,
    /// Whether all handles of the session have been dropped.
    orphaned: bool,
}

impl Driver {
    fn new(session: Session, peer: Peer, shared: Arc<Shared>, reach: Reach) -> Self {
        let now = Instant::now();
        Self {
            session,
            peer,
            span: shared.span.clone(),
            shared,
            inbox: Inbox::default(),
            links: Links::new(reach.connections, now),
            reach,
            now,
            event_loop: LoopCall::default(),
            requests: Requests::new(now),
            ended: false,
        }
    }

    /// Executes the session's outputs, and sends PDUs until none is left or the sockets take no more.
    fn finish_turn(&mut self) {
        self.dispatch();
        while !self.ended
            && let Err((cid, why)) = self.write_within_limits()
        {
            self.on_write_failed(cid, why);
            self.dispatch();
        }
    }

    /// Handles the messages in the queue, up to the limit for one turn; returns the number of handled messages.
    fn obey_messages(&mut self, queue: &Queue) -> usize {
        self.inbox.announced = 0;
        queue.take(&mut self.inbox.messages);
        let count = self.inbox.messages.len();
        if count > 0 {
            self.requests.answers.asked(count);
            let mut messages = std::mem::take(&mut self.inbox.messages);
            messages.drain(..).for_each(|message| self.obey(message));
            self.inbox.messages = messages;
        }
        count
    }

    fn obey(&mut self, message: Message) {
        match message {
            Message::Submit(submission) => self.submit(*submission),
            Message::Cancel(id) => self.requests.cancel(id, &mut self.session, self.now),
            Message::Logout => self.session.logout(self.now()),
            Message::Loss(loss) => self.links.on_link_loss(loss, &self.shared),
            Message::SlowTarget(bytes) => {
                self.links.on_slow_target(bytes, &mut self.session, &self.shared);
            }
            Message::Read(answer) => self.links.send_readings(answer, &self.shared, self.now),
        }
    }

    fn submit(&mut self, submission: Submission) {
        self.links.wake(&self.shared, self.now);
        self.requests.start(submission, &mut self.session, &self.shared, self.now);
    }

    /// Passes the result of a request on to its caller.
    fn answer(&mut self, itt: Itt, outcome: Outcome) {
        let of = (&*self.shared, &self.peer);
        self.requests.end(itt, outcome, &mut self.session, of, self.now);
    }

    /// Executes all outputs of the session.
    fn dispatch(&mut self) {
        self.links.update_window(&self.session, &self.shared);
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Connect { cid, address } => self.open(cid, address),
                Output::Disconnect { cid, abortive } => self.close(cid, abortive),
                Output::ConnectionLost { cid, why } => self.lost(cid, &why),
                Output::LoggedIn { cid } => self.logged_in(cid),
                Output::Notice(notice) => self.announce(&notice),
                Output::Completed { itt, result } => self.answer(itt, Outcome::Command(result)),
                Output::Managed { itt, result } => self.answer(itt, Outcome::Manage(result)),
                Output::Discovered { itt, result } => {
                    self.answer(itt, Outcome::SendTargets(result));
                }
                Output::Ponged { itt, result } => self.answer(itt, Outcome::Ping(result)),
                Output::Ended(result) => self.end(result),
                _ => {}
            }
        }
    }

    fn announce(&self, notice: &Notice) {
        if let Notice::Redirected { permanent, .. } = notice {
            self.shared.is_redirected(*permanent);
        }
        self.shared.course.notices.publish(notice);
    }

    /// Returns when this turn began, as the session's type of time.
    fn now(&self) -> std::time::Instant {
        self.now.into_std()
    }

    fn end(&mut self, result: Result<(), SessionError>) {
        let result = result.map_err(|cause| self.peer.explain(cause, false));
        if let Some(reopening) = self.session.reopening() {
            self.shared.course.reopening.get_or_init(|| reopening);
        }
        self.shared.course.phase.set(SessionPhase::Ended(result));
        self.shared.course.notices.end();
        self.ended = true;
    }

    /// Ends the session's requests when no task runs the driver any more, although the session may not have
    /// ended. The target may still execute the commands that it received. After a panic the driver cannot tell
    /// which commands were not sent yet, so all count as sent.
    fn abandon(&mut self) {
        if self.ended {
            return;
        }
        self.requests.leave_unsettled(&self.shared);
        self.shared.course.phase.set(SessionPhase::Ended(Err(Error::closed())));
        self.shared.course.notices.end();
        self.ended = true;
        self.requests.fail(&self.peer, self.now);
    }
}

/// Opens and closes the connections of the session: the leading one, and those that join it.
impl Driver {
    /// Opens a connection. A connection that joins the session uses the portal of the leading connection, unless
    /// the target has redirected it.
    fn open(&mut self, cid: Cid, address: Option<TargetAddress>) {
        let is_first = cid == LEADING && address.is_none();
        let (portal, referral) = match (cid, address) {
            (LEADING, address) => {
                self.peer.turn_to(address);
                (self.peer.portal().clone(), self.peer.referral())
            }
            (_, Some(address)) => (address, Some(self.peer.redirection())),
            (_, None) => (self.peer.portal().clone(), self.peer.referral()),
        };
        let opening = match self.reach.reached.take().filter(|_| is_first) {
            Some(connected) => Box::pin(ready(Ok(*connected))) as Opening,
            None => self.reach.connector.open(portal, referral),
        };
        self.links.transports.push(Transport::new(cid, opening));
        self.event_loop.is_called = true;
    }

    /// Handles the result of an attempt to connect.
    fn opened(&mut self, cid: Cid, result: Result<Connected, LinkCause>) {
        match result {
            Ok(connected) => {
                if cid == LEADING {
                    self.peer.reached();
                    self.followed(connected.1.address());
                }
                self.session.handle_connected(cid, self.now());
                if let Some(transport) = self.links.find(cid) {
                    transport.stand(connected);
                }
                self.links.limit_requests(&mut self.session, &self.shared, self.now);
            }
            Err(why) => {
                self.remove(cid);
                let error = TransportError::Connect(why.to_string());
                if cid == LEADING {
                    self.peer.not_reached(why);
                }
                self.session.handle_disconnected(cid, error, self.now());
            }
        }
    }

    /// Reports that the leading connection has followed a redirection, if there was one.
    fn followed(&self, address: SocketAddr) {
        let Some(referral) = self.peer.referral() else { return };
        let note = referral.redirect_event(self.peer.portal(), address);
        if let Some(note) = &note {
            tracing::warn!("{note}");
        }
        // Later connections go to the address, which no name service can change. With TLS they need the name, which the
        // certificate proves.
        let moved = if self.shared.named.tls.is_some() {
            self.peer.portal().clone()
        } else {
            portal_at(address)
        };
        self.shared.redirected(&moved, note.map(Box::new));
    }

    /// Closes a connection on the session's request.
    fn close(&mut self, cid: Cid, abortive: bool) {
        if let Some(transport) = self.remove(cid) {
            if let Some(tuner) = transport.tuner() {
                self.peer.left(tuner.address().ip());
            }
            transport.close(abortive);
        }
    }

    /// Reports a lost connection to the session, which decides what follows.
    fn on_connection_lost(&mut self, cid: Cid, why: TransportError) {
        self.session.handle_disconnected(cid, why, self.now());
    }

    /// Removes a lost connection. The session continues over its other connections.
    fn lost(&mut self, cid: Cid, why: &SessionError) {
        self.remove(cid);
        span_of(cid).in_scope(|| self.remark(&format!("a connection of the session ended: {why}")));
    }

    /// Marks a connection as logged in: it has reached full feature phase. If it is the leading one, the session
    /// accepts requests.
    fn logged_in(&mut self, cid: Cid) {
        if let Some(transport) = self.links.find(cid) {
            transport.is_logged_in = true;
            if let Some(agreed) = self.session.negotiated_on(cid) {
                transport.tune(|socket, tuner| tuner.agreed(socket, agreed));
                self.links.window = None;
            }
        }
        self.count_open();
        if cid == LEADING {
            self.begin();
        }
    }

    /// Makes the session ready for requests, and starts the further connections.
    fn begin(&mut self) {
        if let Some(negotiated) = self.session.negotiated().cloned() {
            self.add_connections(negotiated.max_connections);
            // The leading connection logs in only once, so setting `terms` cannot fail: its result is dropped.
            let (portal, tsih) = (self.peer.portal().clone(), self.session.tsih());
            let leading = self.links.transports.iter().find(|transport| transport.cid == LEADING);
            let address = leading.and_then(Transport::tuner).map(|tuner| tuner.address().ip());
            tracing::info!(%portal, tsih = tsih.0, "logged in");
            drop(self.shared.course.terms.set(LoginResult { negotiated, portal, address, tsih }));
        }
        self.links.update_window(&self.session, &self.shared);
        self.shared.course.phase.set(SessionPhase::LoggedIn);
    }

    /// Asks for all connections that the target agrees to, concurrently.
    fn add_connections(&mut self, agreed: u16) {
        for cid in (1..self.reach.connections.min(agreed)).map(Cid) {
            match self.session.add_connection(cid, self.now()) {
                Ok(()) => {}
                Err(error @ SubmitError::NoTsih) => self.remark(&error.to_string()),
                // The session may be logging out already; then it needs no further connection.
                Err(error) => tracing::debug!(%cid, %error, "a connection is not added"),
            }
        }
        if agreed < self.reach.connections {
            let wanted = self.reach.connections;
            self.remark(&format!(
                "the target agrees to {agreed} of {wanted} connections in a session (MaxConnections)"
            ));
        }
    }

    /// Logs why the session has fewer connections than wanted, and stores the reason for the status.
    fn remark(&self, reason: &str) {
        tracing::warn!("{reason}");
        self.shared.with_connections(|connections| connections.remark(reason));
    }

    fn remove(&mut self, cid: Cid) -> Option<Transport> {
        let at = self.links.transports.iter().position(|transport| transport.cid == cid)?;
        let transport = self.links.transports.remove(at);
        self.count_open();
        Some(transport)
    }

    fn count_open(&self) {
        let open = self.links.transports.iter().filter(|transport| transport.is_logged_in).count();
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        self.shared.with_connections(|connections| connections.open = open);
    }

    /// Reads from the kernel what each connection waits for. Starts a trial of the path of a connection that
    /// stands still, or closes the connection if its path is known to drop long packets.
    fn poll_kernel(&mut self) {
        let has_requests = self.requests.len() > 0;
        self.links.poll_kernel(&mut self.session, &self.shared, has_requests, self.now);
        for (cid, why) in self.links.stalled(&self.reach, self.session.awaited_data()) {
            self.on_connection_lost(cid, why);
        }
        for (cid, why) in self.links.unacknowledged(|| self.requests.others_answer()) {
            self.on_connection_lost(cid, why);
        }
    }
}
