//! Signs of life on a connection (RFC 7143 §11.18-11.19).

use std::time::Instant;

use iscsi_pdu::Itt;

use crate::config::Timeouts;
use crate::timer::Timer;

/// When bytes last moved on a connection, and whether the session has asked for a sign of life.
///
/// Bytes in either direction are a sign of life: a NOP-Out may wait behind much data.
#[derive(Debug)]
pub(crate) struct Liveness {
    last_progress: Instant,
    /// When bytes last came from the target.
    last_received: Instant,
    /// The session's own NOP-Out that has not been answered.
    ping: Option<Itt>,
}

impl Liveness {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { last_progress: now, last_received: now, ping: None }
    }

    /// When bytes last moved in either direction, or the session last asked for a sign of life.
    pub(crate) const fn last_progress(&self) -> Instant {
        self.last_progress
    }

    /// Records that bytes have moved.
    pub(crate) const fn moved(&mut self, now: Instant) {
        self.last_progress = now;
    }

    /// Records that bytes have come from the target.
    pub(crate) const fn received(&mut self, now: Instant) {
        self.last_received = now;
        self.moved(now);
    }

    /// When bytes last came from the target.
    pub(crate) const fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Records that the target's host is alive, although the target itself has not answered. The next NOP-Out is
    /// sent after another interval.
    pub(crate) const fn host_is_there(&mut self, now: Instant) {
        self.ping = None;
        self.last_progress = now;
    }

    /// Records that the session sends a NOP-Out of its own.
    pub(crate) const fn pinged(&mut self, itt: Itt, now: Instant) {
        self.ping = Some(itt);
        self.last_progress = now;
    }

    /// Forgets the session's NOP-Out, if that is the task that has ended.
    pub(crate) fn forget(&mut self, itt: Itt) {
        self.ping = self.ping.filter(|ping| *ping != itt);
    }

    /// Returns when the silence is long enough to send a NOP-Out, or, after one, to give up the connection.
    pub(super) fn timer(&self, timeouts: &Timeouts) -> Option<(Instant, Timer)> {
        let interval = timeouts.nop_interval?;
        Some(match self.ping {
            Some(_) => (self.last_progress + timeouts.nop_response, Timer::NopResponse),
            None => (self.last_progress + interval, Timer::NopInterval),
        })
    }
}
