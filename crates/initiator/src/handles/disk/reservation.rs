//! Persistent reservations of a disk, by its own key (SPC-4 §5.13).

use iscsi_pdu::scsi::reservation::{
    HeldReservation, PersistentReserveOut, RegisteredKeys, Reservation, ReservationKey,
    ReservationType,
};

use super::Disk;
use crate::error::Error;
use crate::unit::logical_unit::LogicalUnit;

impl Disk {
    /// The keys that are registered with the unit.
    ///
    /// # Errors
    /// As [`LogicalUnit::registered_keys`].
    pub async fn registered_keys(&self) -> Result<RegisteredKeys, Error> {
        self.any_unit().registered_keys().await
    }

    /// The reservation of the unit, if there is one.
    ///
    /// # Errors
    /// As [`LogicalUnit::reservation`].
    pub async fn reservation(&self) -> Result<HeldReservation, Error> {
        self.any_unit().reservation().await
    }

    /// Reserves the unit, by the [key](crate::Options::reservation_key) of the disk. All its sessions are
    /// registered by that; a type that does not admit all who are registered admits one session alone, so a disk
    /// of several wants one that does.
    ///
    /// # Errors
    /// [`Error::NoReservationKey`]; otherwise as [`LogicalUnit::persistent_reserve_out`].
    pub async fn reserve(&self, reservation_type: ReservationType) -> Result<(), Error> {
        let key = self.reservation_key()?;
        let change = PersistentReserveOut::Reserve { key, reservation_type };
        self.any_unit().persistent_reserve_out(&change).await
    }

    /// Gives up the reservation of this type that a session of the disk holds. Each of them is asked to, for
    /// one alone can, and those that do not hold it change nothing. Then the unit is asked whether it is gone: what
    /// reserved the unit may be a session that is lost, or has come back through another port.
    ///
    /// # Errors
    /// [`Error::StillReserved`] if the key of the disk holds the unit all the same; otherwise as
    /// [`reserve`](Self::reserve).
    pub async fn release(&self, reservation_type: ReservationType) -> Result<(), Error> {
        let key = self.reservation_key()?;
        let change = PersistentReserveOut::Release { key, reservation_type };
        let mut refused = None;
        for (_, path) in self.paths.open() {
            if let Err(error) = path.unit.persistent_reserve_out(&change).await
                && !error.is_of_way()
            {
                refused.get_or_insert(error);
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        let held = self.reservation().await?.reservation;
        // Where all registrants hold it, it has no key.
        let is_by = |held: Reservation| held.key == key || held.key.is_none();
        if held.is_some_and(|held| held.reservation_type == reservation_type && is_by(held)) {
            return Err(Error::StillReserved { key });
        }
        Ok(())
    }

    /// Fences others off: ends all registrations by the key `victim`, and takes the reservation over, with this
    /// type, if one of them holds it. With `abort`, what they have under way ends as well.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve); RESERVATION CONFLICT also if nobody is registered by that key.
    pub async fn preempt(
        &self,
        victim: ReservationKey,
        reservation_type: ReservationType,
        abort: bool,
    ) -> Result<(), Error> {
        let key = self.reservation_key()?;
        let change = if abort {
            PersistentReserveOut::PreemptAndAbort { key, victim, reservation_type }
        } else {
            PersistentReserveOut::Preempt { key, victim, reservation_type }
        };
        self.any_unit().persistent_reserve_out(&change).await
    }

    fn reservation_key(&self) -> Result<ReservationKey, Error> {
        let membership = &self.unit.state().membership;
        membership.verdict()?;
        let registration = membership.registration().ok_or(Error::NoReservationKey)?;
        Ok(registration.key())
    }

    /// The unit through a session that requests go to now, if there is one.
    fn any_unit(&self) -> LogicalUnit {
        let used = self.paths.in_use().into_iter().next();
        used.map_or_else(|| self.unit.clone(), |(_, path)| path.unit.clone())
    }
}
