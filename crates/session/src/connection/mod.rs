//! One TCP connection of a session.

mod early;
pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod state;

use std::collections::VecDeque;
use std::time::Instant;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{Cid, Itt, StatSn, Ttt};

use crate::error::{ProtocolError, SessionError};
use crate::login::Login;
use crate::params::Negotiated;
use early::Early;
use inbox::Inbox;
use outbox::{Digests, Outbox};
use state::ConnectionState;

/// A StatSN this far from the expected one is no loss or repetition but nonsense.
const MAX_STAT_SN_DISTANCE: u32 = 1 << 20;

/// How much may wait to be sent at once when the target asks for more. It is more than can come
/// before there was a chance to answer.
const MOST_URGENT: usize = 1 << 16;

/// A connection, its place in the protocol, and its bytes on the way in and out.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) cid: Cid,
    pub(crate) state: ConnectionState,
    pub(crate) login: Option<Login>,
    /// What was agreed; present from full feature phase on.
    pub(crate) agreed: Option<Negotiated>,
    pub(crate) exp_stat_sn: StatSn,
    /// What came before its turn.
    pub(crate) early: Early,
    /// Whether the target has given a StatSN to more than one PDU.
    pub(crate) repeats_stat_sn: bool,
    pub(crate) digests: Digests,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    /// What goes out before anything else and uses no CmdSN up.
    pub(crate) urgent: VecDeque<Urgent>,
    /// Task management requests that were too many at once, until one of the others is answered.
    pub(crate) deferred: VecDeque<Itt>,
    /// Writes whose first burst is not complete, in the order of their commands.
    pub(crate) unsolicited: VecDeque<Itt>,
    /// One entry for each R2T that is served, in the order in which they came.
    pub(crate) solicited: VecDeque<Itt>,
    /// Whether new commands have their turn after the Data-Out that was just queued.
    pub(crate) commands_first: bool,
    /// When bytes last moved in either direction.
    pub(crate) last_progress: Instant,
    /// The session's own NOP-Out that has not been answered.
    pub(crate) ping: Option<Itt>,
    /// When connect and login must be over.
    pub(crate) login_deadline: Option<Instant>,
    /// How often the login was redirected.
    pub(crate) redirects: u8,
    /// How much write data the target may have to wait for at once on this connection, bytes.
    pub(crate) write_limit: u64,
    /// The load up to which it takes new commands at the moment, bytes.
    pub(crate) share: u64,
    /// Whether the caller wants to let go of it: it takes no new command.
    pub(crate) leaving: bool,
    /// Why it failed; present in CLEANUP_WAIT.
    pub(crate) failure: Option<SessionError>,
}

/// A PDU that does not wait for the command window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Urgent {
    /// The first PDU of an immediate task.
    Task(Itt),
    /// The answer to a NOP-In of the target.
    PingReply { ttt: Ttt, lun: Lun },
    /// A NOP-Out that asks for no answer and acknowledges what has come.
    Acknowledgement { lun: Lun },
}

impl Connection {
    pub(crate) fn new(cid: Cid, now: Instant) -> Self {
        Self {
            cid,
            state: ConnectionState::XptWait,
            login: None,
            agreed: None,
            exp_stat_sn: StatSn::default(),
            early: Early::default(),
            repeats_stat_sn: false,
            digests: Digests::default(),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            urgent: VecDeque::new(),
            deferred: VecDeque::new(),
            unsolicited: VecDeque::new(),
            solicited: VecDeque::new(),
            commands_first: true,
            last_progress: now,
            ping: None,
            login_deadline: None,
            redirects: 0,
            write_limit: u64::MAX,
            share: u64::MAX,
            leaving: false,
            failure: None,
        }
    }

    /// Starts over with a fresh transport connection, within the time that is left.
    pub(crate) fn connect_again(&mut self) {
        *self = Self {
            urgent: std::mem::take(&mut self.urgent),
            login_deadline: self.login_deadline,
            redirects: self.redirects,
            write_limit: self.write_limit,
            ..Self::new(self.cid, self.last_progress)
        };
    }

    /// Forgets the bytes on their way in and out, and what was to follow them. What it had to send
    /// at once is handed back.
    pub(crate) fn fail(&mut self, why: SessionError) -> VecDeque<Urgent> {
        let urgent = std::mem::take(&mut self.urgent);
        *self = Self {
            state: ConnectionState::CleanupWait,
            failure: Some(why),
            ..Self::new(self.cid, self.last_progress)
        };
        urgent
    }

    /// Whether it can carry requests.
    pub(crate) fn is_up(&self) -> bool {
        self.state == ConnectionState::LoggedIn
    }

    /// Whether it can carry new commands.
    pub(crate) fn takes_commands(&self) -> bool {
        self.is_up() && !self.leaving
    }

    pub(crate) const fn is_logging_in(&self) -> bool {
        matches!(self.state, ConnectionState::XptWait | ConnectionState::InLogin)
    }

    /// Counts the StatSN of a PDU that uses one up; `false` for one that was counted before.
    pub(crate) fn take_stat_sn(&mut self, found: StatSn) -> Result<bool, ProtocolError> {
        let expected = self.exp_stat_sn;
        if found == expected {
            self.exp_stat_sn = found.next();
            return Ok(true);
        }
        let distance = found.distance_from(expected);
        if distance < 0 && distance.unsigned_abs() <= MAX_STAT_SN_DISTANCE {
            return Ok(false);
        }
        Err(ProtocolError::StatSn { expected, found })
    }

    /// Takes the StatSN of a NOP-In that uses none up but names the next one.
    pub(crate) fn show_stat_sn(&mut self, next: StatSn, now: Instant) -> Result<(), ProtocolError> {
        let expected = self.exp_stat_sn;
        if next.is_after(expected) { self.early.show(expected, next, now) } else { Ok(()) }
    }

    /// Queues what the target has to be told on its own demand. One that asks again and again, and
    /// does not take the answers, is not waited for.
    pub(crate) fn reply(&mut self, reply: Urgent) -> Result<(), ProtocolError> {
        if self.urgent.len() >= MOST_URGENT {
            return Err(ProtocolError::Unread { limit: MOST_URGENT });
        }
        self.urgent.push_back(reply);
        Ok(())
    }

    /// Forgets what a task still had to send here; says whether data was taken back from the
    /// outbox.
    pub(crate) fn forget(&mut self, itt: Itt) -> bool {
        self.unsolicited.retain(|queued| *queued != itt);
        self.solicited.retain(|queued| *queued != itt);
        self.urgent.retain(|queued| *queued != Urgent::Task(itt));
        self.deferred.retain(|queued| *queued != itt);
        self.ping = self.ping.filter(|ping| *ping != itt);
        self.outbox.withdraw_data_of(itt)
    }
}
