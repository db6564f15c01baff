//! One TCP connection of the target.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::login::state::Login;
use super::outbox::Outbox;
use super::read::ReadTransfer;
use super::tally::Tallies;
use crate::conn_id::ConnId;
use crate::frame::Framing;
use crate::opcode::Opcode;
use crate::pdu::Pdu;

/// The phase of a connection (RFC 7143 §8.1.2).
#[derive(Debug)]
pub(crate) enum Phase {
    Login(Box<Login>),
    FullFeature,
    /// The connection closes once everything that is queued has been sent.
    Closing,
    Closed,
}

/// A PDU or a read that waits to be sent.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Pdu(Pdu),
    Read(ReadTransfer),
}

impl Outgoing {
    pub(crate) fn itt(&self) -> u32 {
        match self {
            Self::Pdu(pdu) => pdu.itt(),
            Self::Read(read) => read.itt(),
        }
    }

    /// Returns the number of R2Ts or Data-Ins that were sent for the task of this response; `None` if this is
    /// not a response.
    pub(crate) fn numbered(&self) -> Option<u32> {
        match self {
            Self::Pdu(pdu) => pdu.is(Opcode::ScsiResponse).then(|| pdu.u32_at(36)),
            Self::Read(read) => Some(read.sent()),
        }
    }
}

/// A response that is sent after a delay.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) connection: ConnId,
    pub(crate) outgoing: Outgoing,
    pub(crate) delay: Duration,
    /// When the response is sent; unknown until the next call of `Target::advance`.
    pub(crate) due: Option<Instant>,
}

impl Delayed {
    pub(crate) const fn new(connection: ConnId, outgoing: Outgoing, delay: Duration) -> Self {
        Self { connection, outgoing, delay, due: None }
    }
}

/// A text exchange in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextExchange {
    pub(crate) request: Vec<u8>,
    /// The part of the response text that was not sent yet, once there is a response.
    pub(crate) answer: Option<Bytes>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    /// TSIH of the session, 0 before there is one.
    pub(crate) session: u16,
    pub(crate) cid: u16,
    pub(crate) framing: Framing,
    /// The initiator's `MaxRecvDataSegmentLength`.
    pub(crate) segment: u32,
    /// The next `StatSN`.
    pub(crate) stat_sn: u32,
    /// `CmdSN` of the latest login request: the start of the window while there is no session.
    pub(crate) login_cmd_sn: u32,
    pub(crate) inbox: BytesMut,
    pub(crate) outbox: Outbox,
    pub(crate) waiting: Waiting,
    pub(crate) text: Option<TextExchange>,
    pub(crate) tallies: Tallies,
}

/// PDUs that are not in the outbox yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) queue: VecDeque<Outgoing>,
    /// PDUs that a fault holds back, each with the number of PDUs that must be sent before it.
    pub(crate) behind: Vec<(u32, Pdu)>,
}

impl Connection {
    pub(crate) fn new(stat_sn: u32) -> Self {
        Self {
            phase: Phase::Login(Box::default()),
            session: 0,
            cid: 0,
            framing: Framing::PLAIN,
            segment: 8192,
            stat_sn,
            login_cmd_sn: 0,
            inbox: BytesMut::new(),
            outbox: Outbox::default(),
            waiting: Waiting::default(),
            text: None,
            tallies: Tallies::default(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Closes the connection, and discards everything that is queued.
    pub(crate) fn cut(&mut self) {
        self.phase = Phase::Closed;
        self.waiting = Waiting::default();
        self.inbox.clear();
    }
}
