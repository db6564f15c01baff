//! PERSISTENT RESERVE OUT: changes of registrations and reservations (SPC-4 §6.16).

use super::{ReservationKey, ReservationType};
use crate::scsi::{Cdb, operation};
use bytes::{BufMut, Bytes, BytesMut};

/// Service actions of PERSISTENT RESERVE OUT (SPC-4 §6.16).
///
/// Each acts for the nexus over which it is sent. Registrations of other nexuses (SPEC_I_PT), and moving a
/// reservation to another nexus, are not supported.
///
/// ```
/// use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};
///
/// let register = PersistentReserveOut::Register {
///     key: ReservationKey::NONE,
///     new_key: ReservationKey(0x1a2b),
///     persist_through_power_loss: false,
///     all_target_ports: false,
/// };
/// assert_eq!(register.cdb().as_bytes(), [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0]);
/// assert_eq!(register.encode().len(), 24);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PersistentReserveOut {
    /// 00h: registers the nexus, changes its key, or ends its registration.
    Register {
        /// The present key of the nexus; [`ReservationKey::NONE`] if it is not registered. With a wrong key the
        /// command ends with RESERVATION CONFLICT.
        key: ReservationKey,
        /// The new key of the nexus; [`ReservationKey::NONE`] ends the registration.
        new_key: ReservationKey,
        /// APTPL: the registrations survive a loss of power.
        persist_through_power_loss: bool,
        /// ALL_TG_PT: the registration applies to all ports of the target.
        all_target_ports: bool,
    },
    /// 06h: registers the nexus, changes its key, or ends its registration, whatever its present key is.
    RegisterAndIgnoreExistingKey {
        /// The new key of the nexus; [`ReservationKey::NONE`] ends the registration.
        new_key: ReservationKey,
        /// APTPL: the registrations survive a loss of power.
        persist_through_power_loss: bool,
        /// ALL_TG_PT: the registration applies to all ports of the target.
        all_target_ports: bool,
    },
    /// 01h: reserves the unit.
    Reserve {
        /// The key of the nexus.
        key: ReservationKey,
        /// The type of the new reservation.
        reservation_type: ReservationType,
    },
    /// 02h: releases the reservation that the nexus holds.
    Release {
        /// The key of the nexus.
        key: ReservationKey,
        /// The type of the present reservation.
        reservation_type: ReservationType,
    },
    /// 03h: ends the reservation and all registrations.
    Clear {
        /// The key of the nexus.
        key: ReservationKey,
    },
    /// 04h: ends the registrations with another key, and takes over the reservation if one of them holds it.
    Preempt {
        /// The key of the nexus.
        key: ReservationKey,
        /// The key of the registrations to remove. If all registrants hold the reservation,
        /// [`ReservationKey::NONE`] removes all other registrations.
        victim: ReservationKey,
        /// The type of the new reservation, if the reservation is taken over.
        reservation_type: ReservationType,
    },
    /// 05h: does what [`Preempt`](Self::Preempt) does, and ends the commands of the nexuses whose registrations
    /// it removes.
    PreemptAndAbort {
        /// The key of this nexus, as in [`Preempt`](Self::Preempt).
        key: ReservationKey,
        /// The key to remove, as in [`Preempt`](Self::Preempt).
        victim: ReservationKey,
        /// The type of the reservation, as in [`Preempt`](Self::Preempt).
        reservation_type: ReservationType,
    },
}

/// ALL_TG_PT in byte 20 of the parameter list.
const ALL_TARGET_PORTS: u8 = 0x04;
/// APTPL in byte 20 of the parameter list.
const PERSIST_THROUGH_POWER_LOSS: u8 = 0x01;

impl PersistentReserveOut {
    /// The length of the parameter list, bytes, for all supported service actions.
    pub const PARAMETER_LIST_LENGTH: u32 = 24;

    /// Returns the command. Its parameter list is [`encode`](Self::encode).
    pub fn cdb(&self) -> Cdb {
        let (action, reservation_type) = match *self {
            Self::Register { .. } => (0, None),
            Self::Reserve { reservation_type, .. } => (1, Some(reservation_type)),
            Self::Release { reservation_type, .. } => (2, Some(reservation_type)),
            Self::Clear { .. } => (3, None),
            Self::Preempt { reservation_type, .. } => (4, Some(reservation_type)),
            Self::PreemptAndAbort { reservation_type, .. } => (5, Some(reservation_type)),
            Self::RegisterAndIgnoreExistingKey { .. } => (6, None),
        };
        // The scope in the high bits is 0, the logical unit.
        let kind = reservation_type.map_or(0, ReservationType::code);
        let [a, b, c, d] = Self::PARAMETER_LIST_LENGTH.to_be_bytes();
        Cdb::short(&[operation::PERSISTENT_RESERVE_OUT, action, kind, 0, 0, a, b, c, d, 0])
    }

    /// Returns the parameter list as it is sent (SPC-4 §6.16.3).
    pub fn encode(&self) -> Bytes {
        let none = ReservationKey::NONE;
        let (key, action_key, flags) = match *self {
            Self::Register { key, new_key, persist_through_power_loss, all_target_ports } => {
                (key, new_key, flags(persist_through_power_loss, all_target_ports))
            }
            Self::RegisterAndIgnoreExistingKey {
                new_key,
                persist_through_power_loss,
                all_target_ports,
            } => (none, new_key, flags(persist_through_power_loss, all_target_ports)),
            Self::Reserve { key, .. } | Self::Release { key, .. } | Self::Clear { key } => {
                (key, none, 0)
            }
            Self::Preempt { key, victim, .. } | Self::PreemptAndAbort { key, victim, .. } => {
                (key, victim, 0)
            }
        };
        let mut list = BytesMut::new();
        list.put_u64(key.0);
        list.put_u64(action_key.0);
        list.put_u32(0);
        list.put_u8(flags);
        list.put_bytes(0, 3);
        list.freeze()
    }
}

/// Returns byte 20 of the parameter list.
fn flags(persist_through_power_loss: bool, all_target_ports: bool) -> u8 {
    let persist = if persist_through_power_loss { PERSIST_THROUGH_POWER_LOSS } else { 0 };
    let all = if all_target_ports { ALL_TARGET_PORTS } else { 0 };
    persist | all
}
