//! The session: its parts, and the calls of the driver.
//!
//! Design: `docs/design/session.md`.

mod abort;
mod cleanup;
mod cleared;
mod connections;
mod end;
mod management;
mod requests;
mod timeouts;

use std::fmt;
use std::io::IoSliceMut;
use std::time::Instant;

use iscsi_pdu::{Cid, CmdSn, Isid, Itt, Tsih};

use crate::config::Config;
use crate::connection::Connection;
use crate::connection::read_ahead::ReadAhead;
use crate::connection::set::ConnectionSet;
use crate::connection::state::ConnectionState;
use crate::entropy::Entropy;
use crate::error::TransportError;
use crate::login::logins::Logins;
use crate::login::{Login, LoginIdentity};
use crate::output::{Output, Outputs};
use crate::params::Negotiated;
use crate::reopening::Reopening;
use crate::state::SessionState;
use crate::stats::Stats;
use crate::task::queue::CommandQueue;
use crate::task::set::{NO_TASK, TaskSet};
use crate::window::CommandWindow;

/// The connection a session begins with.
const LEADING: Cid = Cid(0);

/// An iSCSI session: an I_T nexus, its connections and its tasks (RFC 7143 §4.2).
///
/// See the [crate documentation](crate) for the order of calls.
pub struct Session {
    pub(crate) config: Config,
    pub(crate) state: SessionState,
    pub(crate) logins: Logins,
    pub(crate) connections: ConnectionSet,
    pub(crate) window: CommandWindow,
    pub(crate) tasks: TaskSet,
    pub(crate) commands: CommandQueue,
    pub(crate) outputs: Outputs,
    pub(crate) stats: Stats,
}

impl Session {
    /// Creates a session, which asks for its first connection immediately.
    ///
    /// `entropy` must be a cryptographic source if CHAP is configured.
    pub fn new(config: Config, entropy: impl Entropy + 'static, now: Instant) -> Self {
        let mut session = Self {
            state: SessionState::new(),
            logins: Logins::new(entropy),
            connections: ConnectionSet::default(),
            window: CommandWindow::new(config.first_cmd_sn),
            tasks: TaskSet::new(config.max_tasks).beginning_at(config.first_tag_generation),
            commands: CommandQueue::default(),
            outputs: Outputs::default(),
            stats: Stats::default(),
            config,
        };
        session.connect(LEADING, now);
        session
    }

