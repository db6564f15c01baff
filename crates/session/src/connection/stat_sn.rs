//! Keeps the PDUs of a connection in the order of their StatSNs: a PDU that arrives before an earlier one
//! waits here (RFC 7143 §4.2.2.2).
//!
//! A target that numbers its responses in one thread and sends them in another may send them slightly out of
//! order. Their data is stored on arrival. The responses wait here until all earlier ones have arrived. So
//! ExpStatSN, which acknowledges, never passes a gap, and a task management response never overtakes the
//! statuses before it. A gap that stays means a lost status.

use std::time::{Duration, Instant};

use iscsi_pdu::StatSn;

use super::inbox::Received;
use crate::error::ProtocolError;

/// How long a StatSN may be missing: long enough for a megabyte of data between two responses on a slow link,
/// and shorter than the default time limit of a command.
const MAX_GAP: Duration = Duration::from_secs(5);

/// How far a StatSN may be ahead of the expected one, and how many PDUs are kept: about as many as the
/// commands that targets accept. A greater gap counts as a loss.
const MAX_AHEAD: i32 = 256;

/// The most bytes in the data segments of all kept PDUs. The segment of a status has a few hundred bytes.
const MAX_BYTES: usize = 1 << 20;

/// A StatSN this far before the expected one is not a repetition but an error.
const MAX_BEHIND: u32 = 1 << 20;

/// ExpStatSN of one connection, and the PDUs that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct StatSnOrder {
    expected: StatSn,
    /// PDUs in the order of arrival, each with its StatSN.
    kept: Vec<(StatSn, Received)>,
    /// Total length of the data segments of the kept PDUs, bytes.
    bytes: usize,
    /// The next StatSN, as a NOP-In has stated it: all StatSNs before it have been used. `None` unless such a
    /// NOP-In shows a gap.
    shown: Option<StatSn>,
    gap: Option<Gap>,
    /// Whether the target has given a StatSN to more than one PDU.
    repeats: bool,
}

/// A gap in the StatSNs: the expected one is missing.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Instant,
    /// The StatSN that arrived instead of the missing one.
    found: StatSn,
}

impl StatSnOrder {
    /// Starts full feature phase after the login, with the StatSN `expected`.
    pub(super) const fn begin(&mut self, expected: StatSn) {
        self.expected = expected;
    }

    /// Returns ExpStatSN: the next StatSN, which acknowledges all StatSNs before it.
    pub(crate) const fn expected(&self) -> StatSn {
        self.expected
    }

    /// Counts the StatSN of a PDU that consumes one. Returns `false` if the StatSN was counted before.
    pub(crate) fn take(&mut self, found: StatSn) -> Result<bool, ProtocolError> {
        let expected = self.expected;
        if found == expected {
            self.expected = found.next();
            return Ok(true);
        }
        let distance = found.distance_from(expected);
        if distance < 0 && distance.unsigned_abs() <= MAX_BEHIND {
            return Ok(false);
        }
        Err(ProtocolError::StatSn { expected, found })
    }

    /// Records a response with an old StatSN. Returns `true` the first time.
    pub(crate) fn record_repeat(&mut self) -> bool {
        !std::mem::replace(&mut self.repeats, true)
    }

    /// Keeps a PDU that consumes a StatSN beyond the expected one.
    ///
    /// # Errors
    /// When the gap is too large, or too much is kept already: then the status counts as lost.
    pub(crate) fn keep(
        &mut self,
        found: StatSn,
        pdu: Received,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        self.record_gap(found, now)?;
        let bytes = self.bytes + pdu.data.len();
        if self.kept.len() >= MAX_AHEAD.unsigned_abs() as usize || bytes > MAX_BYTES {
            return Err(ProtocolError::StatSn { expected: self.expected, found });
        }
        self.bytes = bytes;
        self.kept.push((found, pdu));
        Ok(())
    }

    /// Records the `next` StatSN of a NOP-In that consumes none.
    ///
    /// # Errors
    /// When the gap is too large: then a status is lost.
    pub(crate) fn show(&mut self, next: StatSn, now: Instant) -> Result<(), ProtocolError> {
        if !next.is_after(self.expected) {
            return Ok(());
        }
        self.record_gap(next, now)?;
        if self.shown.is_none_or(|shown| next.is_after(shown)) {
            self.shown = Some(next);
        }
        Ok(())
    }

    fn record_gap(&mut self, found: StatSn, now: Instant) -> Result<(), ProtocolError> {
        if found.distance_from(self.expected) > MAX_AHEAD {
            return Err(ProtocolError::StatSn { expected: self.expected, found });
        }
        self.gap.get_or_insert(Gap { since: now, found });
        Ok(())
    }

    /// Returns a kept PDU whose turn has come, if ExpStatSN has advanced from `before`. If no kept PDU has
    /// its turn, the present gap is filled; if another gap follows, its time limit starts.
    pub(crate) fn next_kept(&mut self, before: StatSn, now: Instant) -> Option<Received> {
        if self.expected == before {
            return None;
        }
        let expected = self.expected;
        let Some(at) = self.kept.iter().position(|(stat_sn, _)| !stat_sn.is_after(expected)) else {
            self.renew_gap(now);
            return None;
        };
        let (_, pdu) = self.kept.remove(at);
        self.bytes -= pdu.data.len();
        Some(pdu)
    }

    fn renew_gap(&mut self, now: Instant) {
        self.shown = self.shown.filter(|shown| shown.is_after(self.expected));
        let found = self.kept.first().map(|(stat_sn, _)| *stat_sn).or(self.shown);
        self.gap = found.map(|found| Gap { since: now, found });
    }

    /// Returns when the missing StatSN counts as lost.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.gap.map(|gap| gap.since + MAX_GAP)
    }

    /// Returns the lost StatSN as an error, once [`deadline`](Self::deadline) has passed.
    pub(crate) fn loss(&self, now: Instant) -> Option<ProtocolError> {
        let gap = self.gap.filter(|gap| gap.since + MAX_GAP <= now)?;
        Some(ProtocolError::StatSn { expected: self.expected, found: gap.found })
    }
}
