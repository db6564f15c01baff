//! One TCP connection of a session.

mod admit;
pub(crate) mod inbox;
mod liveness;
pub(crate) mod outbox;
pub(crate) mod read_ahead;
pub(crate) mod set;
mod stat_sn;
pub(crate) mod state;
pub(crate) mod transmit;
pub(crate) mod transmitter;

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::time::Instant;

use iscsi_pdu::{Bhs, Cid, Header, Itt};

use crate::config::Timeouts;
use crate::error::{ProtocolError, SessionError};
use crate::login::{LoggedIn, Login};
use crate::params::Negotiated;
use crate::task::Task;
use crate::task::payload::PayloadSlice;
use crate::task::set::TaskSet;
use crate::timer::Timer;
use inbox::{Inbox, Received};
use liveness::Liveness;
use outbox::{Digests, Outbox};
use read_ahead::ReadAhead;
use stat_sn::StatSnOrder;
use state::ConnectionState;
use transmit::Transmit;
use transmitter::{Next, Transmitter, Urgent};

/// A connection: its state in the protocol, and its received and unsent bytes.
///
/// Invariant: in [`InLogin`](ConnectionState::InLogin) `login` is present; in
/// [`LoggedIn`](ConnectionState::LoggedIn) and [`InLogout`](ConnectionState::InLogout) the agreed parameters
/// are; in [`CleanupWait`](ConnectionState::CleanupWait) the reason of the failure is.
#[derive(Debug)]
pub(crate) struct Connection {
    cid: Cid,
    state: ConnectionState,
    attempt: LoginAttempt,
    /// Boxed, because a connection has a login only for a short time.
    login: Option<Box<Login>>,
    agreed: Option<Negotiated>,
    failure: Option<Box<SessionError>>,
    /// Whether the caller wants to drop the connection. If so, the connection sends no new command.
    leaving: bool,
    inbox: Inbox,
    outbox: Outbox,
    pub(crate) stat_sn: StatSnOrder,
    pub(crate) liveness: Liveness,
    pub(crate) transmitter: Transmitter,
}

/// Limits of a connection's login. They also apply when the login starts again.
#[derive(Clone, Copy, Debug)]
struct LoginAttempt {
    /// When connect and login must be complete.
    deadline: Option<Instant>,
    /// Number of redirections of the login by the target.
    redirects: u8,
}

impl LoginAttempt {
    const fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, redirects: 0 }
    }
}

/// Events of a connection (RFC 7143 §8.1).
impl Connection {
    /// Creates a connection whose transport connection is being made.
    pub(crate) fn new(cid: Cid, login_deadline: Option<Instant>, now: Instant) -> Self {
        Self {
            cid,
            state: ConnectionState::XptWait,
            attempt: LoginAttempt::new(login_deadline),
            login: None,
            agreed: None,
            failure: None,
            leaving: false,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            stat_sn: StatSnOrder::default(),
            liveness: Liveness::new(now),
            transmitter: Transmitter::default(),
        }
    }

    /// Starts the login over the new transport connection. Does nothing in any state but `XptWait`.
    pub(crate) fn transport_connected(&mut self, login: Login, now: Instant) {
        if self.state != ConnectionState::XptWait {
            return;
        }
        self.state = ConnectionState::InLogin;
        self.login = Some(Box::new(login));
        self.liveness.received(now);
    }

    /// Counts a redirection of the login by the target.
    ///
    /// # Errors
    /// When there were `limit` redirections already.
    pub(crate) const fn redirected(&mut self, limit: u8) -> Result<(), SessionError> {
        if self.attempt.redirects >= limit {
            return Err(SessionError::RedirectLoop);
        }
        self.attempt.redirects += 1;
        Ok(())
    }

    /// Starts the login again with a new transport connection, within the remaining time.
    pub(crate) fn login_restarted(&mut self) {
        *self = Self {
            attempt: self.attempt,
            transmitter: self.transmitter.restarted(),
            ..Self::new(self.cid, None, self.liveness.last_progress())
        };
    }

