//! Defines what a test may send before and after a PDU of the target, and what it may do to the connection.

use std::net::SocketAddr;

use bytes::BytesMut;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::{Numbers, Template};
use iscsi_testkit::target::{ConnId, Target};

/// Placeholder for numbers that are set later.
pub(crate) const NO_NUMBERS: Numbers = Numbers { stat_sn: 0, exp_cmd_sn: 0, max_cmd_sn: 0 };

/// State of a connection that a wrong answer may change.
pub(crate) struct Line<'a> {
    pub(crate) target: &'a mut Target,
    pub(crate) id: ConnId,
    pub(crate) framing: Framing,
    /// Bytes to send before and after the PDU.
    pub(crate) before: BytesMut,
    pub(crate) after: BytesMut,
    /// Number of bytes of the PDU that are sent. `patches` are bytes that are replaced, by their index.
    pub(crate) keep: usize,
    pub(crate) patches: Vec<(usize, u8)>,
    /// Whether the last byte of the PDU is damaged.
    pub(crate) damaged: bool,
    pub(crate) flood: Option<Flood>,
    pub(crate) fate: Fate,
    pub(crate) address: SocketAddr,
    /// Numbers of this PDU, or if it has none, of the next PDU that has numbers.
    pub(crate) numbers: Numbers,
    /// Whether this PDU consumes a StatSN.
    pub(crate) numbered: bool,
    /// Number of StatSNs that wrong answers have consumed on this connection.
    pub(crate) shift: u32,
    /// Number of the consumed StatSNs that precede this PDU.
    pub(crate) late: u32,
    /// Tags of the commands that were received.
    pub(crate) tags: Vec<u32>,
}

/// PDUs that are sent without end.
pub(crate) struct Flood {
    /// Returns the next PDU.
    pub(crate) next: Box<dyn FnMut() -> Pdu + Send>,
    /// Whether the target stops reading.
    pub(crate) deaf: bool,
}

/// The state of the connection after the PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    GoesOn,
    IsSilent,
    IsClosed,
}

impl Line<'_> {
    /// Returns the address at which the target listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a PDU before this one, with the numbers that the target would use.
    pub(crate) fn first(&mut self, template: Template) {
        let pdu = self.number(template, 0);
        self.late += u32::from(uses_stat_sn(&pdu));
        self.framing.put(&pdu, &mut self.before);
    }

    /// Sends a PDU after this one, with the numbers that the target would use.
    pub(crate) fn then(&mut self, template: Template) {
        let pdu = self.number(template, u32::from(self.numbered));
        self.framing.put(&pdu, &mut self.after);
    }

    /// Sends a PDU before this one, without changing its numbers.
    pub(crate) fn first_as_is(&mut self, pdu: &Pdu) {
        self.framing.put(pdu, &mut self.before);
    }

    /// Sends a PDU after this one, without changing its numbers.
    pub(crate) fn then_as_is(&mut self, pdu: &Pdu) {
        self.framing.put(pdu, &mut self.after);
    }

    /// Consumes the StatSN of this PDU, so that later PDUs get later ones. Returns that StatSN.
    pub(crate) fn take_stat_sn(&mut self) -> u32 {
        self.shift += 1;
        self.numbers.stat_sn.wrapping_add(self.shift - 1)
    }

    fn number(&mut self, template: Template, behind: u32) -> Pdu {
        let mut numbers = self.numbers;
        numbers.stat_sn = numbers.stat_sn.wrapping_add(self.shift + behind);
        let pdu = template.build(numbers);
        self.shift += u32::from(uses_stat_sn(&pdu));
        pdu
    }

    /// Returns a PDU with the numbers of this one.
    pub(crate) fn numbered(&self, template: Template) -> Pdu {
        let mut numbers = self.numbers;
        numbers.stat_sn = numbers.stat_sn.wrapping_add(self.shift);
        template.build(numbers)
    }

    /// Returns the tag of another command, or 0x7777 if the initiator has sent no other command.
    pub(crate) fn other_tag(&self, itt: u32) -> u32 {
        self.tags.iter().copied().find(|other| *other != itt).unwrap_or(0x7777)
    }

    /// Sends bytes before this PDU.
    pub(crate) fn first_bytes(&mut self, bytes: &[u8]) {
        self.before.extend_from_slice(bytes);
    }

    /// Sends bytes after this PDU.
    pub(crate) fn then_bytes(&mut self, bytes: &[u8]) {
        self.after.extend_from_slice(bytes);
    }

    /// Makes the target itself send a PDU, with its own numbers.
    pub(crate) fn inject(&mut self, template: Template) {
        self.target.inject(self.id, template.build(NO_NUMBERS));
    }

    /// Responds to a request of the initiator in place of the target. The target receives a NOP-Out with the
    /// CmdSN and the ExpStatSN of the request instead, so that its numbers stay right.
    pub(crate) fn answer(&mut self, request: &mut Pdu, template: Template) {
        self.inject(template);
        let mut seen = Pdu::new(Opcode::NopOut);
        seen.header[0] |= request.header[0] & 0x40;
        seen.set(24, &request.header[24..32]);
        seen.set_u32(16, NO_TAG);
        seen.set_u32(20, NO_TAG);
        *request = seen;
    }

    /// Drops the PDU.
    pub(crate) fn drop_pdu(&mut self) {
        self.keep = 0;
    }

    /// Sends only the first bytes of the PDU.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.keep = bytes;
    }

    /// Closes the connection after this PDU.
    pub(crate) fn close(&mut self) {
        self.fate = Fate::IsClosed;
    }

    /// Sends nothing after this PDU, and keeps the connection open.
    pub(crate) fn hush(&mut self) {
        self.fate = Fate::IsSilent;
    }

    /// Replaces a byte of the PDU as it is sent, for example of a length or a digest.
    pub(crate) fn patch(&mut self, at: usize, value: u8) {
        self.patches.push((at, value));
    }

    /// Damages the last byte of the PDU as it is sent: a byte of its data digest, if it has one.
    pub(crate) fn damage_end(&mut self) {
        self.damaged = true;
    }

    /// Frames the PDU in another way than was negotiated.
    pub(crate) fn reframe(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Sends the PDU with a wrong DataSegmentLength.
    pub(crate) fn patch_length(&mut self, length: u32) {
        let [_, bytes @ ..] = length.to_be_bytes();
        self.patches.extend((5..8).zip(bytes));
    }

    /// Makes the target send the PDUs of `next` after this PDU, without end, and nothing else. The target
    /// still reads, unless it is `deaf`.
    pub(crate) fn flood(&mut self, deaf: bool, next: impl FnMut() -> Pdu + Send + 'static) {
        self.flood = Some(Flood { next: Box::new(next), deaf });
        self.hush();
    }
}

/// Returns whether a PDU of the target consumes a StatSN (RFC 7143 §4.2.2.2).
pub(crate) fn uses_stat_sn(pdu: &Pdu) -> bool {
    match pdu.opcode() {
        Some(Opcode::DataIn) => pdu.has_status(),
        Some(Opcode::NopIn) => pdu.itt() != NO_TAG,
        Some(Opcode::R2t) | None => false,
        Some(opcode) => !opcode.is_from_initiator(),
    }
}