    /// Informs the session that the transport connection is made: the login begins.
    pub fn handle_connected(&mut self, cid: Cid, now: Instant) {
        let leading = self.state.is_free();
        let identity = LoginIdentity {
            cid,
            tsih: self.state.tsih(),
            itt: LOGIN_TAG,
            cmd_sn: self.window.current(),
            leading,
            session: if leading { None } else { self.negotiated().cloned() },
            single_chap_algorithm: self.logins.uses_single_chap_algorithm(),
        };
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transport_connected(Login::new(&self.config, identity), now);
        }
    }

    /// Informs the session that the transport connection could not be made, was closed, or failed.
    pub fn handle_disconnected(&mut self, cid: Cid, why: TransportError, now: Instant) {
        match self.connections.get(cid).map(Connection::state) {
            // A target may close first once it has seen the logout request.
            Some(ConnectionState::InLogout) if self.is_logging_out() => self.logged_out(),
            Some(ConnectionState::InLogin) if self.may_have_closed_over_list(cid) => {
                tracing::debug!(%cid, %why, "gone at the list of CHAP algorithms");
                self.try_single_algorithm(cid);
            }
            _ => self.fail_connection(cid, why.into(), now),
        }
        self.follow_up(now);
    }

    /// Returns the memory for the next bytes of a connection: read into the slices in order, then call
    /// [`handle_received`](Self::handle_received). Both are empty when nothing is expected.
    pub fn receive_slices(&mut self, cid: Cid) -> [IoSliceMut<'_>; 2] {
        match self.connections.get_mut(cid) {
            Some(connection) => connection.receive_slices(&mut self.tasks),
            None => [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])],
        }
    }

    /// Lends a connection memory for the headers and short data segments that are read next, until it is [taken
    /// back](Self::reclaim_read_ahead) or the connection is gone. Without it the connection allocates its own,
    /// and keeps it.
    pub fn lend_read_ahead(&mut self, cid: Cid, memory: ReadAhead) {
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.lend_read_ahead(memory);
        }
    }

    /// Takes back the memory in which a connection reads ahead. Bytes that have arrived in it stay with the
    /// connection. Returns `None` if the connection has none or is gone.
    pub fn reclaim_read_ahead(&mut self, cid: Cid) -> Option<ReadAhead> {
        self.connections.get_mut(cid)?.reclaim_read_ahead()
    }

    /// Returns the missing bytes of a data segment that has begun to arrive; until they are there, nothing
    /// else can be read from the connection.
    pub fn segment_rest(&mut self, cid: Cid) -> usize {
        let connection = self.connections.get_mut(cid);
        connection.map_or(0, |connection| connection.segment_rest(&mut self.tasks))
    }

    /// Informs the session that `count` bytes were read into the slices of
    /// [`receive_slices`](Self::receive_slices).
    pub fn handle_received(&mut self, cid: Cid, count: usize, now: Instant) {
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.bytes_received(count, now);
        }
        while let Some(connection) = self.connections.get_mut(cid) {
            let result = match connection.next_received(&mut self.tasks) {
                Ok(Some(received)) => {
                    self.stats.pdus_received += 1;
                    self.receive(cid, received, now)
                }
                Ok(None) => break,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = result {
                self.fail_for(cid, error, now);
            }
        }
        self.follow_up(now);
    }

    /// Returns the next thing to do or to pass on, oldest first.
    #[must_use = "an output is handed out once"]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop()
    }

    /// Returns the parameters agreed with the target; `None` before full feature phase.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.connections.agreed()
    }

    /// Returns the parameters agreed for one connection; digests and segment lengths may differ
    /// between connections.
    pub fn negotiated_on(&self, cid: Cid) -> Option<&Negotiated> {
        self.connections.get(cid)?.agreed()
    }

    /// The handle the target gave the session; zero before the end of the first login. Some targets
    /// give none: then no connection can join the session, and the standard's reinstatement of it
    /// (RFC 7143 §6.3.5) cannot be relied on.
    pub const fn tsih(&self) -> Tsih {
        self.state.tsih()
    }

    /// Returns when the session may reconnect, counted from its end; `None` before the end, and for
    /// a session that never reached full feature phase.
    #[doc(alias = "reconnect")]
    pub const fn reopening(&self) -> Option<Reopening> {
        self.state.reopening()
    }

    /// The initiator's part of the session identifier.
    pub const fn isid(&self) -> Isid {
        self.config.isid
    }

    /// Counters since the session began.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the number of further commands that the target would accept now.
    pub fn window(&self) -> u32 {
        let beyond = self.window.max_cmd_sn().next().distance_from(self.window.current());
        u32::try_from(beyond).unwrap_or_default()
    }

    /// Returns the number of commands that the target accepts beyond those it has received in order,
    /// by its latest report. The window may be smaller at the end of the login than from the first
    /// command on.
    pub fn command_window(&self) -> u32 {
        let size = self.window.max_cmd_sn().next().distance_from(self.window.exp_cmd_sn());
        u32::try_from(size).unwrap_or_default()
    }

    /// Limits the write data, in bytes, that the target may be waiting for on a connection; initially
    /// there is no limit. A write beyond the limit waits until other writes of the connection end,
    /// unless another connection takes it; requests submitted after it wait behind it. A write that
    /// is alone is never held back. Connections share the commands in proportion to their limits.
    ///
    /// A target gives up on a connection that does not bring the data of an R2T in time (LIO: 3 seconds, counted again
    /// from each Data-Out). So on a slow link fewer writes should be in flight than the command window admits. A
    /// Data-Out carries an eighth of the limit at most, but not less than 8 KiB.
    pub fn limit_writes(&mut self, cid: Cid, bytes: u64) {
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transmitter.limit_writes(bytes);
        }
    }

    /// Limits the read data, in bytes, that is requested and not yet received on a connection; initially there is
    /// no limit. A read beyond the limit waits, by the rules of [`limit_writes`](Self::limit_writes).
    ///
    /// Requested data arrive before the pings of the target, which gives up on a connection whose answer to a
    /// ping comes late (LIO: 30 seconds).
    pub fn limit_reads(&mut self, cid: Cid, bytes: u64) {
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transmitter.limit_reads(bytes);
        }
    }

    /// Returns the write data that the target may be waiting for now on a connection, and the write data of the
    /// writes that have ended there, bytes. From both the caller can find how long a write takes, whatever the
    /// [limit](Self::limit_writes) is.
    pub fn write_progress(&self, cid: Cid) -> (u64, u64) {
        let load = self.tasks.load_of(cid);
        (load.outstanding, load.concluded)
    }

    /// The oldest CmdSN the target has not seen in order.
    pub const fn exp_cmd_sn(&self) -> CmdSn {
        self.window.exp_cmd_sn()
    }

    /// Returns whether the session has ended and all its outputs were returned.
    pub fn is_ended(&self) -> bool {
        self.state.is_ended() && self.outputs.is_empty()
    }

    /// Does what has become due after an event: a logout that has waited for the last task.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        self.part_with_leaving(now);
        if self.state.is_logout_due(|| self.tasks.has_work()) && !self.is_logging_out() {
            self.begin_logout(now);
        }
    }
}

/// The tag of login requests, which no task ever has: while a connection is added, the other connections have
/// tasks.
const LOGIN_TAG: Itt = match Itt::new(NO_TASK) {
    Some(tag) => tag,
    None => unreachable!(),
};

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("isid", &self.config.isid)
            .field("state", &self.state)
            .field("tasks", &self.tasks.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
