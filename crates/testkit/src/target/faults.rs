//! Applies faults when they are due.

use std::ops::Range;
use std::time::Duration;

use super::node::Target;
use super::send;
use super::tally::Tally;
use super::task::Outcome;
use crate::conn_id::ConnId;
use crate::fault::{Blocks, Effect, Fault, Trigger};
use crate::pdu::Pdu;
use crate::scsi::{self, Sense};

/// The PDUs that a fault counts: those of its connection if it names one, otherwise those of all connections.
struct Scope<'a> {
    sent: &'a Tally,
    received: &'a Tally,
}

/// Effects of faults on one command, by the blocks that it reaches.
#[derive(Debug, Default)]
pub(super) struct CommandFaults {
    /// The outcome with which the command ends instead of being executed.
    pub(super) failure: Option<Outcome>,
    /// Delay of the command's read data and status.
    pub(super) delay: Duration,
    /// Delay of the command's execution.
    pub(super) late: Duration,
    /// Whether the cached data of the command's blocks are lost.
    loses_cached: bool,
    /// The block whose first byte is wrong.
    pub(super) inverted: Option<u64>,
    /// Whether the command's connection breaks.
    pub(super) breaks: bool,
}

impl CommandFaults {
    /// Adds an effect at a block, and returns whether it ends the command.
    fn add(&mut self, effect: &Effect, block: u64) -> bool {
        match effect {
            Effect::Sense(sense) | Effect::LoseCached(sense) => {
                self.loses_cached |= matches!(effect, Effect::LoseCached(_));
                // A deferred error concerns another command, and names no block of this one.
                let own = (!sense.is_deferred).then_some(block);
                let information = sense.information.or(own);
                self.failure = Some(Outcome::check(Sense { information, ..*sense }));
            }
            Effect::Status(status) => self.failure = Some(Outcome::status(*status)),
            Effect::Close => self.breaks = true,
            Effect::Delay(delay) => self.delay += *delay,
            Effect::ExecuteLate(late) => self.late += *late,
            Effect::InvertByte => self.inverted = Some(block),
            Effect::Swallow
            | Effect::Duplicate
            | Effect::CorruptHeaderDigest
            | Effect::CorruptDataDigest
            | Effect::Before(_)
            | Effect::SetByte { .. }
            | Effect::SetWord { .. }
            | Effect::AddWord { .. }
            | Effect::SetData(_)
            | Effect::Behind(_)
            | Effect::SkipStatSn(_) => {}
        }
        self.failure.is_some() || self.breaks
    }
}

/// Returns the first block of a range that a fault covers.
fn first_of(blocks: Blocks, range: &Range<u64>) -> Option<u64> {
    let first = range.start.max(blocks.first);
    (first < range.end && first <= blocks.last).then_some(first)
}

impl Target {
    /// Counts a PDU of the initiator, and applies the faults that are due. Returns `None` if a fault loses
    /// the PDU.
    pub(super) fn receiving_faults(&mut self, id: ConnId, mut pdu: Pdu) -> Option<Pdu> {
        let code = pdu.header[0];
        self.connections[id.0].tallies.received.count(code);
        self.record.tallies.received.count(code);
        let faults = self.take_faults(id, |trigger, scope| {
            matches!(trigger, Trigger::Receiving(kind, number)
                if scope.received.is_at(code, kind, number))
        });
        for fault in faults {
            if matches!(fault.effect, Effect::Close) {
                self.close(id);
            }
            if matches!(fault.effect, Effect::Close | Effect::Swallow) {
                return None;
            }
            send::edit(&mut pdu, &fault.effect);
        }
        Some(pdu)
    }

    /// Counts a PDU of the target, and returns the faults that are due.
    pub(super) fn sending_faults(&mut self, id: ConnId, pdu: &Pdu) -> Vec<Fault> {
        let code = pdu.header[0];
        self.connections[id.0].tallies.sent.count(code);
        self.record.tallies.sent.count(code);
        self.take_faults(id, |trigger, scope| {
            matches!(trigger, Trigger::Sending(kind, number)
                if scope.sent.is_at(code, kind, number))
        })
    }

