//! What a lie may do to the connection at whose PDU it is told.

use std::net::SocketAddr;

use bytes::BytesMut;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::{Numbers, Template};
use iscsi_testkit::target::{ConnId, Target};

/// Numbers that somebody else fills in.
pub(crate) const NO_NUMBERS: Numbers = Numbers { stat_sn: 0, exp_cmd_sn: 0, max_cmd_sn: 0 };

/// What a lie may do to a connection.
pub(crate) struct Line<'a> {
    pub(crate) target: &'a mut Target,
    pub(crate) id: ConnId,
    pub(crate) framing: Framing,
    /// What goes before and behind the PDU.
    pub(crate) before: BytesMut,
    pub(crate) after: BytesMut,
    /// How many bytes of the PDU are sent, and which of them are replaced.
    pub(crate) keep: usize,
    pub(crate) patches: Vec<(usize, u8)>,
    /// Whether its last byte is damaged.
    pub(crate) damaged: bool,
    pub(crate) flood: Option<Flood>,
    pub(crate) fate: Fate,
    pub(crate) address: SocketAddr,
    /// The numbers of this PDU, or of the next one that has any.
    pub(crate) numbers: Numbers,
    /// Whether this PDU uses up a StatSN.
    pub(crate) numbered: bool,
    /// How many StatSNs lies have used up on this connection.
    pub(crate) shift: u32,
    /// How many of them before this PDU.
    pub(crate) late: u32,
    /// The commands that were heard.
    pub(crate) tags: Vec<u32>,
}

/// What is sent without an end.
pub(crate) struct Flood {
    /// One PDU after the other.
    pub(crate) next: Box<dyn FnMut() -> Pdu + Send>,
    /// Whether the target does not listen any more.
    pub(crate) deaf: bool,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    GoesOn,
    IsSilent,
    IsClosed,
}

impl Line<'_> {
    /// Where the target listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a PDU before this one, numbered as the target's own.
    pub(crate) fn first(&mut self, template: Template) {
        let pdu = self.number(template, 0);
        self.late += u32::from(uses_stat_sn(&pdu));
        self.framing.put(&pdu, &mut self.before);
    }

    /// Sends a PDU behind this one, numbered as the target's own.
    pub(crate) fn then(&mut self, template: Template) {
        let pdu = self.number(template, u32::from(self.numbered));
        self.framing.put(&pdu, &mut self.after);
    }

    /// Sends a PDU before this one, as it is.
    pub(crate) fn first_as_is(&mut self, pdu: &Pdu) {
        self.framing.put(pdu, &mut self.before);
    }

    /// Sends a PDU behind this one, as it is.
    pub(crate) fn then_as_is(&mut self, pdu: &Pdu) {
        self.framing.put(pdu, &mut self.after);
    }

    /// Uses up a StatSN: that of this PDU, and those behind it have later ones.
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

    /// A PDU with the numbers of this one.
    pub(crate) fn numbered(&self, template: Template) -> Pdu {
        let mut numbers = self.numbers;
        numbers.stat_sn = numbers.stat_sn.wrapping_add(self.shift);
        template.build(numbers)
    }

    /// The tag of another command than this, if there is one.
    pub(crate) fn other_tag(&self, itt: u32) -> u32 {
        self.tags.iter().copied().find(|other| *other != itt).unwrap_or(0x7777)
    }

    /// Sends bytes before this PDU.
    pub(crate) fn first_bytes(&mut self, bytes: &[u8]) {
        self.before.extend_from_slice(bytes);
    }

    /// Sends bytes behind this PDU.
    pub(crate) fn then_bytes(&mut self, bytes: &[u8]) {
        self.after.extend_from_slice(bytes);
    }

    /// Has the target send a PDU, numbered as its own.
    pub(crate) fn inject(&mut self, template: Template) {
        self.target.inject(self.id, template.build(NO_NUMBERS));
    }

    /// Answers a request of the initiator's in the target's place, which only learns its CmdSN.
    pub(crate) fn answer(&mut self, request: &mut Pdu, template: Template) {
        self.inject(template);
        let mut seen = Pdu::new(Opcode::NopOut);
        seen.header[0] |= request.header[0] & 0x40;
        seen.set(24, &request.header[24..32]);
        seen.set_u32(16, NO_TAG);
        seen.set_u32(20, NO_TAG);
        *request = seen;
    }

    /// The PDU is lost.
    pub(crate) fn lose(&mut self) {
        self.keep = 0;
    }

    /// Only the first bytes of the PDU are sent.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.keep = bytes;
    }

    /// Closes the connection behind this PDU.
    pub(crate) fn close(&mut self) {
        self.fate = Fate::IsClosed;
    }

    /// Says nothing any more behind this PDU, and keeps the connection open.
    pub(crate) fn hush(&mut self) {
        self.fate = Fate::IsSilent;
    }

    /// Replaces a byte of the PDU as it is sent: a length, a digest.
    pub(crate) fn patch(&mut self, at: usize, value: u8) {
        self.patches.push((at, value));
    }

    /// Damages the last byte of the PDU as it is sent: of its data digest, if it has one.
    pub(crate) fn damage_end(&mut self) {
        self.damaged = true;
    }

    /// Frames the PDU in another way than agreed on.
    pub(crate) fn reframe(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Gives the PDU another DataSegmentLength than it has.
    pub(crate) fn patch_length(&mut self, length: u32) {
        let [_, bytes @ ..] = length.to_be_bytes();
        self.patches.extend((5..8).zip(bytes));
    }

    /// Sends one PDU after the other behind this one, and nothing else any more. It still listens,
    /// unless it is `deaf`.
    pub(crate) fn flood(&mut self, deaf: bool, next: impl FnMut() -> Pdu + Send + 'static) {
        self.flood = Some(Flood { next: Box::new(next), deaf });
        self.hush();
    }
}

/// Whether a PDU of the target uses up a StatSN (RFC 7143 §4.2.2.2).
pub(crate) fn uses_stat_sn(pdu: &Pdu) -> bool {
    match pdu.opcode() {
        Some(Opcode::DataIn) => pdu.has_status(),
        Some(Opcode::NopIn) => pdu.itt() != NO_TAG,
        Some(Opcode::R2t) | None => false,
        Some(opcode) => !opcode.is_from_initiator(),
    }
}
