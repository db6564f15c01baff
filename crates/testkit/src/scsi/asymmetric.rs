//! Asymmetric access: which commands the ports of a target port group serve for their units (SPC-4 §5.11).

use super::{Sense, operation};

/// The access state of the ports of a group for their units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessState {
    /// Every command is served.
    #[default]
    ActiveOptimized,
    /// The ports serve the unit, though other ports may be faster.
    ActiveNonOptimized,
    /// Only commands about the unit itself are served: its identity, mode pages, reservations and port
    /// groups. Other commands end with NOT READY, 04h/0Bh.
    Standby,
    /// Only INQUIRY, REPORT LUNS, REQUEST SENSE and the commands for port groups are served. Other commands
    /// end with NOT READY, 04h/0Ch.
    Unavailable,
    /// The same commands are served as in [`Unavailable`](AccessState::Unavailable), until an administrator
    /// changes the state of the port. Other commands end with NOT READY, 04h/12h.
    Offline,
    /// Until another state is reached, only INQUIRY, REPORT LUNS, REQUEST SENSE and REPORT TARGET PORT GROUPS
    /// are served. Other commands end with NOT READY, 04h/0Ah.
    Transitioning,
}

impl AccessState {
    /// Refuses a command that the ports do not serve in this state (SPC-4 §5.11.2.4 and the sections after it).
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

    /// Returns the code of the state (SPC-4 §6.37).
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

    /// Returns the primary state with this code. SET TARGET PORT GROUPS can request primary states only.
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
