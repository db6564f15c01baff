//! Checks that the target of a connection is alive (RFC 7143 §11.18-11.19).

use std::time::Instant;

use iscsi_pdu::Itt;

use crate::config::Timeouts;
use crate::timer::Timer;

/// When bytes last moved on a connection, and whether a NOP-Out of the session is outstanding.
///
/// Bytes in either direction count as a sign of life, because the response to a NOP-Out may be late: the
/// NOP-Out may wait behind much data.
#[derive(Debug)]
pub(crate) struct Liveness {
    last_progress: Instant,
    /// When bytes last came from the target.
    last_received: Instant,
    /// The outstanding NOP-Out of the session.
    ping: Option<Itt>,
}

impl Liveness {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { last_progress: now, last_received: now, ping: None }
    }

    /// Returns when bytes last moved in either direction, or the session last sent a NOP-Out.
    pub(crate) const fn last_progress(&self) -> Instant {
        self.last_progress
    }

    /// Records that bytes have moved in either direction.
    pub(crate) const fn moved(&mut self, now: Instant) {
        self.last_progress = now;
    }

    /// Records that bytes have come from the target.
    pub(crate) const fn received(&mut self, now: Instant) {
        self.last_received = now;
        self.moved(now);
    }

    /// Returns when bytes last came from the target.
    pub(crate) const fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Records that the target's host is alive, although the target has not responded to the NOP-Out. The next
    /// NOP-Out is sent after another interval.
    pub(crate) const fn host_is_there(&mut self, now: Instant) {
        self.ping = None;
        self.last_progress = now;
    }

    /// Records that the session sends a NOP-Out.
    pub(crate) const fn pinged(&mut self, itt: Itt, now: Instant) {
        self.ping = Some(itt);
        self.last_progress = now;
    }

    /// Records that a task has ended: if it was the session's NOP-Out, none is outstanding.
    pub(crate) fn forget(&mut self, itt: Itt) {
        self.ping = self.ping.filter(|ping| *ping != itt);
    }

    /// Returns when to send a NOP-Out because no byte has moved, or, if one is outstanding, when to close the
    /// connection. `None` if the configuration wants no NOP-Outs.
    pub(super) fn timer(&self, timeouts: &Timeouts) -> Option<(Instant, Timer)> {
        let interval = timeouts.nop_interval?;
        Some(match self.ping {
            Some(_) => (self.last_progress + timeouts.nop_response, Timer::NopResponse),
            None => (self.last_progress + interval, Timer::NopInterval),
        })
    }
}