    /// Enters full feature phase: the login is complete.
    pub(crate) fn logged_in(&mut self, outcome: LoggedIn) {
        self.state = ConnectionState::LoggedIn;
        self.login = None;
        self.attempt.deadline = None;
        self.stat_sn.begin(outcome.exp_stat_sn);
        self.agreed = Some(outcome.negotiated);
    }

    /// Records that the caller wants to drop the connection.
    pub(crate) const fn leave(&mut self) {
        self.leaving = true;
    }

    /// Records that a logout that closes the connection is in wire order: nothing is sent after the logout.
    pub(crate) fn logout_sent(&mut self) {
        if self.is_up() {
            self.state = ConnectionState::InLogout;
        }
    }

    /// Records that the connection has failed in full feature phase. Discards received and unsent bytes, and
    /// everything that waits to be sent. Returns the urgent PDUs that waited, because another connection may
    /// send them.
    #[must_use]
    pub(crate) fn failed(&mut self, why: SessionError) -> VecDeque<Urgent> {
        let urgent = self.transmitter.take_urgent();
        *self = Self {
            state: ConnectionState::CleanupWait,
            failure: Some(Box::new(why)),
            ..Self::new(self.cid, None, self.liveness.last_progress())
        };
        urgent
    }
}

/// State of a connection.
impl Connection {
    pub(crate) const fn cid(&self) -> Cid {
        self.cid
    }

    pub(crate) const fn state(&self) -> ConnectionState {
        self.state
    }

    /// Returns whether the connection can send requests.
    pub(crate) fn is_up(&self) -> bool {
        self.state == ConnectionState::LoggedIn
    }

    /// Returns whether the connection can send new commands.
    pub(crate) fn takes_commands(&self) -> bool {
        self.is_up() && !self.leaving
    }

    /// Returns whether the caller wants to drop the connection.
    pub(crate) const fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(crate) const fn is_logging_in(&self) -> bool {
        matches!(self.state, ConnectionState::XptWait | ConnectionState::InLogin)
    }

    /// Returns whether the connection has failed in full feature phase and is not cleaned up.
    pub(crate) fn is_failed(&self) -> bool {
        self.state == ConnectionState::CleanupWait
    }

    /// Returns why the connection failed, until it is cleaned up.
    pub(crate) fn failure(&self) -> Option<&SessionError> {
        self.failure.as_deref()
    }

    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_deref()
    }

    pub(crate) fn login_mut(&mut self) -> Option<&mut Login> {
        self.login.as_deref_mut()
    }

    /// Sets a later deadline of the login, because the process was stopped and could not continue the login.
    pub(crate) const fn extend_login(&mut self, deadline: Instant) {
        self.attempt.deadline = Some(deadline);
    }

    /// Returns when connect and login must be complete.
    pub(crate) const fn login_deadline(&self) -> Option<Instant> {
        self.attempt.deadline
    }

    /// Returns the parameters agreed at login; `None` before full feature phase, and after a failure.
    pub(crate) const fn agreed(&self) -> Option<&Negotiated> {
        self.agreed.as_ref()
    }

    /// Returns when to send a NOP-Out because no byte has moved, or, if one is outstanding, when to close the
    /// connection. `None` if the connection cannot send requests, or the configuration wants no NOP-Outs.
    pub(crate) fn nop_timer(&self, timeouts: &Timeouts) -> Option<(Instant, Timer)> {
        if self.is_up() { self.liveness.timer(timeouts) } else { None }
    }

    /// Returns whether the socket has taken everything that was put in wire order.
    pub(crate) const fn is_idle(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Returns whether nothing waits to be sent on this connection, except commands of the session; `false`
    /// during a login.
    pub(crate) fn has_nothing_to_send(&self) -> bool {
        let is_in_login = matches!(self.state, ConnectionState::InLogin);
        !is_in_login && self.outbox.is_empty() && self.transmitter.is_empty()
    }

    /// Returns whether a command must wait until other commands of the connection end, because of the limits
    /// on outstanding data.
    pub(crate) fn is_at_limit(&self, task: &Task, tasks: &TaskSet) -> bool {
        let load = tasks.load_of(self.cid);
        let agreed = self.agreed.as_ref();
        agreed.is_some_and(|agreed| self.transmitter.is_at_write_limit(task, load, agreed))
            || self.transmitter.is_at_read_limit(self.cid, task, tasks)
    }

    fn digests(&self) -> Digests {
        self.agreed.as_ref().map_or_else(Digests::default, |agreed| Digests {
            header: agreed.header_digest,
            data: agreed.data_digest,
        })
    }
}

