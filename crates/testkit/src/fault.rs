//! Faults: what goes wrong once, and when.

use bytes::Bytes;

use crate::opcode::Opcode;
use crate::pdu::Pdu;

/// Something that goes wrong once.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The connection, counted from 0 in the order of [`accept`](crate::target::Target::accept);
    /// `None` is any.
    pub connection: Option<usize>,
    /// What triggers it.
    pub trigger: Trigger,
    /// What happens.
    pub effect: Effect,
}

/// When a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A PDU of the target is about to be sent: the one with this number, from 0, among those with
    /// this operation code (`None`: among all).
    Sending(Option<Opcode>, u32),
    /// A PDU of the initiator has come, counted likewise.
    Receiving(Option<Opcode>, u32),
    /// The target has sent this many bytes; the rest is lost. Only for [`Effect::Close`].
    SentBytes(u64),
    /// The initiator has sent more than this many bytes; what goes beyond is lost. Only for
    /// [`Effect::Close`].
    ReceivedBytes(u64),
}

/// What happens at the trigger.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The connection is closed, and the PDU is lost.
    Close,
    /// The PDU is lost; its `StatSN` stays used.
    Swallow,
    /// The PDU is sent twice. Sending only.
    Duplicate,
    /// The PDU goes out with a wrong header digest. Sending only, with header digests.
    CorruptHeaderDigest,
    /// The PDU goes out with a wrong data digest. Sending only, with data digests.
    CorruptDataDigest,
    /// Another PDU goes out first, as it is. Sending only.
    Before(Box<Pdu>),
    /// One byte of the header is replaced.
    SetByte {
        /// Offset in the header.
        at: usize,
        /// The new value.
        value: u8,
    },
    /// Four bytes of the header are replaced.
    SetWord {
        /// Offset in the header.
        at: usize,
        /// The new value.
        value: u32,
    },
    /// Four bytes of the header grow, modulo 2^32.
    AddWord {
        /// Offset in the header.
        at: usize,
        /// How much is added.
        value: u32,
    },
    /// The data segment is replaced.
    SetData(Bytes),
    /// The PDU goes out behind so many later ones, with the `StatSN` of its own place. Sending only.
    Behind(u32),
    /// From this PDU on `StatSN` is larger by so many. Sending only.
    SkipStatSn(u32),
}

impl Fault {
    /// A fault at the n-th PDU (from 0) of the target with this operation code, on any connection.
    #[must_use]
    pub const fn sending(opcode: Opcode, nth: u32, effect: Effect) -> Self {
        Self { connection: None, trigger: Trigger::Sending(Some(opcode), nth), effect }
    }

    /// A fault at the n-th PDU (from 0) of the initiator with this operation code, on any connection.
    #[must_use]
    pub const fn receiving(opcode: Opcode, nth: u32, effect: Effect) -> Self {
        Self { connection: None, trigger: Trigger::Receiving(Some(opcode), nth), effect }
    }

    /// A connection that breaks after the target has sent so many bytes.
    #[must_use]
    pub const fn cut_after_sent(bytes: u64) -> Self {
        Self { connection: None, trigger: Trigger::SentBytes(bytes), effect: Effect::Close }
    }

    /// A connection that breaks when the initiator sends more than so many bytes.
    #[must_use]
    pub const fn cut_after_received(bytes: u64) -> Self {
        Self { connection: None, trigger: Trigger::ReceivedBytes(bytes), effect: Effect::Close }
    }

    /// The same fault on one connection only, counted from 0.
    #[must_use]
    pub const fn on_connection(mut self, connection: usize) -> Self {
        self.connection = Some(connection);
        self
    }

    /// The SCSI response with this number ends with a response code that means failure.
    #[must_use]
    pub const fn failed_response(nth: u32, code: u8) -> Self {
        Self::sending(Opcode::ScsiResponse, nth, Effect::SetByte { at: 2, value: code })
    }

    /// The Data-In with this number gets a `DataSN` that leaves one out.
    #[must_use]
    pub const fn data_sn_gap(nth: u32) -> Self {
        Self::sending(Opcode::DataIn, nth, Effect::AddWord { at: 36, value: 1 })
    }

    /// The R2T with this number asks for data at another offset.
    #[must_use]
    pub const fn r2t_offset(nth: u32, offset: u32) -> Self {
        Self::sending(Opcode::R2t, nth, Effect::SetWord { at: 40, value: offset })
    }

    /// The n-th PDU with this operation code carries another initiator task tag.
    #[must_use]
    pub const fn wrong_itt(opcode: Opcode, nth: u32, itt: u32) -> Self {
        Self::sending(opcode, nth, Effect::SetWord { at: 16, value: itt })
    }
}
