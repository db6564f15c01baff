//! Targets that do not respond for a while, although their hosts acknowledge all data.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::target::Target;
use tokio::time::Instant;

use crate::clock;

/// Operation codes of SYNCHRONIZE CACHE (10) and (16).
const FLUSHES: [u8; 2] = [0x35, 0x91];

/// A period in which a target does not respond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub(crate) since: Instant,
    until: Instant,
}

impl Silence {
    /// Returns a period that begins at the current time.
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

/// Speed of the store behind a target's cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowStore {
    /// Duration of a flush per unflushed block.
    pub(crate) block: Duration,
    /// Longest duration of a flush.
    pub(crate) max: Duration,
    /// Interval of the target's ping timer. The initiator's response to that ping stays unread until the
    /// flush has ended.
    pub(crate) ping: Option<Duration>,
}

impl SlowStore {
    /// Returns the duration of a flush of `blocks` blocks.
    pub(crate) fn lasts(&self, blocks: usize) -> Duration {
        self.block.saturating_mul(u32::try_from(blocks).unwrap_or(u32::MAX)).min(self.max)
    }
}

/// Data of a connection that has reached the target's host and is unread.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    parts: VecDeque<Bytes>,
    len: usize,
    /// Arrival time of the last byte.
    last_came: Option<Instant>,
    /// While set, the target neither reads this connection nor sends on it.
    pub(crate) silence: Option<Silence>,
    /// When the target's ping timer ends the session. `None` if the flush ends before that.
    ping_due: Option<Instant>,
    /// The beginning of an incomplete PDU, while the stream is inspected.
    stream: BytesMut,
    /// Whether the unread data has a SCSI command. `has_request` is for login, logout, text and task
    /// management requests, whose time limits are shorter.
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

    /// Adds received data.
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

    /// Returns the next part of the unread data, for the target to read.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let bytes = self.parts.pop_front()?;
        self.len -= bytes.len();
        if self.parts.is_empty() {
            (self.has_command, self.has_request) = (false, false);
        }
        Some(bytes)
    }

    /// Returns whether the target neither reads nor sends on this connection at `now`. Clears the silence if it
    /// is over.
    pub(crate) fn is_silent(&mut self, now: Instant) -> bool {
        if self.silence.is_some_and(|silence| silence.is_over(now)) {
            (self.silence, self.ping_due) = (None, None);
        }
        self.silence.is_some()
    }

    /// Blocks the connection for the duration `flush`. If that is longer than `ping`, the target's ping timer
    /// expires.
    pub(crate) fn wait_for(&mut self, flush: Duration, ping: Option<Duration>) {
        self.silence = Some(Silence::of(flush));
        self.ping_due = ping.filter(|ping| *ping < flush).map(|ping| clock::now() + ping);
    }

    /// Returns whether the target's ping timer has expired.
    pub(crate) fn is_ping_overdue(&self, now: Instant) -> bool {
        self.ping_due.is_some_and(|due| due <= now)
    }

    /// Returns the times at which the silence ends and the ping timer expires.
    pub(crate) fn next(&self) -> impl Iterator<Item = Instant> + use<> {
        self.silence.map(|silence| silence.until).into_iter().chain(self.ping_due)
    }

    /// Ends the silence: the target reads the connection again.
    pub(crate) fn heal(&mut self) {
        (self.silence, self.ping_due) = (None, None);
    }
}

/// Number of flushes that a target has begun.
pub(crate) fn flushes(target: &Target) -> usize {
    target.commands().iter().filter(|command| FLUSHES.contains(&command.cdb[0])).count()
}
