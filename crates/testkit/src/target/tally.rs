//! Counts of PDUs and bytes on a connection, which trigger faults.

use std::collections::BTreeMap;

use crate::opcode::Opcode;

/// Counts of PDUs and bytes in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pdus: u32,
    by_opcode: BTreeMap<u8, u32>,
    pub(crate) bytes: u64,
}

/// Counts in both directions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) sent: Tally,
    pub(crate) received: Tally,
}

impl Tally {
    /// Counts one PDU.
    pub(crate) fn count(&mut self, code: u8) {
        self.pdus += 1;
        *self.by_opcode.entry(code & 0x3f).or_default() += 1;
    }

    /// Returns the number of PDUs of this kind.
    pub(crate) fn of(&self, kind: Opcode) -> u32 {
        self.by_opcode.get(&(kind as u8)).copied().unwrap_or(0)
    }

    /// Returns whether the last counted PDU, whose opcode byte is `code`, is number `number` of this kind, from 0. Without a kind,
    /// all PDUs count.
    pub(crate) fn is_at(&self, code: u8, kind: Option<Opcode>, number: u32) -> bool {
        let count = match kind {
            None => self.pdus,
            Some(kind) if kind as u8 == code & 0x3f => self.of(kind),
            Some(_) => return false,
        };
        count.checked_sub(1) == Some(number)
    }
}
