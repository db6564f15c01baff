//! Targets that answer nothing for a while, though their hosts take and acknowledge all that comes.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::target::Target;
use tokio::time::Instant;

use crate::clock;

/// SYNCHRONIZE CACHE (10) and (16).
const FLUSHES: [u8; 2] = [0x35, 0x91];

/// A time in which something answers nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub(crate) since: Instant,
    until: Instant,
}

impl Silence {
    /// One that begins now.
    pub(crate) fn of(lasts: Duration) -> Self {
        let since = clock::now();
        Self { since, until: since + lasts }
    }

    pub(crate) fn is_over(self, now: Instant) -> bool {
        self.until <= now
    }

    pub(crate) const fn until(self) -> Instant {
        self.until
    }
}

/// How the store behind a target's cache takes what a flush brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowStore {
    /// For each block.
    pub(crate) block: Duration,
    /// The longest that a flush takes.
    pub(crate) max: Duration,
    /// The target ends a session whose answer to its own ping comes later than that. It lies behind the flush, unread.
    pub(crate) ping: Option<Duration>,
}

impl SlowStore {
    /// How long a flush takes of so many blocks.
    pub(crate) fn lasts(&self, blocks: usize) -> Duration {
        self.block.saturating_mul(u32::try_from(blocks).unwrap_or(u32::MAX)).min(self.max)
    }
}

/// What has come to a target's host over a connection, and the target has not read yet.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    parts: VecDeque<Bytes>,
    len: usize,
    /// When the last of it has come.
    last_came: Option<Instant>,
    /// The target reads nothing of this connection, and sends nothing over it.
    pub(crate) silence: Option<Silence>,
    /// The store that flushes over this connection wait for has nearly failed the session by then.
    ping_due: Option<Instant>,
    /// What has come since the beginning and is no whole PDU yet, where it is looked at.
    stream: BytesMut,
    /// Of what lies unread: whether there is a command, and whether there is a request that has a shorter time limit.
    pub(crate) has_command: bool,
    pub(crate) has_request: bool,
}

impl Unread {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) const fn last_came(&self) -> Option<Instant> {
        self.last_came
    }

    /// Takes what has come.
    pub(crate) fn push(&mut self, bytes: Bytes, is_watched: bool) {
        self.last_came = Some(clock::now());
        self.len += bytes.len();
        if is_watched {
            self.watch(&bytes);
        }
        self.parts.push_back(bytes);
    }

    fn watch(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
        let next = || Framing::PLAIN.take(&mut self.stream, usize::MAX).ok().flatten();
        for pdu in std::iter::from_fn(next) {
            let is_any = |of: &[Opcode]| of.iter().any(|opcode| Pdu::is(&pdu, *opcode));
            self.has_command |= is_any(&[Opcode::ScsiCommand]);
            self.has_request |= is_any(&[
                Opcode::LoginRequest,
                Opcode::LogoutRequest,
                Opcode::TaskManagementRequest,
                Opcode::TextRequest,
            ]);
        }
    }

    /// The target reads the next part.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let bytes = self.parts.pop_front()?;
        self.len -= bytes.len();
        if self.parts.is_empty() {
            (self.has_command, self.has_request) = (false, false);
        }
        Some(bytes)
    }

    /// Whether the target answers nothing over this connection now.
    pub(crate) fn is_silent(&mut self, now: Instant) -> bool {
        if self.silence.is_some_and(|silence| silence.is_over(now)) {
            (self.silence, self.ping_due) = (None, None);
        }
        self.silence.is_some()
    }

    /// The connection carries nothing until a flush has ended.
    pub(crate) fn wait_for(&mut self, flush: Duration, ping: Option<Duration>) {
        self.silence = Some(Silence::of(flush));
        self.ping_due = ping.filter(|ping| *ping < flush).map(|ping| clock::now() + ping);
    }

    /// Whether the target's patience with its own ping is over.
    pub(crate) fn is_ping_overdue(&self, now: Instant) -> bool {
        self.ping_due.is_some_and(|due| due <= now)
    }

    /// When something happens by itself.
    pub(crate) fn next(&self) -> impl Iterator<Item = Instant> + use<> {
        self.silence.map(|silence| silence.until).into_iter().chain(self.ping_due)
    }

    /// From now on all is read.
    pub(crate) fn heal(&mut self) {
        (self.silence, self.ping_due) = (None, None);
    }
}

/// How many flushes a target has begun.
pub(crate) fn flushes(target: &Target) -> usize {
    target.commands().iter().filter(|command| FLUSHES.contains(&command.cdb[0])).count()
}
