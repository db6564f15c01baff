//! Makes and releases persistent reservations of a disk, by the disk's key (SPC-4 §5.13).

use std::collections::BTreeSet;
use std::time::Duration;

use iscsi_pdu::scsi::SenseKey;
use iscsi_pdu::scsi::reservation::{
    HeldReservation, PersistentReserveOut, RegisteredKeys, Reservation, ReservationKey,
    ReservationType, TransportId,
};
use tokio::time::sleep;

use super::Disk;
use crate::boxed::{BoxFuture, boxed};
use crate::error::{CallerCause, Error, UnitCause};

/// Type of an exclusive reservation. It admits every registered session, since a disk may have several. Every
/// array that supports clusters supports this type.
const EXCLUSIVE: ReservationType = ReservationType::WriteExclusiveRegistrantsOnly;
/// Number and interval of the reads of the registered keys. They are read several times, because another host
/// that also wants the unit may be registered for a moment, until it is refused.
const KEY_READS: u32 = 4;
const KEY_READ_INTERVAL: Duration = Duration::from_secs(1);

/// Treatment of the commands that hosts have in flight when [`Disk::preempt`] fences them off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Preempt {
    /// The unit may still execute these commands (PREEMPT, SPC-4 §5.13.11.2.4).
    KeepCommands,
    /// The unit aborts these commands (PREEMPT AND ABORT, SPC-4 §5.13.11.2.6).
    AbortCommands,
}

impl Disk {
    /// Returns the keys that are registered with the unit.
    ///
    /// # Errors
    /// As [`LogicalUnit::registered_keys`](crate::LogicalUnit::registered_keys).
    pub async fn registered_keys(&self) -> Result<RegisteredKeys, Error> {
        self.unit().registered_keys().await
    }

    /// Returns the reservation of the unit, if there is one.
    ///
    /// # Errors
    /// As [`LogicalUnit::reservation`](crate::LogicalUnit::reservation).
    pub async fn reservation(&self) -> Result<HeldReservation, Error> {
        self.unit().reservation().await
    }

    /// Reserves the unit, by the [key](crate::Options::with_reservation_key) of the disk, which
    /// registers all its sessions. A type that does not admit all registrants admits one session
    /// only, so a disk of several sessions needs a type that does.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the disk has no reservation key; otherwise as
    /// [`LogicalUnit::persistent_reserve_out`](crate::LogicalUnit::persistent_reserve_out).
    pub async fn reserve(&self, reservation_type: ReservationType) -> Result<(), Error> {
        let key = self.reservation_key()?;
        let change = PersistentReserveOut::Reserve { key, reservation_type };
        self.unit().persistent_reserve_out(&change).await
    }

    /// Releases the reservation of this type that a session of the disk holds. Every session sends the release,
    /// because only the holder can release; from the others it changes nothing. Then the reservation is read to
    /// check that it is gone: its holder may be a session that was lost, or that has reconnected through another
    /// port.
    ///
    /// # Errors
    /// [`ReservationConflict`](crate::ErrorKind::ReservationConflict) if the key of the disk still holds the
    /// reservation; otherwise as [`reserve`](Self::reserve).
    pub async fn release(&self, reservation_type: ReservationType) -> Result<(), Error> {
        let key = self.reservation_key()?;
        let change = PersistentReserveOut::Release { key, reservation_type };
        let mut refused = None;
        for (_, path) in self.paths.open() {
            // An error of the session, the connection or the port is ignored: the read below shows whether the
            // reservation is gone.
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
        // A reservation that all registrants hold has no key, so it counts as held by this disk.
        let is_by = |held: Reservation| held.key == key || held.key.is_none();
        if held.is_some_and(|held| held.reservation_type == reservation_type && is_by(held)) {
            return Err(UnitCause::StillReserved { key }.into());
        }
        Ok(())
    }

    /// Fences other hosts off: ends all registrations by the key `victim`, and takes over the reservation, with
    /// this type, if one of them holds it. `preempt` decides what happens to their commands in flight.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve); RESERVATION CONFLICT also if no initiator is registered by
    /// that key.
    #[doc(alias("fence", "fencing"))]
    pub async fn preempt(
        &self,
        victim: ReservationKey,
        reservation_type: ReservationType,
        preempt: Preempt,
    ) -> Result<(), Error> {
        let key = self.reservation_key()?;
        let change = match preempt {
            Preempt::KeepCommands => {
                PersistentReserveOut::Preempt { key, victim, reservation_type }
            }
            Preempt::AbortCommands => {
                PersistentReserveOut::PreemptAndAbort { key, victim, reservation_type }
            }
        };
        self.unit().persistent_reserve_out(&change).await
    }

    /// Reserves the unit for this disk alone, by its [key](crate::Options::with_reservation_key), with
    /// the type "write exclusive, registrants only".
    ///
    /// This method succeeds only if no other key is registered, so that no other host can write. A host that
    /// registers later can write, and a host that preempts the key takes over the unit:
    /// reservations bind only hosts that use them. The reservation ends with the disk.
    ///
    /// A process that is killed leaves its registrations and its reservation at the unit.
    /// `is_left_behind` decides for each such key: if it returns `true`, the registrations are
    /// removed, and the commands of their sessions are aborted (PREEMPT AND ABORT, SPC-4
    /// §5.13.11.2.6). `is_left_behind` is not called for the key of this disk, so each process needs a
    /// key that no other process uses.
    ///
    /// # Errors
    /// [`ReservationConflict`](crate::ErrorKind::ReservationConflict) if another key holds the unit, or stays
    /// registered for three seconds; otherwise as [`reserve`](Self::reserve). The unit is not reserved then.
    #[doc(alias("exclusive", "lock"))]
    pub async fn reserve_exclusively(
        &self,
        is_left_behind: impl Fn(ReservationKey) -> bool + Send + Sync,
    ) -> Result<(), Error> {
        self.take_unit(&is_left_behind).await
    }

    fn take_unit<'a>(
        &'a self,
        is_left_behind: &'a (dyn Fn(ReservationKey) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<(), Error>> {
        boxed(async move {
            let key = self.reservation_key()?;
            let mut is_reserved = false;
            let mut reads = 0;
            loop {
                let keys = self.registered_keys().await?.keys;
                let others: BTreeSet<_> = keys.into_iter().filter(|other| *other != key).collect();
                let (left_behind, others): (Vec<_>, Vec<_>) =
                    others.into_iter().partition(|other| is_left_behind(*other));
                for victim in left_behind {
                    self.fence_off(victim).await?;
                }
                let in_the_way = match others.first() {
                    Some(other) => Some(*other),
                    None if is_reserved => return Ok(()),
                    None => match self.reserve(EXCLUSIVE).await {
                        Ok(()) => None,
                        Err(error) if error.is_reservation_conflict() => {
                            self.other_holder().await?
                        }
                        Err(error) => return Err(error),
                    },
                };
                let Some(other) = in_the_way else {
                    // Another host may have registered just before, so the keys are read once more.
                    is_reserved = true;
                    continue;
                };
                reads += 1;
                if reads == KEY_READS {
                    if is_reserved {
                        self.release(EXCLUSIVE).await?;
                    }
                    return Err(UnitCause::RegisteredByAnother { key: other }.into());
                }
                sleep(KEY_READ_INTERVAL).await;
            }
        })
    }

