//! A row of the bench: the lie, where it is told, and what must follow from it.

use std::sync::Arc;
use std::time::Duration;

use iscsi_initiator::{Fault, Timeouts};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

use crate::line::Line;

/// What the initiator does in a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Job {
    /// Asks a portal for its targets.
    Discover,
    /// Logs in and asks what the unit is; the lie counts from the first PDU.
    Open,
    /// Opens, then reads in two places concurrently. From here on, the lie counts from the end of the
    /// opening.
    Read,
    /// Opens, then writes in two places concurrently.
    Write,
    /// Opens, then pings.
    Ping,
    /// Opens, then asks the target for its addresses.
    Text,
    /// Opens, then resets the unit.
    Reset,
    /// Opens, then writes with a time limit that the target makes it miss.
    Abort,
    /// Opens, then logs out.
    Logout,
}

/// What must follow from a lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The session ends, or never begins.
    Ends(Fault, &'static [&'static str]),
    /// The request fails, and the session goes on.
    Fails(Fault, &'static [&'static str]),
    /// The request fails by itself, and then the session ends.
    Both(Fault, &'static [&'static str]),
    /// The request fails; the session may end or go on.
    Either(&'static [&'static str]),
    /// All requests succeed, or the request fails: it depends on what comes first.
    Open,
    /// All requests succeed.
    Survives,
}

/// The PDUs that a lie applies to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Whether they are the target's PDUs.
    pub(crate) from_target: bool,
    pub(crate) opcode: Opcode,
    /// Only PDUs of such a command.
    pub(crate) cdb: Option<Asked>,
    /// Index of the first one, counted from 0 among those with this operation code.
    pub(crate) first: u32,
    /// Number of PDUs in a row.
    pub(crate) count: u32,
}

/// The fields of a command that say what it asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Asked {
    pub(crate) operation: u8,
    /// Lowest bit of the second byte: EVPD in an INQUIRY (SPC-4 §6.4).
    pub(crate) vital: bool,
    /// Third byte: the page in an INQUIRY and a MODE SENSE.
    pub(crate) page: u8,
}

impl Asked {
    pub(crate) const fn by(cdb: [u8; 16]) -> Self {
        Self { operation: cdb[0], vital: cdb[1] & 1 != 0, page: cdb[2] }
    }
}

/// Changes a PDU, and what happens to its connection.
pub(crate) type Act = Arc<dyn Fn(&mut Pdu, &mut Line<'_>) + Send + Sync>;

/// A lie, and what must follow from it.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) job: Job,
    pub(crate) end: End,
    pub(crate) lies: Vec<(Place, Act)>,
    pub(crate) framing: Framing,
    pub(crate) target: Arc<dyn Fn(&mut TargetConfig) + Send + Sync>,
    /// Sets the limits that end the row; the other limits are long.
    pub(crate) limits: Option<fn(Timeouts, Duration) -> Timeouts>,
    /// Text after the `?` of the URL, and text before the host.
    pub(crate) query: &'static str,
    pub(crate) user: &'static str,
    /// Most bytes that the target may send; it bounds an endless lie.
    pub(crate) most_sent: Option<u64>,
    /// Whether the lie is told to a disk that reconnects lost sessions, not to a single session.
    pub(crate) reopens: bool,
    /// Whether the target's configuration is the lie, or a part of it.
    pub(crate) by_configuration: bool,
}

impl Row {
    /// Creates a row whose lie has no effect, until another end is set.
    pub(crate) fn new(job: Job, name: &'static str) -> Self {
        Self {
            name,
            job,
            end: End::Survives,
            lies: Vec::new(),
            framing: Framing::PLAIN,
            target: Arc::new(|_| {}),
            limits: None,
            query: "",
            user: "",
            most_sent: None,
            reopens: false,
            by_configuration: false,
        }
    }

    /// Adds a lie: the target's n-th PDU of this kind (from 0) passes through `act` before it is sent.
    pub(crate) fn on_send(self, opcode: Opcode, first: u32, act: impl LieFn) -> Self {
        self.lie(Place { from_target: true, opcode, cdb: None, first, count: 1 }, act)
    }

    /// Adds a lie: all PDUs of the target of this kind pass through `act` before they are sent.
    pub(crate) fn always_on_send(self, opcode: Opcode, act: impl LieFn) -> Self {
        self.lie(Place { from_target: true, opcode, cdb: None, first: 0, count: u32::MAX }, act)
    }

