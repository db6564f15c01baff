//! The types of persistent reservations (SPC-4 §6.15.3.4).

use std::fmt;

/// Types of a reservation: the access that other nexuses have (SPC-4 §6.15.3.4).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReservationType {
    /// 1h: only the holder may write, all nexuses may read.
    WriteExclusive,
    /// 3h: only the holder may read and write.
    ExclusiveAccess,
    /// 5h: registrants may write, all nexuses may read; one registrant holds the reservation.
    WriteExclusiveRegistrantsOnly,
    /// 6h: registrants may read and write; one registrant holds the reservation.
    ExclusiveAccessRegistrantsOnly,
    /// 7h: registrants may write, all nexuses may read; all registrants hold the reservation.
    WriteExclusiveAllRegistrants,
    /// 8h: registrants may read and write; all registrants hold the reservation.
    ExclusiveAccessAllRegistrants,
    /// An obsolete or reserved code: 0, 2, 4, 9 to 15.
    Reserved(u8),
}

impl ReservationType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// Returns the type with a code, of which only the low four bits are used.
    pub const fn from_code(code: u8) -> Self {
        match code & 0x0f {
            1 => Self::WriteExclusive,
            3 => Self::ExclusiveAccess,
            5 => Self::WriteExclusiveRegistrantsOnly,
            6 => Self::ExclusiveAccessRegistrantsOnly,
            7 => Self::WriteExclusiveAllRegistrants,
            8 => Self::ExclusiveAccessAllRegistrants,
            other => Self::Reserved(other),
        }
    }

    /// Returns the code of the type, 0 to 15.
    pub const fn code(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 3,
            Self::WriteExclusiveRegistrantsOnly => 5,
            Self::ExclusiveAccessRegistrantsOnly => 6,
            Self::WriteExclusiveAllRegistrants => 7,
            Self::ExclusiveAccessAllRegistrants => 8,
            Self::Reserved(code) => code & 0x0f,
        }
    }

    /// Returns whether every registrant has the access of the holder.
    pub const fn admits_registrants(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveRegistrantsOnly
                | Self::ExclusiveAccessRegistrantsOnly
                | Self::WriteExclusiveAllRegistrants
                | Self::ExclusiveAccessAllRegistrants
        )
    }
}

impl fmt::Display for ReservationType {
    /// Writes the name in the standard, such as `write exclusive, registrants only`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::WriteExclusive => "write exclusive",
            Self::ExclusiveAccess => "exclusive access",
            Self::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
            Self::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
            Self::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
            Self::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
            Self::Reserved(code) => return write!(f, "reserved type {code:#x}"),
        })
    }
}