    /// Removes the registrations by this key, and takes the reservation over if the key holds it.
    async fn fence_off(&self, victim: ReservationKey) -> Result<(), Error> {
        let fenced = match self.preempt(victim, EXCLUSIVE, Preempt::AbortCommands).await {
            Err(error) if is_illegal(&error) => {
                self.preempt(victim, EXCLUSIVE, Preempt::KeepCommands).await
            }
            result => result,
        };
        match fenced {
            // Either the key is gone, or it holds the reservation and the target is LIO. LIO ignores the
            // registration of this session if the holder has the same initiator name and another ISID. Sessions
            // with the ISIDs of that key can still unregister.
            Err(error) if error.is_reservation_conflict() => self.unregister_own(victim).await,
            result => result,
        }
    }

    /// Ends the registrations by this key that belong to this initiator's name, over a session with the ISID of
    /// each.
    async fn unregister_own(&self, victim: ReservationKey) -> Result<(), Error> {
        let Some(opener) = &self.opener else { return Ok(()) };
        let status = match self.unit().reservation_full_status().await {
            // READ FULL STATUS is optional; without it nothing can be unregistered.
            Err(error) if error.sense().is_some() => return Ok(()),
            status => status?,
        };
        let own = opener.initiator_name();
        let is_own = |port: &TransportId| matches!(port, TransportId::Iscsi { name, .. } if name.eq_ignore_ascii_case(own));
        let left = status.registrants.iter().filter(|it| it.key == victim);
        let left = left.map(|it| &it.initiator_port).filter(|port| is_own(port));
        let isids: Vec<_> = left.filter_map(TransportId::isid).collect();
        opener.unregister_left(victim, &isids).await;
        Ok(())
    }

    /// Returns the key that holds the unit; `None` if it is this disk's. The key is
    /// [`NONE`](ReservationKey::NONE) if all registrants hold the unit, or if the reservation is gone.
    async fn other_holder(&self) -> Result<Option<ReservationKey>, Error> {
        let own = self.reservation_key()?;
        let held = self.reservation().await?.reservation;
        let is_own = held.is_some_and(|it| it.key == own && it.reservation_type == EXCLUSIVE);
        Ok((!is_own).then(|| held.map_or(ReservationKey::NONE, |held| held.key)))
    }

    fn reservation_key(&self) -> Result<ReservationKey, Error> {
        let membership = &self.unit.state().membership;
        membership.verdict()?;
        let fencing = membership.fencing().ok_or(CallerCause::NoReservationKey)?;
        Ok(fencing.key())
    }
}

/// Returns whether the unit refuses the command in this form.
fn is_illegal(error: &Error) -> bool {
    error.sense().is_some_and(|sense| sense.key == SenseKey::IllegalRequest)
}