    /// Adds a lie: the initiator's n-th PDU of this kind (from 0) passes through `act` before the target
    /// receives it.
    pub(crate) fn on_receive(self, opcode: Opcode, first: u32, act: impl LieFn) -> Self {
        self.lie(Place { from_target: false, opcode, cdb: None, first, count: 1 }, act)
    }

    /// Adds a lie: all PDUs of the initiator of this kind pass through `act` before the target receives them.
    pub(crate) fn always_on_receive(self, opcode: Opcode, act: impl LieFn) -> Self {
        self.lie(Place { from_target: false, opcode, cdb: None, first: 0, count: u32::MAX }, act)
    }

    /// Adds a lie: the Data-In of each such command passes through `act`.
    pub(crate) fn answers(self, asked: Asked, act: impl LieFn) -> Self {
        let (opcode, cdb) = (Opcode::DataIn, Some(asked));
        self.lie(Place { from_target: true, opcode, cdb, first: 0, count: u32::MAX }, act)
    }

    fn lie(mut self, place: Place, act: impl LieFn) -> Self {
        self.lies.push((place, Arc::new(act)));
        self
    }

    /// Notes that the lie, or a part of it, is in the target's configuration.
    pub(crate) fn by_configuration(mut self) -> Self {
        self.by_configuration = true;
        self
    }

    /// Changes the target's configuration.
    pub(crate) fn target(
        mut self,
        change: impl Fn(&mut TargetConfig) + Send + Sync + 'static,
    ) -> Self {
        self.target = Arc::new(change);
        self
    }

    /// Returns whether a session is lost by lies that are told only once.
    pub(crate) fn loses_a_session(&self) -> bool {
        let once = self.lies.iter().all(|(place, _)| place.count == 1);
        let moves = matches!(self.job, Job::Read | Job::Write);
        once && moves && matches!(self.end, End::Ends(..))
    }

    /// Returns the same lie, told to a disk that reconnects lost sessions: it has no effect.
    pub(crate) fn on_a_disk(mut self) -> Self {
        (self.reopens, self.end) = (true, End::Survives);
        self
    }

    /// Sets the limits that end the row to the given short time.
    pub(crate) fn limits(mut self, set: fn(Timeouts, Duration) -> Timeouts) -> Self {
        self.limits = Some(set);
        self
    }

    /// Sets the limits of commands and of their aborts to end the row.
    pub(crate) fn impatient(self) -> Self {
        self.limits(|timeouts, soon| timeouts.with_command(Some(soon)).with_task_management(soon))
    }

    /// Adds options to the URL.
    pub(crate) fn query(mut self, query: &'static str) -> Self {
        self.query = query;
        self
    }

    /// Puts `user:password@` into the URL.
    pub(crate) fn user(mut self, user: &'static str) -> Self {
        self.user = user;
        self
    }

    /// Makes the connection use header and data digests.
    pub(crate) fn digests(mut self) -> Self {
        self.framing = Framing { header_digest: true, data_digest: true };
        self.query("?header_digest=crc32c&data_digest=crc32c")
    }

    /// Limits the number of bytes that the target may send.
    pub(crate) fn bounded(mut self, bytes: u64) -> Self {
        self.most_sent = Some(bytes);
        self
    }

    /// Sets that the session ends, and the sentence contains all of `parts`.
    pub(crate) fn ends(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Ends(fault, parts);
        self
    }

    /// Sets that the request fails by itself with a sentence that contains all of `parts`, and then the
    /// session ends.
    pub(crate) fn fails_and_ends(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Both(fault, parts);
        self
    }

    /// Sets that requests may succeed or fail.
    pub(crate) fn open(mut self) -> Self {
        self.end = End::Open;
        self
    }

    /// Sets that the request fails with a sentence that contains all of `parts`. The session may end.
    pub(crate) fn fails_or_ends(mut self, parts: &'static [&'static str]) -> Self {
        self.end = End::Either(parts);
        self
    }

    /// Sets that the request fails with a sentence that contains all of `parts`, and the session goes on.
    pub(crate) fn fails(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Fails(fault, parts);
        self
    }
}

/// An action of a lie at its place.
pub(crate) trait LieFn: Fn(&mut Pdu, &mut Line<'_>) + Send + Sync + 'static {}

impl<F: Fn(&mut Pdu, &mut Line<'_>) + Send + Sync + 'static> LieFn for F {}
