//! A session and a target that the test controls PDU by PDU.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_pdu::{Cid, Itt, TargetAddress};
use iscsi_session::{
    Command, Completion, Config, Notice, Output, Session, SessionError, TaskError, TransportError,
};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::pdus::{Template, scsi_response};
use iscsi_testkit::script::Script;

use crate::pair::{Cut, config, entropy};

const CID: Cid = Cid(0);

/// The target's answers at login, unless the test sets other answers.
const ANSWERS: [(&str, &str); 15] = [
    ("TargetPortalGroupTag", "1"),
    ("HeaderDigest", "None"),
    ("DataDigest", "None"),
    ("MaxConnections", "1"),
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("MaxRecvDataSegmentLength", "8192"),
    ("MaxBurstLength", "262144"),
    ("FirstBurstLength", "65536"),
    ("DefaultTime2Wait", "2"),
    ("DefaultTime2Retain", "0"),
    ("MaxOutstandingR2T", "8"),
    ("DataPDUInOrder", "Yes"),
    ("DataSequenceInOrder", "Yes"),
    ("ErrorRecoveryLevel", "0"),
];

/// The session and the target, with one connection. [`iscsi_testkit::expect`] takes the next PDU of the
/// session, [`iscsi_testkit::send`] delivers a PDU of the target. When the value is dropped, it checks that
/// the session broke no rule that the checker knows.
pub(crate) struct Trace {
    pub(crate) session: Session,
    pub(crate) script: Script,
    pub(crate) now: Instant,
    pub(crate) completed: BTreeMap<Itt, Result<Completion, TaskError>>,
    /// The outputs of the session that no other field holds.
    pub(crate) outputs: Vec<Output>,
    pub(crate) notices: Vec<Notice>,
    /// The address of each connection that the session requested; `None` means the portal that the caller
    /// knows.
    pub(crate) connects: Vec<Option<TargetAddress>>,
    /// Whether the connection was reset when it was closed; `None` while it is open.
    pub(crate) closed: Option<bool>,
    pub(crate) ended: Option<Result<(), SessionError>>,
}

impl Trace {
    /// Creates a session whose transport connection is established, before the first login request.
    pub(crate) fn new(config: Config) -> Self {
        let now = crate::start();
        let mut trace = Self {
            session: Session::new(config, entropy(1), now),
            script: Script::new(),
            now,
            completed: BTreeMap::new(),
            outputs: Vec::new(),
            notices: Vec::new(),
            connects: Vec::new(),
            closed: None,
            ended: None,
        };
        trace.drain();
        trace
    }

    /// Creates a session in full feature phase, with the target's usual answers.
    pub(crate) fn logged_in() -> Self {
        Self::with_answers(&[])
    }

    /// Creates a session in full feature phase. `answers` replace the target's usual answers.
    pub(crate) fn with_answers(answers: &[(&str, &str)]) -> Self {
        Self::established(config(), answers)
    }

    /// Creates a session in full feature phase for any configuration.
    pub(crate) fn established(config: Config, answers: &[(&str, &str)]) -> Self {
        let mut trace = Self::new(config);
        trace.login(answers);
        assert!(trace.session.negotiated().is_some(), "login: {:?}", trace.ended);
        trace
    }

    /// Sends the response to the login request that is due, and returns the request.
    pub(crate) fn login(&mut self, answers: &[(&str, &str)]) -> Pdu {
        let usual = ANSWERS.into_iter().filter(|(key, _)| answers.iter().all(|(k, _)| k != key));
        let all: Vec<_> = usual.chain(answers.iter().copied()).collect();
        self.pump();
        let request = self.script.answer_login(&all);
        self.deliver();
        request
    }

    pub(crate) fn submit(&mut self, command: Command) -> Itt {
        self.session.submit(command, self.now).unwrap()
    }

    /// Creates a session like [`logged_in`](Self::logged_in) that sends no pings by itself.
    pub(crate) fn without_pings() -> Self {
        let mut config = config();
        config.timeouts = config.timeouts.with_nop_interval(None);
        Self::established(config, &[])
    }

    /// Creates a session like [`logged_in`](Self::logged_in), with a window of `window` commands.
    pub(crate) fn with_window(window: u32) -> Self {
        let mut trace = Self::new(config());
        trace.script.set_window(window);
        trace.login(&[]);
        trace
    }

    /// Creates a session whose target accepts no more commands after the first one.
    pub(crate) fn with_closed_window() -> Self {
        let mut trace = Self::with_window(1);
        let itt = trace.submit(Command::new(Lun::ZERO, Cdb::test_unit_ready()));
        trace.expect(Opcode::ScsiCommand);
        trace.script.set_window(0);
        trace.send(scsi_response().itt(itt.get()));
        assert_eq!(trace.session.window(), 0);
        trace
    }

