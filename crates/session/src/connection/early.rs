//! PDUs that came before their turn: a StatSN before theirs is missing (RFC 7143 §4.2.2.2).
//!
//! A target that numbers its answers in one thread and sends them in another may put them out of
//! order by a little. Their data has landed; what they say waits here until all that was numbered
//! before it has come, so ExpStatSN, which acknowledges, never passes a gap, and a response to task
//! management never overtakes the statuses before it. A gap that stays is a lost status.

use std::time::{Duration, Instant};

use iscsi_pdu::StatSn;

use super::inbox::Received;
use crate::error::ProtocolError;

/// How long a StatSN may be missing: a slow link carries a megabyte of data between two answers
/// meanwhile, and by default no command is given up so soon. What is really lost TCP will never bring.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// How far ahead of its turn a PDU may come, and how many are kept: as many commands as targets
/// take at once. Beyond that it is no disorder.
const FARTHEST: i32 = 256;

/// How much the data segments of all that is kept may hold, bytes. Statuses have some hundred each.
const MOST_BYTES: usize = 1 << 20;

/// The PDUs of one connection that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// As they came, each with its StatSN.
    kept: Vec<(StatSn, Received)>,
    /// Length of their data segments, bytes.
    bytes: usize,
    /// The next StatSN by a NOP-In's account: all before it have been used.
    shown: Option<StatSn>,
    gap: Option<Gap>,
}

/// A StatSN is missing.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Instant,
    /// What came in its place.
    found: StatSn,
}

impl Early {
    /// Keeps a PDU that uses up a StatSN beyond the one `expected`.
    ///
    /// # Errors
    /// When so much is missing, or kept already, that this is a loss.
    pub(crate) fn keep(
        &mut self,
        expected: StatSn,
        found: StatSn,
        pdu: Received,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        self.note(expected, found, now)?;
        let bytes = self.bytes + pdu.data.len();
        if self.kept.len() >= FARTHEST.unsigned_abs() as usize || bytes > MOST_BYTES {
            return Err(ProtocolError::StatSn { expected, found });
        }
        self.bytes = bytes;
        self.kept.push((found, pdu));
        Ok(())
    }

    /// A PDU that uses no StatSN up names the `next` one, which is beyond the one `expected`.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    pub(crate) fn show(
        &mut self,
        expected: StatSn,
        next: StatSn,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        self.note(expected, next, now)?;
        if self.shown.is_none_or(|shown| next.is_after(shown)) {
            self.shown = Some(next);
        }
        Ok(())
    }

    fn note(&mut self, expected: StatSn, found: StatSn, now: Instant) -> Result<(), ProtocolError> {
        if found.distance_from(expected) > FARTHEST {
            return Err(ProtocolError::StatSn { expected, found });
        }
        self.gap.get_or_insert(Gap { since: now, found });
        Ok(())
    }

    /// Hands out a PDU whose turn has come, now that the StatSN `expected` is the next.
    pub(crate) fn take(&mut self, expected: StatSn) -> Option<Received> {
        let at = self.kept.iter().position(|(stat_sn, _)| !stat_sn.is_after(expected))?;
        let (_, pdu) = self.kept.remove(at);
        self.bytes -= pdu.data.len();
        Some(pdu)
    }

    /// ExpStatSN has moved to `expected`: the gap is filled, and the next one, if there is one, has
    /// a time of its own.
    pub(crate) fn moved(&mut self, expected: StatSn, now: Instant) {
        self.shown = self.shown.filter(|shown| shown.is_after(expected));
        let found = self.kept.first().map(|(stat_sn, _)| *stat_sn).or(self.shown);
        self.gap = found.map(|found| Gap { since: now, found });
    }

    /// When what is missing counts as lost.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.gap.map(|gap| gap.since + LONGEST_GAP)
    }

    /// The loss, when its time has come.
    pub(crate) fn loss(&self, expected: StatSn, now: Instant) -> Option<ProtocolError> {
        let gap = self.gap.filter(|gap| gap.since + LONGEST_GAP <= now)?;
        Some(ProtocolError::StatSn { expected, found: gap.found })
    }
}
