//! PERSISTENT RESERVE IN: queries about registrations and reservations (SPC-4 §6.15).

use crate::scsi::{Cdb, operation};

/// Service actions of PERSISTENT RESERVE IN (SPC-4 §6.15).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PersistentReserveIn {
    /// 00h: queries the registered keys; decode the data with [`RegisteredKeys`](super::RegisteredKeys).
    ReadKeys,
    /// 01h: queries the reservation, if there is one; decode the data with
    /// [`HeldReservation`](super::HeldReservation).
    ReadReservation,
    /// 02h: queries the capabilities of the unit; decode the data with
    /// [`ReservationCapabilities`](super::ReservationCapabilities).
    ReportCapabilities,
    /// 03h: queries each registration with its nexus; decode the data with [`FullStatus`](super::FullStatus).
    ReadFullStatus,
}

impl PersistentReserveIn {
    /// An allocation length that is enough for most units, bytes: more than 100 keys.
    pub const ALLOCATION_LENGTH: u16 = 1024;

    /// Returns the command with this allocation length, in bytes.
    pub fn cdb(self, allocation_length: u16) -> Cdb {
        let action = match self {
            Self::ReadKeys => 0,
            Self::ReadReservation => 1,
            Self::ReportCapabilities => 2,
            Self::ReadFullStatus => 3,
        };
        let [h, l] = allocation_length.to_be_bytes();
        Cdb::short(&[operation::PERSISTENT_RESERVE_IN, action, 0, 0, 0, 0, 0, h, l, 0])
    }
}
