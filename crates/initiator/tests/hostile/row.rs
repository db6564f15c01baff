//! Defines a test case (row): a wrong answer (lie), where it is sent, and the expected result. A wrong answer
//! changes a PDU of the target or of the initiator in transit, or the connection.

use std::sync::Arc;
use std::time::Duration;

use iscsi_initiator::{Fault, Timeouts};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

use crate::line::Line;

/// The initiator's work in a test case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Job {
    /// Queries the targets of a portal.
    Discover,
    /// Logs in and identifies the unit. The PDUs are counted from the first one on.
    Open,
    /// Opens a disk, then reads in two places concurrently. For this job and the following ones, PDUs are
    /// counted from the end of the opening.
    Read,
    /// Opens a disk, then writes in two places concurrently.
    Write,
    /// Opens a disk, then pings.
    Ping,
    /// Opens a disk, then queries the addresses of the target.
    Text,
    /// Opens a disk, then resets the unit.
    Reset,
    /// Opens a disk, then writes with a time limit that the target exceeds.
    Abort,
    /// Opens a disk, then logs out.
    Logout,
}

/// Expected result of a wrong answer. The strings are parts of the error's sentence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The session ends, or never begins.
    Ends(Fault, &'static [&'static str]),
    /// The request fails, and the session continues.
    Fails(Fault, &'static [&'static str]),
    /// The request fails by itself, and then the session ends.
    Both(Fault, &'static [&'static str]),
    /// The request fails. The session may end or continue.
    Either(&'static [&'static str]),
    /// All requests succeed, or the request fails, depending on which event comes first.
    Open,
    /// All requests succeed.
    Survives,
}

/// The PDUs that a wrong answer replaces or changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Whether the PDUs are the target's; otherwise they are the initiator's.
    pub(crate) from_target: bool,
    pub(crate) opcode: Opcode,
    /// If set, only PDUs that belong to a command with these fields; `None` for PDUs of any command.
    pub(crate) cdb: Option<Asked>,
    /// Index of the first PDU, counted from 0 among the PDUs with this operation code.
    pub(crate) first: u32,
    /// Number of successive PDUs.
    pub(crate) count: u32,
}

/// The fields of a command that determine what it requests.
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

/// Changes a PDU, and what is done to its connection.
pub(crate) type Act = Arc<dyn Fn(&mut Pdu, &mut Line<'_>) + Send + Sync>;

/// A test case: one or several wrong answers, and the expected result.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) job: Job,
    pub(crate) end: End,
    pub(crate) lies: Vec<(Place, Act)>,
    pub(crate) framing: Framing,
    pub(crate) target: Arc<dyn Fn(&mut TargetConfig) + Send + Sync>,
    /// Sets the time limits that end the test case to a short time; the other time limits are long. `None` if no
    /// time limit ends the test case.
    pub(crate) limits: Option<fn(Timeouts, Duration) -> Timeouts>,
    /// Text after the `?` of the URL. `user` is the text before the host.
    pub(crate) query: &'static str,
    pub(crate) user: &'static str,
    /// Maximum number of bytes that the target may send; `None` for any number. It bounds endless wrong answers.
    pub(crate) most_sent: Option<u64>,
    /// Whether the wrong answer is sent to a disk that reconnects lost sessions, not to a single session.
    pub(crate) reopens: bool,
    /// Whether the target's configuration produces the wrong answer, or a part of it.
    pub(crate) by_configuration: bool,
}

impl Row {
    /// Creates a test case that expects that the wrong answer has no effect.
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

    /// Adds a wrong answer: the target's n-th PDU of this kind (from 0) passes through `act` before it is
    /// sent.
    pub(crate) fn on_send(self, opcode: Opcode, first: u32, act: impl LieFn) -> Self {
        self.lie(Place { from_target: true, opcode, cdb: None, first, count: 1 }, act)
    }

