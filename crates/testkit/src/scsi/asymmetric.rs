//! Asymmetric access: what a group of target ports serves of the units behind it (SPC-4 §5.11).

use super::{Sense, operation};

/// The state of all ports of a portal group towards its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessState {
    /// Every command is served.
    #[default]
    ActiveOptimized,
    /// The ports serve the unit, though other ports may be faster.
    ActiveNonOptimized,
    /// Only what asks for, or changes, what the unit is: NOT READY, 04h/0Bh.
    Standby,
    /// Hardly anything: NOT READY, 04h/0Ch.
    Unavailable,
    /// Hardly anything, until someone brings the port back: NOT READY, 04h/12h.
    Offline,
    /// Hardly anything, until another state is reached: NOT READY, 04h/0Ah.
    Transitioning,
}

impl AccessState {
    /// Why the ports do not serve a command, if they do not (SPC-4 §5.11.2.4 and those behind it).
    pub(crate) fn check(self, cdb: [u8; 16]) -> Result<(), Sense> {
        let ascq = match self {
            Self::ActiveOptimized | Self::ActiveNonOptimized => return Ok(()),
            Self::Transitioning => 0x0a,
            Self::Standby => 0x0b,
            Self::Unavailable => 0x0c,
            Self::Offline => 0x12,
        };
        let is_served = match cdb[0] {
            operation::INQUIRY | operation::REPORT_LUNS | operation::REQUEST_SENSE => true,
            operation::MAINTENANCE_IN => cdb[1] & 0x1f == REPORT_TARGET_PORT_GROUPS,
            operation::MAINTENANCE_OUT => {
                self != Self::Transitioning && cdb[1] & 0x1f == SET_TARGET_PORT_GROUPS
            }
            operation::MODE_SENSE_6
            | operation::MODE_SENSE_10
            | operation::PERSISTENT_RESERVE_IN
            | operation::PERSISTENT_RESERVE_OUT => self == Self::Standby,
            _ => false,
        };
        if is_served { Ok(()) } else { Err(Sense::new(2, 0x04, ascq)) }
    }

    /// The code of the state (SPC-4 §6.37).
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::ActiveOptimized => 0,
            Self::ActiveNonOptimized => 1,
            Self::Standby => 2,
            Self::Unavailable => 3,
            Self::Offline => 0xe,
            Self::Transitioning => 0xf,
        }
    }

    /// The primary state of a code, which SET TARGET PORT GROUPS can ask for.
    pub(super) const fn primary(code: u8) -> Option<Self> {
        match code & 0x0f {
            0 => Some(Self::ActiveOptimized),
            1 => Some(Self::ActiveNonOptimized),
            2 => Some(Self::Standby),
            3 => Some(Self::Unavailable),
            _ => None,
        }
    }
}

/// Service action of MAINTENANCE IN.
pub(super) const REPORT_TARGET_PORT_GROUPS: u8 = 0x0a;
/// Service action of MAINTENANCE OUT.
pub(super) const SET_TARGET_PORT_GROUPS: u8 = 0x0a;
