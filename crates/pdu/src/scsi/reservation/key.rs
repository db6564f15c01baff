//! Reservation keys: the keys under which nexuses are registered (SPC-4 §5.13.1).

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The key of a registration: eight bytes that have no meaning for the unit (SPC-4 §5.13.1).
///
/// Several nexuses may share one key: for example all nexuses of a host that is to be fenced as a whole. Zero
/// is not a key: it means "not registered".
///
/// ```
/// use iscsi_pdu::scsi::reservation::ReservationKey;
///
/// let key: ReservationKey = "0x1a2b".parse()?;
/// assert_eq!(key, ReservationKey(0x1a2b));
/// assert_eq!(key.to_string(), "0x0000000000001a2b");
/// # Ok::<(), iscsi_pdu::scsi::reservation::InvalidReservationKey>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReservationKey(pub u64);

/// The error for a text that is not a reservation key.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is no reservation key: give 1 to 16 hexadecimal digits behind 0x, such as 0x1a2b")]
pub struct InvalidReservationKey(String);

impl ReservationKey {
    /// No key: the nexus is not registered, or should not be.
    pub const NONE: Self = Self(0);

    /// Returns whether the value is zero, which is not a key.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ReservationKey {
    /// Writes all sixteen digits after `0x`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl FromStr for ReservationKey {
    type Err = InvalidReservationKey;

    /// Reads 1 to 16 hexadecimal digits after `0x`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        digits
            .filter(|digits| digits.len() <= 16 && digits.bytes().all(|it| it.is_ascii_hexdigit()))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Self)
            .ok_or_else(|| InvalidReservationKey(text.to_owned()))
    }
}