/// The bytes of a connection, and the PDUs that the bytes form.
impl Connection {
    /// Returns the memory for the next bytes; both slices are empty when no bytes are expected.
    pub(crate) fn receive_slices<'a>(&'a mut self, tasks: &'a mut TaskSet) -> [IoSliceMut<'a>; 2] {
        if self.state.is_live() {
            self.inbox.slices(tasks)
        } else {
            [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])]
        }
    }

    /// Returns the number of bytes of the arriving data segment that are still missing; 0 if the segment is
    /// discarded.
    pub(crate) fn segment_rest(&mut self, tasks: &mut TaskSet) -> usize {
        if self.state.is_live() { self.inbox.rest(tasks) } else { 0 }
    }

    pub(crate) fn lend_read_ahead(&mut self, memory: ReadAhead) {
        self.inbox.lend(memory);
    }

    pub(crate) fn reclaim_read_ahead(&mut self) -> Option<ReadAhead> {
        self.inbox.reclaim()
    }

    /// Processes `count` bytes that were read into the slices.
    pub(crate) fn bytes_received(&mut self, count: usize, now: Instant) {
        self.inbox.filled(count);
        self.liveness.received(now);
    }

    /// Returns the next complete PDU.
    pub(crate) fn next_received(
        &mut self,
        tasks: &mut TaskSet,
    ) -> Result<Option<Received>, ProtocolError> {
        if !self.state.is_live() {
            return Ok(None);
        }
        let (cid, digests, agreed) = (self.cid, self.digests(), self.agreed.as_ref());
        self.inbox.next(tasks, digests, |pdu, len, tasks| {
            admit::destination(pdu, len, cid, tasks, agreed)
        })
    }

    /// Returns what is sent next in full feature phase; `None` if nothing is due, or enough bytes wait for the
    /// socket. `command` is the next command of the session, if it may be sent now.
    pub(crate) fn next(&mut self, command: Option<Itt>, tasks: &mut TaskSet) -> Option<Next> {
        let command = command.filter(|_| self.takes_commands());
        let agreed = self.agreed.as_ref().filter(|_| !self.outbox.is_full())?;
        self.transmitter.next(self.cid, command, agreed, tasks)
    }

    /// Puts a PDU in wire order.
    pub(crate) fn push(&mut self, header: Header, data: PayloadSlice) {
        let digests = self.digests();
        self.outbox.push(header, data, digests);
    }

    /// Puts a Data-Out in wire order. It can be withdrawn while the socket has taken none of its bytes.
    pub(crate) fn push_data_out(&mut self, itt: Itt, bhs: Bhs, data: PayloadSlice) {
        let digests = self.digests();
        self.outbox.push_data_out(itt, bhs, data, digests);
    }

    /// Returns the bytes for the socket; `None` if there are none.
    pub(crate) fn transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let has_bytes = self.state.is_live() && !self.outbox.is_empty();
        has_bytes.then(|| Transmit::new(&mut self.outbox, &mut self.liveness, now))
    }

    /// Discards what a task still had to send on this connection, and returns whether data was withdrawn from
    /// the outbox.
    pub(crate) fn forget(&mut self, itt: Itt) -> bool {
        self.transmitter.forget(itt);
        self.liveness.forget(itt);
        self.outbox.withdraw_data_of(itt)
    }
}
