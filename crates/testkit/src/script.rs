//! A target that a test controls PDU by PDU, so that the test reads like a trace.
//!
//! ```
//! use iscsi_testkit::script::Script;
//! use iscsi_testkit::{expect, send};
//! # use bytes::BytesMut;
//! # use iscsi_testkit::{frame::Framing, opcode::Opcode, pdu::Pdu};
//!
//! let mut target = Script::new();
//! # let mut ping = Pdu::new(Opcode::NopOut);
//! # ping.set_u32(16, 7);
//! # ping.set_u32(20, 0xffff_ffff);
//! # ping.header[0] |= 0x40;
//! # let mut bytes = BytesMut::new();
//! # Framing::PLAIN.put(&ping, &mut bytes);
//! # let mut target = Script::in_full_feature();
//! target.receive(&bytes); // what the initiator transmits
//! let ping = expect!(target, NopOut { ttt: 0xffff_ffff });
//! send!(target, nop_in { itt: ping.itt() });
//! let answer = target.transmit(); // what the initiator receives
//! assert_eq!(answer.len(), 48);
//! ```

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::checker::{Checker, Violation};
use crate::conn_id::ConnId;
use crate::frame::Framing;
use crate::opcode::Opcode;
use crate::pdu::Pdu;
use crate::pdus::{Numbers, Template, login_response};

/// Longest data segment that the script accepts, bytes.
const SEGMENT_LIMIT: usize = 1 << 24;

/// A target with one connection at a time, which the test controls.
#[derive(Debug)]
pub struct Script {
    framing: Framing,
    inbox: BytesMut,
    arrived: VecDeque<Pdu>,
    outbox: BytesMut,
    numbers: Numbers,
    numbered: bool,
    window: u32,
    checker: Checker,
    connection: ConnId,
    closed: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// Creates a script that waits for a login. The first `StatSN` is 1, and the window is 64 commands.
    #[must_use]
    pub fn new() -> Self {
        Self {
            framing: Framing::PLAIN,
            inbox: BytesMut::new(),
            arrived: VecDeque::new(),
            outbox: BytesMut::new(),
            numbers: Numbers { stat_sn: 1, exp_cmd_sn: 0, max_cmd_sn: 63 },
            numbered: false,
            window: 64,
            checker: Checker::default(),
            connection: ConnId(0),
            closed: false,
        }
    }

    /// Creates a script for an initiator that has logged in before. The rules of a session are not checked,
    /// because the checker has not seen the login.
    #[must_use]
    pub fn in_full_feature() -> Self {
        Self { checker: Checker::blind(), ..Self::new() }
    }