    /// Closes a connection on which more bytes have arrived than a fault allows. `partial` is the number of bytes
    /// of an incomplete PDU.
    pub(super) fn cut_after_received(&mut self, id: ConnId, partial: usize) {
        let Some(connection) = self.connections.get(id.0) else { return };
        let bytes = connection.tallies.received.bytes + partial as u64;
        let due = self.take_faults(
            id,
            |trigger, _| matches!(trigger, Trigger::ReceivedBytes(limit) if bytes > limit),
        );
        if !due.is_empty() {
            self.close(id);
        }
    }

    /// Returns how many of the sent bytes exceed the limit of a fault; `None` if no fault applies.
    pub(super) fn excess_sent(&mut self, id: ConnId) -> Option<u64> {
        let sent = self.connections[id.0].tallies.sent.bytes;
        let due = self.take_faults(
            id,
            |trigger, _| matches!(trigger, Trigger::SentBytes(limit) if sent >= limit),
        );
        let Trigger::SentBytes(limit) = due.first()?.trigger else { return None };
        Some(sent - limit)
    }

    /// Applies the faults of the blocks that a command reaches, in the order of the configuration, up to the
    /// first one that ends the command.
    pub(super) fn command_faults(
        &mut self,
        id: ConnId,
        lun: u64,
        cdb: [u8; 16],
        parameters: &[u8],
    ) -> CommandFaults {
        let mut met = CommandFaults::default();
        if self.config.faults.is_empty() {
            return met;
        }
        let number = self.config.lun_form.decode(lun);
        let unit = number.and_then(|number| self.config.units.get(&number));
        let reached = unit.and_then(|unit| scsi::accessed(unit, cdb, parameters));
        let Some((access, ranges)) = reached else { return met };
        let meets = |fault: &Fault| match fault.trigger {
            Trigger::Command(blocks)
                if fault.connection.is_none_or(|number| number == id.0)
                    && blocks.unit.is_none_or(|unit| Some(unit) == number)
                    && blocks.access.is_none_or(|kind| kind == access)
                    && (access.writes() || !matches!(fault.effect, Effect::ExecuteLate(_))) =>
            {
                ranges.iter().find_map(|range| first_of(blocks, range))
            }
            Trigger::Command(_)
            | Trigger::Sending(..)
            | Trigger::Receiving(..)
            | Trigger::SentBytes(_)
            | Trigger::ReceivedBytes(_) => None,
        };
        for fault in &mut self.config.faults {
            let Some(block) = meets(fault).filter(|_| fault.times != Some(0)) else { continue };
            fault.times = fault.times.map(|times| times - 1);
            if met.add(&fault.effect, block) {
                break;
            }
        }
        if met.loses_cached
            && let Some(unit) = unit
        {
            for range in ranges {
                unit.disk.lose_cached(range);
            }
        }
        let is_spent =
            |fault: &Fault| matches!(fault.trigger, Trigger::Command(_)) && fault.times == Some(0);
        self.config.faults.retain(|fault| !is_spent(fault));
        met
    }

    /// Removes the faults that are due from the configuration, and returns them.
    fn take_faults(&mut self, id: ConnId, due: impl Fn(Trigger, &Scope<'_>) -> bool) -> Vec<Fault> {
        if self.config.faults.is_empty() {
            return Vec::new();
        }
        let connection = &self.connections[id.0];
        let own = Scope { sent: &connection.tallies.sent, received: &connection.tallies.received };
        let all =
            Scope { sent: &self.record.tallies.sent, received: &self.record.tallies.received };
        let is_due = |fault: &mut Fault| match fault.connection {
            None => due(fault.trigger, &all),
            Some(number) => number == id.0 && due(fault.trigger, &own),
        };
        self.config.faults.extract_if(.., is_due).collect()
    }
}
