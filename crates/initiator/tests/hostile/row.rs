//! A row of the bench: the lie, where it is told, and what must come of it.

use std::sync::Arc;
use std::time::Duration;

use iscsi_initiator::{Fault, Timeouts};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

use crate::line::Line;

/// What the initiator does while it is lied to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Job {
    /// Asks a portal for its targets.
    Discover,
    /// Logs in and asks what the unit is; the lie counts from the first PDU.
    Open,
    /// Opens, then reads in two places at once. From here on the lie counts from behind the opening.
    Read,
    /// Opens, then writes in two places at once.
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

/// What must come of a lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The session ends, or never begins.
    Ends(Fault, &'static [&'static str]),
    /// The request fails, and the session goes on.
    Fails(Fault, &'static [&'static str]),
    /// The request fails by itself, and then the session ends.
    Both(Fault, &'static [&'static str]),
    /// The request fails; whether the session goes on is left open.
    Either(&'static [&'static str]),
    /// All goes well, or the request fails: it depends on what comes first.
    Open,
    /// All goes well.
    Survives,
}

/// Which PDUs a lie is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Whether they are the target's.
    pub(crate) says: bool,
    pub(crate) opcode: Opcode,
    /// Only those that belong to such a command.
    pub(crate) cdb: Option<Asked>,
    /// The first, counted from 0 among those with this operation code.
    pub(crate) first: u32,
    /// How many in a row.
    pub(crate) count: u32,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Asked {
    pub(crate) operation: u8,
    /// The lowest bit of the second byte: EVPD in an INQUIRY (SPC-4 §6.4).
    pub(crate) vital: bool,
    /// The third byte: the page in an INQUIRY and a MODE SENSE.
    pub(crate) page: u8,
}

impl Asked {
    pub(crate) const fn by(cdb: [u8; 16]) -> Self {
        Self { operation: cdb[0], vital: cdb[1] & 1 != 0, page: cdb[2] }
    }
}

/// What is done at the place.
pub(crate) type Act = Arc<dyn Fn(&mut Pdu, &mut Line<'_>) + Send + Sync>;

/// A lie, and what must come of it.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) job: Job,
    pub(crate) end: End,
    pub(crate) lies: Vec<(Place, Act)>,
    pub(crate) framing: Framing,
    pub(crate) target: Arc<dyn Fn(&mut TargetConfig) + Send + Sync>,
    /// Which limits end the row; the other ones are far away.
    pub(crate) limits: Option<fn(Timeouts, Duration) -> Timeouts>,
    /// Behind the `?` of the URL, and what stands before the host.
    pub(crate) query: &'static str,
    pub(crate) user: &'static str,
    /// The most bytes that the target may get rid of; a lie without an end is bounded by it.
    pub(crate) most_sent: Option<u64>,
    /// Whether a disk that opens lost sessions anew is lied to, not a single session.
    pub(crate) reopens: bool,
    /// Whether the target's configuration is the lie, or one of them.
    pub(crate) by_configuration: bool,
}

impl Row {
    /// A row that is survived, until it says otherwise.
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

    /// The target's n-th PDU of this kind (from 0) passes through `act` before it is sent.
    pub(crate) fn says(self, opcode: Opcode, first: u32, act: impl LieFn) -> Self {
        self.lie(Place { says: true, opcode, cdb: None, first, count: 1 }, act)
    }

    /// So do all its PDUs of this kind.
    pub(crate) fn always_says(self, opcode: Opcode, act: impl LieFn) -> Self {
        self.lie(Place { says: true, opcode, cdb: None, first: 0, count: u32::MAX }, act)
    }

    /// The initiator's n-th PDU of this kind (from 0) passes through `act` before the target has it.
    pub(crate) fn hears(self, opcode: Opcode, first: u32, act: impl LieFn) -> Self {
        self.lie(Place { says: false, opcode, cdb: None, first, count: 1 }, act)
    }

    /// So do all its PDUs of this kind.
    pub(crate) fn always_hears(self, opcode: Opcode, act: impl LieFn) -> Self {
        self.lie(Place { says: false, opcode, cdb: None, first: 0, count: u32::MAX }, act)
    }

    /// The Data-In for each such command.
    pub(crate) fn answers(self, asked: Asked, act: impl LieFn) -> Self {
        let (opcode, cdb) = (Opcode::DataIn, Some(asked));
        self.lie(Place { says: true, opcode, cdb, first: 0, count: u32::MAX }, act)
    }

    fn lie(mut self, place: Place, act: impl LieFn) -> Self {
        self.lies.push((place, Arc::new(act)));
        self
    }

    /// The lie, or part of it, is in the target's configuration.
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

    /// Whether a session is lost for a lie that is not told again.
    pub(crate) fn loses_a_session(&self) -> bool {
        let once = self.lies.iter().all(|(place, _)| place.count == 1);
        let moves = matches!(self.job, Job::Read | Job::Write);
        once && moves && matches!(self.end, End::Ends(..))
    }

    /// The same lie, told to a disk that opens lost sessions anew: it is survived.
    pub(crate) fn on_a_disk(mut self) -> Self {
        (self.reopens, self.end) = (true, End::Survives);
        self
    }

    /// What ends the row is a limit: sets it to so short a time.
    pub(crate) fn limits(mut self, set: fn(Timeouts, Duration) -> Timeouts) -> Self {
        self.limits = Some(set);
        self
    }

    /// The limits of commands and of their aborts.
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

    /// Header and data digests are agreed on.
    pub(crate) fn digests(mut self) -> Self {
        self.framing = Framing { header_digest: true, data_digest: true };
        self.query("?header_digest=crc32c&data_digest=crc32c")
    }

    /// The target gets rid of no more than so many bytes.
    pub(crate) fn bounded(mut self, bytes: u64) -> Self {
        self.most_sent = Some(bytes);
        self
    }

    /// The session ends; the sentence says all of `parts`.
    pub(crate) fn ends(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Ends(fault, parts);
        self
    }

    /// The request fails by itself with such a sentence, and then the session ends.
    pub(crate) fn fails_and_ends(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Both(fault, parts);
        self
    }

    /// It may go well or not.
    pub(crate) fn open(mut self) -> Self {
        self.end = End::Open;
        self
    }

    /// The request fails with a sentence that says all of `parts`, with the session or without it.
    pub(crate) fn fails_or_ends(mut self, parts: &'static [&'static str]) -> Self {
        self.end = End::Either(parts);
        self
    }

    /// The request fails with a sentence that says all of `parts`, and the session goes on.
    pub(crate) fn fails(mut self, fault: Fault, parts: &'static [&'static str]) -> Self {
        self.end = End::Fails(fault, parts);
        self
    }
}

/// What may be done at a place.
pub(crate) trait LieFn: Fn(&mut Pdu, &mut Line<'_>) + Send + Sync + 'static {}

impl<F: Fn(&mut Pdu, &mut Line<'_>) + Send + Sync + 'static> LieFn for F {}