    /// Receives bytes of the initiator, which may be split anywhere.
    ///
    /// # Panics
    ///
    /// If the bytes are not PDUs, or a digest is wrong.
    #[track_caller]
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        loop {
            match self.framing.take(&mut self.inbox, SEGMENT_LIMIT) {
                Ok(None) => return,
                Ok(Some(pdu)) => self.arrive(pdu),
                Err(error) => panic!("the initiator sent {error}"),
            }
        }
    }

    fn arrive(&mut self, pdu: Pdu) {
        self.checker.from_initiator(self.connection, &pdu);
        let counts = !pdu.is(Opcode::DataOut) && !pdu.is(Opcode::Snack);
        if counts && (!pdu.immediate() || !self.numbered) {
            let next = pdu.cmd_sn().wrapping_add(u32::from(!pdu.immediate()));
            self.numbers.exp_cmd_sn = next;
            self.numbered = true;
        }
        self.open_window();
        self.arrived.push_back(pdu);
    }

    fn open_window(&mut self) {
        self.numbers.max_cmd_sn = self.numbers.exp_cmd_sn.wrapping_add(self.window).wrapping_sub(1);
    }

    /// Returns the bytes for the initiator.
    pub fn transmit(&mut self) -> Bytes {
        self.outbox.split().freeze()
    }

    /// Removes and returns the next PDU of the initiator; `None` if none has arrived.
    pub fn try_next(&mut self) -> Option<Pdu> {
        self.arrived.pop_front()
    }

    /// Removes and returns the next PDU of the initiator, which must be of this kind.
    ///
    /// # Panics
    ///
    /// If no PDU has arrived, or a PDU of another kind.
    #[track_caller]
    pub fn expect(&mut self, opcode: Opcode) -> Pdu {
        let Some(pdu) = self.arrived.pop_front() else {
            panic!("expected {opcode:?}, the initiator sent nothing")
        };
        assert!(pdu.is(opcode), "expected {opcode:?}, got {pdu:?}, then {:?}", self.arrived);
        pdu
    }

    /// Checks that no PDU has arrived.
    ///
    /// # Panics
    ///
    /// If a PDU has arrived.
    #[track_caller]
    pub fn silence(&self) {
        assert!(self.arrived.is_empty(), "expected silence, got {:?}", self.arrived);
    }

    /// Sends a PDU, and returns it as it was sent.
    pub fn send(&mut self, template: impl Into<Template>) -> Pdu {
        let (pdu, bytes) = self.frame(template);
        self.outbox.extend_from_slice(&bytes);
        pdu
    }

    /// Returns a PDU and its bytes, numbered like a sent PDU. The test may change the bytes and send them
    /// with [`Script::send_bytes`].
    pub fn frame(&mut self, template: impl Into<Template>) -> (Pdu, BytesMut) {
        let pdu = template.into().build(self.numbers);
        if pdu.uses_stat_sn() {
            self.numbers.stat_sn = pdu.stat_sn().wrapping_add(1);
        }
        self.checker.from_target(self.connection, &pdu);
        let login = pdu.is(Opcode::LoginResponse);
        let framing = if login { Framing::PLAIN } else { self.framing };
        let mut bytes = BytesMut::new();
        framing.put(&pdu, &mut bytes);
        (pdu, bytes)
    }

    /// Sends bytes unchanged.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Sends a response to the login request that has arrived: agrees to its stages, and sends the keys of
    /// `answers`. The final response assigns TSIH 1. Returns the request.
    ///
    /// # Panics
    ///
    /// If no login request has arrived.
    #[track_caller]
    pub fn answer_login(&mut self, answers: &[(&str, &str)]) -> Pdu {
        let request = self.expect(Opcode::LoginRequest);
        let (csg, nsg) = (request.csg(), request.nsg());
        let done = request.is_final() && nsg == 3;
        let tsih = if done && request.tsih() == 0 { 1 } else { request.tsih() };
        let response = login_response()
            .last(request.is_final())
            .stages(csg, if request.is_final() { nsg } else { 0 })
            .isid(request.isid())
            .tsih(tsih)
            .itt(request.itt())
            .text(answers);
        self.send(response);
        request
    }

    /// Sets the digests of all later PDUs except login PDUs, which never have digests.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Sets the window: the number of commands from `ExpCmdSN` on that `MaxCmdSN` allows. 0 closes it.
    pub fn set_window(&mut self, window: u32) {
        self.window = window;
        self.open_window();
    }

    /// Returns the sequence numbers of the next PDU.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Sets the next `StatSN`, before the login or to leave a gap.
    pub fn set_stat_sn(&mut self, stat_sn: u32) {
        self.numbers.stat_sn = stat_sn;
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.closed = true;
        self.checker.closed(self.connection);
    }

    /// Returns whether the test has closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Replaces the connection by a new one. Bytes in flight are lost.
    pub fn reconnect(&mut self) {
        self.checker.closed(self.connection);
        let connection = ConnId(self.connection.0 + 1);
        let checker = std::mem::take(&mut self.checker);
        *self = Self { checker, connection, window: self.window, ..Self::new() };
        self.open_window();
    }

    /// Returns the violations of the initiator.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.checker.violations()
    }

    /// Checks that the initiator has broken no rule of the standard.
    ///
    /// # Panics
    ///
    /// If the initiator broke a rule.
    #[track_caller]
    pub fn assert_no_violations(&self) {
        assert!(self.violations().is_empty(), "{:#?}", self.violations());
    }
}

/// Removes and returns the next PDU of the initiator, and checks its kind and its fields, by the names of
/// their getters.
///
/// `expect!(script, ScsiCommand { cmd_sn: 1, edtl: 512 })`
#[macro_export]
macro_rules! expect {
    ($script:expr, $opcode:ident) => {
        $script.expect($crate::opcode::Opcode::$opcode)
    };
    ($script:expr, $opcode:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        let pdu = $script.expect($crate::opcode::Opcode::$opcode);
        $(assert_eq!(pdu.$field(), $value, "{} of {:?}", stringify!($field), pdu);)*
        pdu
    }};
}

/// Sends a PDU: the name of its constructor in [`pdus`](crate::pdus), and fields by the names of their
/// setters.
///
/// `send!(script, r2t { itt: 1, ttt: 2, desired_length: 512 })`
#[macro_export]
macro_rules! send {
    ($script:expr, $kind:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $script.send($crate::pdus::$kind()$(.$field($value))*)
    };
}
