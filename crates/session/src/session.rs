//! Defines [`Session`]: its parts, and the methods that the driver calls.
//!
//! Design: `docs/design/session.md`.

mod abort;
mod cleared;
mod connection_failure;
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

/// The CID of the first connection of a session.
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
    /// Creates a session, which immediately requests its first connection.
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

    /// Informs the session that the transport connection is established: the login starts.
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
            // After it has seen the logout request, a target may close the connection without a response.
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
    /// [`handle_received`](Self::handle_received). Both slices are empty when no bytes are expected.
    pub fn receive_slices(&mut self, cid: Cid) -> [IoSliceMut<'_>; 2] {
        match self.connections.get_mut(cid) {
            Some(connection) => connection.receive_slices(&mut self.tasks),
            None => [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])],
        }
    }

    /// Lends a connection memory for the headers and short data segments that are read next, until the memory
    /// is [taken back](Self::reclaim_read_ahead) or the connection is closed. Without a loan the connection
    /// allocates its own memory, and keeps it.
    pub fn lend_read_ahead(&mut self, cid: Cid, memory: ReadAhead) {
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.lend_read_ahead(memory);
        }
    }

    /// Takes back the memory in which a connection reads ahead. Bytes that have arrived in it stay with the
    /// connection. Returns `None` if the connection has no such memory or is closed.
    pub fn reclaim_read_ahead(&mut self, cid: Cid) -> Option<ReadAhead> {
        self.connections.get_mut(cid)?.reclaim_read_ahead()
    }

    /// Returns the number of missing bytes of a data segment that has begun to arrive; 0 if the segment is
    /// discarded. Until they have arrived, nothing else can be read from the connection.
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

    /// Returns the oldest output: an action for the driver, or a result or notice for the caller.
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

    /// Returns the handle that the target assigned to the session; zero before the end of the first login.
    /// Some targets assign none: then no connection can join the session, and session reinstatement (RFC 7143
    /// §6.3.5) is not reliable.
    pub const fn tsih(&self) -> Tsih {
        self.state.tsih()
    }

    /// Returns the times for a reconnect, counted from the end of the session; `None` before the end, and for
    /// a session that never reached full feature phase.
    #[doc(alias = "reconnect")]
    pub const fn reopening(&self) -> Option<Reopening> {
        self.state.reopening()
    }

    /// Returns the initiator's part of the session identifier.
    pub const fn isid(&self) -> Isid {
        self.config.isid
    }

    /// Returns the counters since the session began.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the number of further commands that the target would accept now.
    pub fn window(&self) -> u32 {
        let beyond = self.window.max_cmd_sn().next().distance_from(self.window.current());
        u32::try_from(beyond).unwrap_or_default()
    }

    /// Returns the number of commands that the target accepts beyond those it has received in order, by its
    /// latest report. The window at the end of the login may be smaller than the window after the first
    /// command.
    pub fn command_window(&self) -> u32 {
        let size = self.window.max_cmd_sn().next().distance_from(self.window.exp_cmd_sn());
        u32::try_from(size).unwrap_or_default()
    }

    /// Limits the write data, in bytes, that the target may be waiting for on a connection; initially there
    /// is no limit. A write beyond the limit waits until other writes of the connection end, unless another
    /// connection takes it; requests submitted after the write wait behind it. If a write is the only one, it
    /// is never held back. Connections share the commands in proportion to their limits.
    ///
    /// A target closes a connection that does not deliver the data of an R2T in time (LIO: 3 seconds, counted
    /// again from each Data-Out). So on a slow link fewer writes should be in flight than the command window
    /// allows. A Data-Out carries an eighth of the limit at most, but not less than 8 KiB.
    pub fn limit_writes(&mut self, cid: Cid, bytes: u64) {
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transmitter.limit_writes(bytes);
        }
    }

    /// Limits the read data, in bytes, that is requested and not yet received on a connection; initially
    /// there is no limit. A read beyond the limit waits, by the rules of
    /// [`limit_writes`](Self::limit_writes).
    ///
    /// Requested data arrive before the pings of the target, and the target closes a connection whose
    /// response to a ping is late (LIO: 30 seconds).
    pub fn limit_reads(&mut self, cid: Cid, bytes: u64) {
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transmitter.limit_reads(bytes);
        }
    }

    /// Returns two numbers for a connection, in bytes: the write data that the target may be waiting for, and
    /// the write data of the writes that have ended. From both the caller can compute how long a write takes,
    /// whatever the [limit](Self::limit_writes) is.
    pub fn write_progress(&self, cid: Cid) -> (u64, u64) {
        let load = self.tasks.load_of(cid);
        (load.outstanding, load.concluded)
    }

    /// Returns ExpCmdSN: the oldest CmdSN that the target has not received in order.
    pub const fn exp_cmd_sn(&self) -> CmdSn {
        self.window.exp_cmd_sn()
    }

    /// Returns whether the session has ended and all its outputs were returned.
    pub fn is_ended(&self) -> bool {
        self.state.is_ended() && self.outputs.is_empty()
    }

    /// Sends the logouts that have become due after an event: of connections that the caller wants to drop,
    /// and of the session.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        self.part_with_leaving(now);
        if self.state.is_logout_due(|| self.tasks.has_work()) && !self.is_logging_out() {
            self.begin_logout(now);
        }
    }
}

/// The tag of login requests. No task ever has it, so it cannot be confused with a task of another connection
/// while a connection is added.
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