    /// Removes and returns the next PDU of the session, which must be of this kind.
    #[track_caller]
    pub(crate) fn expect(&mut self, opcode: Opcode) -> Pdu {
        self.pump();
        self.script.expect(opcode)
    }

    /// Checks that the session has nothing to send.
    #[track_caller]
    pub(crate) fn silence(&mut self) {
        self.pump();
        self.script.silence();
    }

    /// Delivers a PDU of the target, and returns it as it was sent.
    pub(crate) fn send(&mut self, template: impl Into<Template>) -> Pdu {
        self.pump();
        let pdu = self.script.send(template);
        self.deliver();
        pdu
    }

    /// Closes the connection, as if the target had closed it.
    pub(crate) fn close(&mut self) {
        self.script.close();
        self.session.handle_disconnected(CID, TransportError::Closed, self.now);
        self.drain();
    }

    /// Advances the time from one time limit of the session to the next.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some((when, _)) = self.session.poll_timeout().filter(|(when, _)| *when <= end) {
            self.now = when.max(self.now);
            self.session.handle_timeout(self.now);
            self.drain();
            self.pump();
        }
        self.now = end;
    }

    /// Returns the result of a command, which must have ended.
    #[track_caller]
    pub(crate) fn result(&mut self, itt: Itt) -> Result<Completion, TaskError> {
        self.completed.remove(&itt).expect("the command has not ended")
    }

    /// Checks that the session still works: it sends a command, and the command completes.
    #[track_caller]
    pub(crate) fn assert_usable(&mut self) {
        let itt = self.submit(Command::new(Lun::ZERO, Cdb::test_unit_ready()));
        let command = self.expect(Opcode::ScsiCommand);
        self.send(scsi_response().itt(command.itt()));
        self.result(itt).unwrap();
    }

    /// Returns the error with which the session has ended.
    #[track_caller]
    pub(crate) fn failure(&self) -> &SessionError {
        match &self.ended {
            Some(Err(error)) => error,
            other => panic!("the session has not failed: {other:?}"),
        }
    }

    /// Passes everything that the session has to send to the script.
    pub(crate) fn pump(&mut self) {
        while let Some(mut transmit) = self.session.poll_transmit(CID, self.now) {
            let bytes = transmit.copy_to_bytes(transmit.remaining());
            self.script.receive(&bytes);
        }
        self.drain();
    }

    /// Delivers the bytes that the script has to send.
    pub(crate) fn deliver(&mut self) {
        let bytes = self.script.transmit();
        self.receive(bytes);
    }

    /// Delivers bytes of the target.
    pub(crate) fn receive(&mut self, mut bytes: Bytes) {
        let connection = self.connects.len();
        // Bytes that arrive after the session has closed the connection are lost.
        while bytes.has_remaining() && self.closed.is_none() && connection == self.connects.len() {
            let piece = match Cut::of_this_run() {
                Cut::Every(size) => bytes.split_to(size.min(bytes.len())),
                Cut::Whole | Cut::After(_) => std::mem::take(&mut bytes),
            };
            let (filled, rest) = self.fill(piece);
            assert!(filled > 0, "the session takes no bytes");
            if !rest.is_empty() {
                bytes = [rest, bytes].concat().into();
            }
            self.session.handle_received(CID, filled, self.now);
            self.drain();
        }
    }

    /// Copies the bytes that fit into the slices, and returns their number and the rest.
    fn fill(&mut self, mut bytes: Bytes) -> (usize, Bytes) {
        let mut filled = 0;
        for slice in &mut self.session.receive_slices(CID) {
            let len = slice.len().min(bytes.remaining());
            bytes.copy_to_slice(&mut slice[..len]);
            filled += len;
        }
        (filled, bytes)
    }

    fn connect(&mut self, address: Option<TargetAddress>) {
        if !self.connects.is_empty() {
            self.script.reconnect();
        }
        self.connects.push(address);
        self.closed = None;
        self.session.handle_connected(CID, self.now);
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Connect { address, .. } => self.connect(address),
                Output::Disconnect { abortive, .. } => self.closed = Some(abortive),
                Output::Completed { itt, result } => {
                    let earlier = self.completed.insert(itt, result);
                    assert!(earlier.is_none(), "task {itt} ended twice");
                }
                Output::Notice(notice) => self.notices.push(notice),
                Output::Ended(result) => {
                    assert!(self.ended.is_none(), "the session ended twice");
                    self.ended = Some(result);
                }
                other => self.outputs.push(other),
            }
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.script.assert_no_violations();
        }
    }
}

/// Returns the LUN field of a unit number below 256 (SAM-5 §4.7).
pub(crate) const fn wire_lun(number: u8) -> u64 {
    (number as u64) << 48
}
