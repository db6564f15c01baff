//! READ RESERVATION parameter data: the reservation of a unit (SPC-4 §6.15.3).

use super::{ReservationKey, ReservationType};
use crate::scsi::FormatError;
use crate::scsi::fields::Fields;

/// Parameter data of PERSISTENT RESERVE IN with READ RESERVATION (SPC-4 §6.15.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct HeldReservation {
    /// PRGENERATION, as in [`RegisteredKeys`](super::RegisteredKeys).
    pub generation: u32,
    /// The reservation; `None` if the unit is not reserved.
    pub reservation: Option<Reservation>,
}

/// A persistent reservation of a unit (SPC-4 §5.13.9).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Reservation {
    /// The key of the holder; [`ReservationKey::NONE`] if all registrants hold the reservation.
    pub key: ReservationKey,
    /// The type of the reservation: the access that it permits.
    pub reservation_type: ReservationType,
    /// SCOPE: 0, the whole unit; other codes are obsolete.
    pub scope: u8,
}

impl HeldReservation {
    /// The allocation length for all fields of this type, bytes.
    pub const LEN: u16 = 24;

    /// Reads the parameter data.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below eight bytes, or below 24 if there is a reservation, because a part of
    /// it cannot be used. [`FormatError::Field`] for a length that is neither zero nor the length of a
    /// reservation.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        const FORMAT: &str = "READ RESERVATION data";
        let fields = Fields::new(data, FORMAT, 8)?;
        let reservation = match fields.u32(4) {
            0 => None,
            length @ 1..16 => {
                let (field, value) = ("ADDITIONAL LENGTH", length.into());
                return Err(FormatError::Field { format: FORMAT, field, value });
            }
            16.. => {
                let fields = Fields::new(data, FORMAT, usize::from(Self::LEN))?;
                Some(Reservation::from_code(ReservationKey(fields.u64(8)), fields.u8(21)))
            }
        };
        Ok(Self { generation: fields.u32(0), reservation })
    }
}

impl Reservation {
    /// Creates a reservation from a key and the byte with SCOPE and TYPE.
    pub(super) const fn from_code(key: ReservationKey, code: u8) -> Self {
        Self { key, reservation_type: ReservationType::from_code(code), scope: code >> 4 }
    }
}
