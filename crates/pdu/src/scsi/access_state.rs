//! Asymmetric access states: which commands the ports of a group serve for a logical unit (SPC-4 §5.11.2).

use std::fmt;

/// Asymmetric access states of a target port for a logical unit (SPC-4 §5.11.2).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AccessState {
    /// 0h: serves every command, as fast as the device can.
    ActiveOptimized,
    /// 1h: serves every command, more slowly than a port that is active/optimized.
    ActiveNonOptimized,
    /// 2h: serves only commands that manage the unit, and could become active soon.
    Standby,
    /// 3h: serves only commands that manage the unit, and cannot become active soon.
    Unavailable,
    /// 4h: active/optimized for some blocks of the unit, active/non-optimized for others.
    LogicalBlockDependent,
    /// Eh: the port itself does not work; a change of its group's state does not end this.
    Offline,
    /// Fh: changing from one state to another.
    Transitioning,
    /// A reserved code, 5 to 13.
    Reserved(u8),
}

impl AccessState {
    /// Returns the state with a code, of which only the low four bits are used.
    pub const fn from_code(code: u8) -> Self {
        match code & 0x0f {
            0x0 => Self::ActiveOptimized,
            0x1 => Self::ActiveNonOptimized,
            0x2 => Self::Standby,
            0x3 => Self::Unavailable,
            0x4 => Self::LogicalBlockDependent,
            0xe => Self::Offline,
            0xf => Self::Transitioning,
            other => Self::Reserved(other),
        }
    }

    /// Returns the code of the state, 0 to 15.
    pub const fn code(self) -> u8 {
        match self {
            Self::ActiveOptimized => 0x0,
            Self::ActiveNonOptimized => 0x1,
            Self::Standby => 0x2,
            Self::Unavailable => 0x3,
            Self::LogicalBlockDependent => 0x4,
            Self::Offline => 0xe,
            Self::Transitioning => 0xf,
            Self::Reserved(code) => code & 0x0f,
        }
    }

    /// Returns whether a port in this state serves reads and writes (SPC-4 §5.11.2.4 and the two sections
    /// after it).
    pub const fn is_active(self) -> bool {
        matches!(
            self,
            Self::ActiveOptimized | Self::ActiveNonOptimized | Self::LogicalBlockDependent
        )
    }
}

impl fmt::Display for AccessState {
    /// Writes the name in the standard, such as `active/non-optimized`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ActiveOptimized => "active/optimized",
            Self::ActiveNonOptimized => "active/non-optimized",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
            Self::LogicalBlockDependent => "logical block dependent",
            Self::Offline => "offline",
            Self::Transitioning => "transitioning",
            Self::Reserved(code) => return write!(f, "reserved access state {code:#x}"),
        })
    }
}
