//! PERSISTENT RESERVE IN: queries about registrations and reservations (SPC-4 §6.15).

use crate::scsi::{Cdb, operation};

/// Service actions of PERSISTENT RESERVE IN (SPC-4 §6.15).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PersistentReserveIn {
    /// 00h: the keys that are registered; answered by [`RegisteredKeys`](super::RegisteredKeys).
    ReadKeys,
    /// 01h: the reservation, if there is one; answered by [`HeldReservation`](super::HeldReservation).
    ReadReservation,
    /// 02h: the capabilities of the unit; answered by
    /// [`ReservationCapabilities`](super::ReservationCapabilities).
    ReportCapabilities,
    /// 03h: each registration with its nexus; answered by [`FullStatus`](super::FullStatus).
    ReadFullStatus,
}

impl PersistentReserveIn {
    /// An allocation length that holds what most units answer, bytes: more than 100 keys.
    pub const ALLOCATION_LENGTH: u16 = 1024;

    /// The command, with room for `allocation_length` bytes of the answer.
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
