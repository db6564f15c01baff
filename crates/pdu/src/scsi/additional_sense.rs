//! Additional sense codes: the exact reason for a condition (SPC-4 §4.5.6, Annex F).

use super::additional_sense_names::{NAMES, PER_COMPONENT};
use std::fmt;

/// The exact reason of a condition: code and qualifier (SPC-4 §4.5.6).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct AdditionalSense {
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
}

impl AdditionalSense {
    /// 00/00: no additional information.
    pub const NONE: Self = Self::new(0x00, 0x00);
    /// 04/01: the unit becomes ready by itself; retry.
    pub const BECOMING_READY: Self = Self::new(0x04, 0x01);
    /// 04/0A: the port is changing its access state; retry.
    pub const ASYMMETRIC_ACCESS_STATE_TRANSITION: Self = Self::new(0x04, 0x0a);
    /// 04/0B: this port does not serve the unit at present; another port of the target does.
    pub const TARGET_PORT_IN_STANDBY_STATE: Self = Self::new(0x04, 0x0b);
    /// 04/0C: this port does not serve the unit, and will not do so soon; another port of the target does.
    pub const TARGET_PORT_IN_UNAVAILABLE_STATE: Self = Self::new(0x04, 0x0c);
    /// 04/12: the unit is offline until an administrator changes that.
    pub const LOGICAL_UNIT_OFFLINE: Self = Self::new(0x04, 0x12);
    /// 08/00: the target cannot reach the device or the storage of the unit.
    pub const LOGICAL_UNIT_COMMUNICATION_FAILURE: Self = Self::new(0x08, 0x00);
    /// 20/00: the device does not know the command.
    pub const INVALID_COMMAND_OPERATION_CODE: Self = Self::new(0x20, 0x00);
    /// 21/00: the blocks are beyond the end of the medium.
    pub const LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE: Self = Self::new(0x21, 0x00);
    /// 24/00: a field of the CDB has a value that the device does not accept.
    pub const INVALID_FIELD_IN_CDB: Self = Self::new(0x24, 0x00);
    /// 25/00: the logical unit does not exist.
    pub const LOGICAL_UNIT_NOT_SUPPORTED: Self = Self::new(0x25, 0x00);
    /// 26/00: a field of the parameter list has a value that the device does not accept.
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self::new(0x26, 0x00);
    /// 27/00: the unit accepts no writes.
    pub const WRITE_PROTECTED: Self = Self::new(0x27, 0x00);
    /// 27/07: a thin unit has no space for the write.
    pub const SPACE_ALLOCATION_FAILED: Self = Self::new(0x27, 0x07);
    /// 28/00: the unit has become ready, and its medium may have changed.
    pub const NOT_READY_TO_READY_CHANGE: Self = Self::new(0x28, 0x00);
    /// 29/00: the unit was reset.
    pub const POWER_ON_OR_RESET: Self = Self::new(0x29, 0x00);
    /// 29/07: the session was lost, but the data of the unit were not.
    pub const IT_NEXUS_LOSS_OCCURRED: Self = Self::new(0x29, 0x07);
    /// 2A/01: mode pages, or the block length, have changed.
    pub const MODE_PARAMETERS_CHANGED: Self = Self::new(0x2a, 0x01);
    /// 2A/03: another initiator has taken over the reservation.
    pub const RESERVATIONS_PREEMPTED: Self = Self::new(0x2a, 0x03);
    /// 2A/04: the holder has released the reservation.
    pub const RESERVATIONS_RELEASED: Self = Self::new(0x2a, 0x04);
    /// 2A/05: another initiator has removed the registration of this initiator.
    pub const REGISTRATIONS_PREEMPTED: Self = Self::new(0x2a, 0x05);
    /// 2A/06: ports of the target have changed their access state for the unit.
    pub const ASYMMETRIC_ACCESS_STATE_CHANGED: Self = Self::new(0x2a, 0x06);
    /// 2A/07: a change of access state that the device began by itself has failed.
    pub const IMPLICIT_TRANSITION_FAILED: Self = Self::new(0x2a, 0x07);
    /// 2A/09: the capacity of the unit has changed.
    pub const CAPACITY_DATA_HAS_CHANGED: Self = Self::new(0x2a, 0x09);
    /// 3F/03: the data of INQUIRY have changed.
    pub const INQUIRY_DATA_HAS_CHANGED: Self = Self::new(0x3f, 0x03);
    /// 3F/05: the name of the unit has changed.
    pub const DEVICE_IDENTIFIER_CHANGED: Self = Self::new(0x3f, 0x05);
    /// 3F/0E: the list of logical units has changed.
    pub const REPORTED_LUNS_DATA_HAS_CHANGED: Self = Self::new(0x3f, 0x0e);

    /// Creates a value from code and qualifier.
    pub const fn new(asc: u8, ascq: u8) -> Self {
        Self { asc, ascq }
    }

