//! READ FULL STATUS parameter data: each registration with its nexus (SPC-4 §6.15.5).

use super::{Reservation, ReservationKey, TransportId};
use crate::scsi::FormatError;
use crate::scsi::fields::{Fields, to_usize};

/// Parameter data of PERSISTENT RESERVE IN with READ FULL STATUS (SPC-4 §6.15.5).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FullStatus {
    /// PRGENERATION, as in [`RegisteredKeys`](super::RegisteredKeys).
    pub generation: u32,
    /// The registrations in the order of the data.
    pub registrants: Vec<Registrant>,
    /// ADDITIONAL LENGTH: bytes of all registrations, also those that did not fit.
    pub additional_length: u32,
    /// Whether registrations are missing that ADDITIONAL LENGTH counts.
    truncated: bool,
}

/// A nexus that has registered a key (SPC-4 §6.15.5, full status descriptor).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Registrant {
    /// The key of the registration.
    pub key: ReservationKey,
    /// The reservation, if this nexus holds it (R_HOLDER).
    pub holds: Option<Reservation>,
    /// ALL_TG_PT: the registration applies to all ports of the target.
    pub all_target_ports: bool,
    /// RELATIVE TARGET PORT IDENTIFIER: the port of the nexus; has no meaning if the registration applies to
    /// all ports.
    pub relative_target_port: u16,
    /// The initiator port of the nexus.
    pub initiator_port: TransportId,
}

impl FullStatus {
    /// Length of the header before the registrations, bytes.
    pub const HEADER_LEN: usize = 8;

    /// Reads the parameter data; a truncated registration, and everything after it, is omitted.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below eight bytes.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "READ FULL STATUS data", Self::HEADER_LEN)?;
        let additional_length = fields.u32(4);
        let length = to_usize(additional_length);
        let mut rest = fields.range(Self::HEADER_LEN, length);
        let mut truncated = rest.len() < length;
        let mut registrants = Vec::new();
        while let Some((registrant, next)) = Registrant::decode(rest) {
            registrants.push(registrant);
            rest = next;
        }
        truncated |= !rest.is_empty();
        Ok(Self { generation: fields.u32(0), registrants, additional_length, truncated })
    }

    /// Returns whether registrations are missing in the data: send the command again with
    /// [`allocation_length`](Self::allocation_length). This may stay true if the device counts wrongly.
    pub const fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the allocation length for the whole data, bytes, limited to the greatest one of the command.
    pub fn allocation_length(&self) -> u16 {
        u16::try_from(self.additional_length.saturating_add(8)).unwrap_or(u16::MAX)
    }
}

/// ALL_TG_PT in byte 12 of a descriptor.
const ALL_TARGET_PORTS: u8 = 0x02;
/// R_HOLDER in byte 12 of a descriptor.
const HOLDER: u8 = 0x01;
/// Length of a descriptor before its TransportID, bytes.
const DESCRIPTOR_LEN: usize = 24;

impl Registrant {
    /// Returns the first registration of a list, and the rest of the list.
    fn decode(list: &[u8]) -> Option<(Self, &[u8])> {
        let fields = Fields::new(list, "full status descriptor", DESCRIPTOR_LEN).ok()?;
        let transport_id_len = to_usize(fields.u32(20));
        let (_, rest) = list.split_at_checked(DESCRIPTOR_LEN)?;
        let (transport_id, rest) = rest.split_at_checked(transport_id_len)?;
        let key = ReservationKey(fields.u64(0));
        let reservation = Reservation::from_code(key, fields.u8(13));
        let registrant = Self {
            key,
            holds: fields.bit(12, HOLDER).then_some(reservation),
            all_target_ports: fields.bit(12, ALL_TARGET_PORTS),
            relative_target_port: fields.u16(18),
            initiator_port: TransportId::decode(transport_id),
        };
        Some((registrant, rest))
    }
}
