//! Persistent reservations: which initiators may use a unit (SPC-4 §5.13, §6.15, §6.16).
//!
//! An initiator registers a key with the unit for each I_T nexus. A nexus is the initiator's name and ISID,
//! and the target port of the session. A registered nexus may reserve the unit, and may remove the
//! registration of another nexus by its key.
//!
//! | File | Noun |
//! |---|---|
//! | `key` | [`ReservationKey`]: the key of a registration |
//! | `reservation_type` | [`ReservationType`]: the access of each nexus while the unit is reserved |
//! | `reserve_in` | [`PersistentReserveIn`]: the queries |
//! | `registered_keys` | [`RegisteredKeys`]: READ KEYS |
//! | `held` | [`HeldReservation`]: READ RESERVATION |
//! | `capabilities` | [`ReservationCapabilities`]: REPORT CAPABILITIES |
//! | `full_status`, `transport_id` | [`FullStatus`], [`TransportId`]: READ FULL STATUS |
//! | `reserve_out` | [`PersistentReserveOut`]: the changes |

mod capabilities;
mod full_status;
mod held;
mod key;
mod registered_keys;
mod reservation_type;
mod reserve_in;
mod reserve_out;
mod transport_id;

pub use capabilities::ReservationCapabilities;
pub use full_status::{FullStatus, Registrant};
pub use held::{HeldReservation, Reservation};
pub use key::{InvalidReservationKey, ReservationKey};
pub use registered_keys::RegisteredKeys;
pub use reservation_type::ReservationType;
pub use reserve_in::PersistentReserveIn;
pub use reserve_out::PersistentReserveOut;
pub use transport_id::TransportId;