    /// Returns whether the unit reports a power-on or reset, so that data of its volatile cache may be lost.
    /// All codes of 29h report that, except the loss of the nexus (SPC-4 Annex F).
    pub const fn is_reset(self) -> bool {
        self.asc == Self::POWER_ON_OR_RESET.asc && self.ascq != Self::IT_NEXUS_LOSS_OCCURRED.ascq
    }

    /// Returns whether a unit attention with this code reports that the unit may have ended commands without
    /// a status: it was reset, or another initiator cleared or preempted the commands (SAM-5 §5.14, if TAS is
    /// zero in the Control mode page).
    pub const fn clears_commands(self) -> bool {
        self.is_reset() || matches!((self.asc, self.ascq), (0x2f, _) | (0x2a, 0x03 | 0x05))
    }

    /// Returns whether a unit that is not ready will become ready by itself and keep its data: it starts, its
    /// port changes its state, or an operation that keeps the data is in progress (SPC-4 Annex F). `false`
    /// while the unit is formatted or sanitized (04/04, 04/1B), because then its data are lost.
    pub const fn is_in_progress(self) -> bool {
        const STARTS: u8 = AdditionalSense::BECOMING_READY.ascq;
        const CHANGES_STATE: u8 = AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION.ascq;
        // The unit is busy with a rebuild, a recalculation, an operation, a long write, a self-test, an
        // allocation of space, a START STOP UNIT or a configuration.
        let keeps_content = matches!(self.ascq, 0x05..=0x09 | 0x14 | 0x1a | 0x1d);
        let passes = matches!(self.ascq, STARTS | CHANGES_STATE) || keeps_content;
        self.asc == Self::BECOMING_READY.asc && passes
    }

    /// Returns the name of code and qualifier in SPC-4; `None` if they are vendor specific, reserved or rare.
    pub fn name(self) -> Option<&'static str> {
        let pair = u16::from_be_bytes([self.asc, self.ascq]);
        let exact = find(NAMES, pair);
        exact.or_else(|| find(PER_COMPONENT, self.asc))
    }

    /// Returns both codes in hexadecimal, as the standard writes them: `11/00`.
    pub(super) fn codes(self) -> String {
        format!("{:02X}/{:02X}", self.asc, self.ascq)
    }
}

/// Returns the name of a code. Invariant: the table is sorted by its codes.
fn find<C: Ord + Copy>(table: &[(C, &'static str)], code: C) -> Option<&'static str> {
    let at = table.binary_search_by_key(&code, |entry| entry.0).ok()?;
    table.get(at).map(|entry| entry.1)
}

impl fmt::Display for AdditionalSense {
    /// Writes the name, if there is one, and both codes: `UNRECOVERED READ ERROR (11/00)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.codes()),
            None => f.write_str(&self.codes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AdditionalSense, NAMES, PER_COMPONENT};

    /// SPC-4 Annex F: 29/00 to 29/06 report a reset, and 29/07 reports the loss of the nexus.
    #[test]
    fn a_lost_nexus_is_no_reset() {
        for ascq in 0..=6 {
            assert!(AdditionalSense::new(0x29, ascq).is_reset(), "29/{ascq:02x}");
        }
        for other in [AdditionalSense::new(0x29, 7), AdditionalSense::new(0x2a, 9)] {
            assert!(!other.is_reset(), "{other}");
        }
    }

    /// SPC-4 Annex F: 2F reports that commands were cleared, and PREEMPT AND ABORT clears commands too.
    #[test]
    fn codes_after_which_commands_may_be_gone() {
        for (asc, ascq) in
            [(0x29, 0), (0x29, 2), (0x2f, 0), (0x2f, 1), (0x2f, 2), (0x2a, 3), (0x2a, 5)]
        {
            assert!(AdditionalSense::new(asc, ascq).clears_commands(), "{asc:02x}/{ascq:02x}");
        }
        for (asc, ascq) in [(0x29, 7), (0x2a, 1), (0x2a, 4), (0x2a, 9), (0x28, 0), (0x3f, 3)] {
            assert!(!AdditionalSense::new(asc, ascq).clears_commands(), "{asc:02x}/{ascq:02x}");
        }
    }

    /// SPC-4 Annex F: some operations end by themselves and keep the data, and others erase the data.
    #[test]
    fn what_is_in_progress_ends_and_keeps_the_content() {
        let passes = |ascq| AdditionalSense::new(0x04, ascq).is_in_progress();
        let passing: Vec<u8> = (0..=u8::MAX).filter(|ascq| passes(*ascq)).collect();
        assert_eq!(passing, [1, 5, 6, 7, 8, 9, 0x0a, 0x14, 0x1a, 0x1d]);
        for ascq in passing {
            let name = AdditionalSense::new(0x04, ascq).name().unwrap();
            let ends = ["IN PROGRESS", "BECOMING READY", "TRANSITION"];
            assert!(ends.iter().any(|end| name.ends_with(end)), "{name}");
        }
        assert!(!AdditionalSense::new(0x05, 0x01).is_in_progress());
    }

    #[test]
    fn tables_are_sorted_without_repetition() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(PER_COMPONENT.is_sorted_by(|a, b| a.0 < b.0));
    }
}
