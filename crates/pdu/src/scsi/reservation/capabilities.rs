//! REPORT CAPABILITIES parameter data: the reservations that a unit supports (SPC-4 §6.15.4).

use super::ReservationType;
use crate::scsi::FormatError;
use crate::scsi::fields::Fields;

/// Parameter data of PERSISTENT RESERVE IN with REPORT CAPABILITIES (SPC-4 §6.15.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReservationCapabilities {
    /// CRH: RESERVE and RELEASE of SPC-2 are compatible with persistent reservations.
    pub compatible_reservation_handling: bool,
    /// SIP_C: a registration can name other nexuses (SPEC_I_PT).
    pub specify_initiator_ports: bool,
    /// ATP_C: a registration can apply to all ports of the target (ALL_TG_PT).
    pub all_target_ports: bool,
    /// PTPL_C: registrations can survive a loss of power (APTPL).
    pub persist_through_power_loss: bool,
    /// PTPL_A: the present registrations survive a loss of power.
    pub persist_through_power_loss_activated: bool,
    /// ALLOW COMMANDS: the commands that the unit accepts despite a reservation, 0 to 7; 0 means not
    /// reported.
    pub allow_commands: u8,
    /// PERSISTENT RESERVATION TYPE MASK, if the unit reports one (TMV).
    type_mask: Option<[u8; 2]>,
}

impl ReservationCapabilities {
    /// The allocation length for all fields of this type, bytes.
    pub const LEN: u16 = 8;

    /// Reads the parameter data; fields that are missing in shorter data count as not reported.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "REPORT CAPABILITIES data", 4)?;
        let fields = fields.cut(usize::from(fields.u16(0)).max(4));
        // An empty mask counts as missing: a unit that supports no type does not have this command.
        let mask = Some(fields.array(4)).filter(|mask| fields.bit(3, 0x80) && *mask != [0; 2]);
        Ok(Self {
            compatible_reservation_handling: fields.bit(2, 0x10),
            specify_initiator_ports: fields.bit(2, 0x08),
            all_target_ports: fields.bit(2, 0x04),
            persist_through_power_loss: fields.bit(2, 0x01),
            persist_through_power_loss_activated: fields.bit(3, 0x01),
            allow_commands: (fields.u8(3) >> 4) & 0x07,
            type_mask: mask,
        })
    }

    /// Returns whether the unit supports a type of reservation; `None` if it does not report that.
    pub fn supports(&self, reservation_type: ReservationType) -> Option<bool> {
        let [first, second] = self.type_mask?;
        Some(match reservation_type {
            ReservationType::WriteExclusive => first & 0x02 != 0,
            ReservationType::ExclusiveAccess => first & 0x08 != 0,
            ReservationType::WriteExclusiveRegistrantsOnly => first & 0x20 != 0,
            ReservationType::ExclusiveAccessRegistrantsOnly => first & 0x40 != 0,
            ReservationType::WriteExclusiveAllRegistrants => first & 0x80 != 0,
            ReservationType::ExclusiveAccessAllRegistrants => second & 0x01 != 0,
            ReservationType::Reserved(_) => false,
        })
    }
}
