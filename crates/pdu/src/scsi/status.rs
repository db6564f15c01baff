//! Status: how a command ended, in one byte (SAM-5 §5.3).

use std::fmt;

/// The status of a command that has ended (SAM-5 §5.3.1).
///
/// This is a newtype and not an enum, so that a status outside the standard reaches the caller unchanged.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Status(pub u8);

impl Status {
    /// The command succeeded.
    pub const GOOD: Self = Self(0x00);
    /// The sense data report the condition.
    pub const CHECK_CONDITION: Self = Self(0x02);
    /// PRE-FETCH: the blocks fit into the cache.
    pub const CONDITION_MET: Self = Self(0x04);
    /// The logical unit cannot accept the command now; retry later.
    pub const BUSY: Self = Self(0x08);
    /// Another initiator holds a reservation.
    pub const RESERVATION_CONFLICT: Self = Self(0x18);
    /// The task set is full; retry when another command of this initiator has ended.
    pub const TASK_SET_FULL: Self = Self(0x28);
    /// The command is blocked by an auto contingent allegiance.
    pub const ACA_ACTIVE: Self = Self(0x30);
    /// The command was aborted by another initiator.
    pub const TASK_ABORTED: Self = Self(0x40);

    /// Returns the status's name in SAM-5; `None` for a reserved or obsolete code.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::GOOD => "GOOD",
            Self::CHECK_CONDITION => "CHECK CONDITION",
            Self::CONDITION_MET => "CONDITION MET",
            Self::BUSY => "BUSY",
            Self::RESERVATION_CONFLICT => "RESERVATION CONFLICT",
            Self::TASK_SET_FULL => "TASK SET FULL",
            Self::ACA_ACTIVE => "ACA ACTIVE",
            Self::TASK_ABORTED => "TASK ABORTED",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    /// Writes the name in SAM-5, or `status 0x..` for a code without a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "status {:#04x}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}