    /// Adds a wrong answer: all PDUs of the target of this kind pass through `act` before they are sent.
    pub(crate) fn always_on_send(self, opcode: Opcode, act: impl LieFn) -> Self {
        self.lie(Place { from_target: true, opcode, cdb: None, first: 0, count: u32::MAX }, act)
    }

    /// Adds a wrong answer: the initiator's n-th PDU of this kind (from 0) passes through `act` before the
    /// target receives it.
    pub(crate) fn on_receive(self, opcode: Opcode, first: u32, act: impl LieFn) -> Self {
        self.lie(Place { from_target: false, opcode, cdb: None, first, count: 1 }, act)
    }

    /// Adds a wrong answer: all PDUs of the initiator of this kind pass through `act` before the target
    /// receives them.
    pub(crate) fn always_on_receive(self, opcode: Opcode, act: impl LieFn) -> Self {
        self.lie(Place { from_target: false, opcode, cdb: None, first: 0, count: u32::MAX }, act)
    }

    /// Adds a wrong answer: each Data-In of a command with the fields `asked` passes through `act`.
    pub(crate) fn answers(self, asked: Asked, act: impl LieFn) -> Self {
        let (opcode, cdb) = (Opcode::DataIn, Some(asked));
        self.lie(Place { from_target: true, opcode, cdb, first: 0, count: u32::MAX }, act)
    }

    fn lie(mut self, place: Place, act: impl LieFn) -> Self {
        self.lies.push((place, Arc::new(act)));
        self
    }

    /// Sets that the target's configuration produces the wrong answer, or a part of it.
    pub(crate) fn by_configuration(mut self) -> Self {
        self.by_configuration = true;
        self
    }

    /// Sets the function that changes the target's configuration.
    pub(crate) fn target(
        mut self,
        change: impl Fn(&mut TargetConfig) + Send + Sync + 'static,
    ) -> Self {
        self.target = Arc::new(change);
        self
    }

    /// Returns whether this is a read or a write whose wrong answers are sent only once and end the session.
    pub(crate) fn loses_a_session(&self) -> bool {
        let once = self.lies.iter().all(|(place, _)| place.count == 1);
        let moves = matches!(self.job, Job::Read | Job::Write);
        once && moves && matches!(self.end, End::Ends(..))
    }

    /// Returns the test case with the wrong answer sent to a disk that reconnects lost sessions. Then it has
    /// no effect.
    pub(crate) fn on_a_disk(mut self) -> Self {
        (self.reopens, self.end) = (true, End::Survives);
        self
    }

    /// Sets the function that applies the short time to the limits that end the test case.
    pub(crate) fn limits(mut self, set: fn(Timeouts, Duration) -> Timeouts) -> Self {
        self.limits = Some(set);
        self
    }

    /// Makes the time limits of commands and of their aborts end the test case.
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

    /// Expects that the session ends, and that the sentence contains all of `parts`.
    pub(crate) fn ends(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Ends(fault, parts);
        self
    }

    /// Expects that the request fails by itself with a sentence that contains all of `parts`, and that the
    /// session then ends.
    pub(crate) fn fails_and_ends(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Both(fault, parts);
        self
    }

    /// Expects that requests succeed or fail.
    pub(crate) fn open(mut self) -> Self {
        self.end = End::Open;
        self
    }

    /// Expects that the request fails with a sentence that contains all of `parts`. The session may end.
    pub(crate) fn fails_or_ends(mut self, parts: &'static [&'static str]) -> Self {
        self.end = End::Either(parts);
        self
    }

    /// Expects that the request fails with a sentence that contains all of `parts`, and that the session
    /// continues.
    pub(crate) fn fails(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Fails(fault, parts);
        self
    }
}

/// A function that changes a PDU and its connection.
pub(crate) trait LieFn: Fn(&mut Pdu, &mut Line<'_>) + Send + Sync + 'static {}

impl<F: Fn(&mut Pdu, &mut Line<'_>) + Send + Sync + 'static> LieFn for F {}
