//! The registration of a disk's sessions by its reservation key, and what becomes of it (SPC-4 §5.13).
//!
//! | a session | is registered by | and proves by it |
//! |---|---|---|
//! | the first one | REGISTER AND IGNORE EXISTING KEY | nothing: who opens the disk wants it so |
//! | one that was lost, through the same port | REGISTER, with the key that its nexus has | that nobody has ended it; where that is refused, as any other one |
//! | any other one | REGISTER AND IGNORE EXISTING KEY between two looks at the keys | that nobody has changed anything in between |
//!
//! Registrations outlast sessions (SPC-4 §5.13.1), so a session that is back is still registered, or another has
//! ended that. A further nexus is registered only while the key is, and counts only if the unit has counted
//! no other change (PRGENERATION) since the look before: else somebody may have fenced the disk off meanwhile.

use std::sync::Arc;
use std::time::Duration;

use iscsi_pdu::scsi::SenseKey;
use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};
use iscsi_session::TaskError;
use tokio::time::timeout;

use crate::boxed::{BoxFuture, boxed};
use crate::error::Error;
use crate::state::budget::Budget;
use crate::state::registration::{Nexus, Registration};
use crate::unit::execute::is_refused;
use crate::unit::logical_unit::LogicalUnit;

/// What the commands for it may have under way: requests that wait for them may hold all that there is.
const COMMANDS: usize = 2;
const COMMAND_BYTES: usize = 1 << 20;
/// How often a further nexus is registered anew because others change registrations at the same time.
const MAX_TRIES: u32 = 8;
/// How long the end of a registration is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a unit without the commands lacks.
const LACK: &str =
    "persistent reservations, which a disk with a reservation key needs; open it without one";

impl LogicalUnit {
    /// Registers the first session of a disk by its key, if it has one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the unit has no persistent reservations; [`Error::Preempted`] if the session was
    /// registered before, and another has ended that; or as [`execute`](Self::execute).
    pub(crate) fn register(&self) -> BoxFuture<'_, Result<(), Error>> {
        boxed(async move {
            let Some(key) = self.session().policy().reservation_key else { return Ok(()) };
            let membership = &self.state().membership;
            let registration = membership.registration_by(key);
            let _turn = registration.turn().await;
            registration.verdict()?;
            if membership.is_registered() {
                return Ok(());
            }
            let nexus = self.nexus();
            registration.begin(nexus);
            match self.begin_registration(registration).await {
                Err(error) if is_refused(&error) => {
                    registration.answered(nexus, false);
                    Err(Error::Unsupported(LACK))
                }
                Err(error) => Err(error),
                Ok(()) => {
                    registration.answered(nexus, true);
                    membership.set_registered(true);
                    Ok(())
                }
            }
        })
    }

    /// Registers a further session of a disk, or one that is back, if the disk has a key and is still
    /// registered by it.
    ///
    /// # Errors
    /// [`Error::Preempted`] if another has ended its registration, for good; otherwise as
    /// [`register`](Self::register).
    pub(crate) async fn join_registration(&self) -> Result<(), Error> {
        let membership = &self.state().membership;
        let Some(registration) = membership.registration() else { return Ok(()) };
        let _turn = registration.turn().await;
        registration.verdict()?;
        let nexus = self.nexus();
        if registration.knows(nexus) {
            // What the nexus is told from here on is told of its registration.
            membership.set_registered(true);
            match self.change_registration(&registration.proof()).await {
                Err(error) if error.is_reservation_conflict() => membership.set_registered(false),
                Err(error) => return Err(error),
                Ok(()) => return registration.verdict(),
            }
            // Another has ended it, and then the key is gone; or the target takes each session for a nexus of its own.
            registration.forget(nexus);
            registration.verdict()?;
        }
        self.register_further(registration, nexus).await?;
        membership.set_registered(true);
        registration.verdict()
    }

    /// The error of a command that has met a reservation: of another host, or because this one was fenced off.
    pub(super) async fn explain_conflict(&self, error: Error) -> Error {
        let membership = &self.state().membership;
        let registration = membership.registration().filter(|_| membership.is_registered());
        let Some(registration) = registration.filter(|_| error.is_reservation_conflict()) else {
            return error;
        };
        // Another unit behind the number knows no key of the disk, and that means nothing.
        if let Err(error) = Box::pin(self.recognized()).await {
            return error;
        }
        let _turn = registration.turn().await;
        let proved = match registration.verdict() {
            Ok(()) => self.prove(registration).await,
            verdict => verdict,
        };
        match proved {
            Err(reason @ Error::Preempted { .. }) => reason,
            Err(reason) if reason.is_of_session() => reason,
            Err(_) | Ok(()) => error,
        }
    }

    /// Whether the unit may know the nexus of the session by the key of the disk.
    pub(crate) fn is_registered(&self) -> bool {
        let registration = self.state().membership.registration();
        registration.is_some_and(|it| it.verdict().is_ok() && it.knows(self.nexus()))
    }

    /// Ends the registration of the session's nexus, once what it carries has ended. Where another has ended it there is
    /// nothing to do.
    ///
    /// # Errors
    /// Why the unit may still have it.
    pub(crate) async fn unregister(&self) -> Result<(), Error> {
        match self.registration_to_end().await {
            Some(registration) => self.end_registration(registration).await,
            None => Ok(()),
        }
    }

    /// Ends it, unless a reservation may end with it.
    pub(crate) async fn unregister_unless_holder(&self) {
        let Some(registration) = self.registration_to_end().await else { return };
        // Of two that go at the same time one may be the last registrant.
        let _turn = registration.turn().await;
        let held = timeout(PATIENCE, self.for_registration().reservation()).await;
        let Ok(Ok(held)) = held else { return };
        let nexus = self.nexus();
        if held.reservation.is_none_or(|held| registration.is_outlived_by(&held, nexus)) {
            // It is known that it may still be there.
            drop(self.end_registration(registration).await);
        }
    }

    /// What the nexus of the session is registered by, once what the session carries has ended.
    async fn registration_to_end(&self) -> Option<&Arc<Registration>> {
        let membership = &self.state().membership;
        let registration = membership.registration().filter(|_| membership.is_registered())?;
        let state = self.state();
        drop(timeout(PATIENCE, state.ended_before(state.next_command())).await);
        registration.verdict().is_ok().then_some(registration)
    }

    async fn end_registration(&self, registration: &Registration) -> Result<(), Error> {
        let (membership, nexus) = (&self.state().membership, self.nexus());
        membership.set_registered(false);
        registration.forget(nexus);
        let why = match timeout(PATIENCE, self.change_registration(&registration.end())).await {
            Ok(Ok(())) => return Ok(()),
            // Another has ended it.
            Ok(Err(error)) if error.is_reservation_conflict() => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => Error::Task { request: "PERSISTENT RESERVE OUT", cause: TaskError::TimedOut },
        };
        registration.keep(nexus);
        membership.set_registered(true);
        let span = self.session().span();
        tracing::debug!(parent: span, %why, "the registration of a session did not end in order");
        Err(why)
    }

    /// Notes that the nexus of the session holds the unit by this change, or may.
    pub(super) async fn reserving(
        &self,
        change: &PersistentReserveOut,
        made: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let takes = matches!(
            change,
            PersistentReserveOut::Reserve { .. }
                | PersistentReserveOut::Preempt { .. }
                | PersistentReserveOut::PreemptAndAbort { .. }
        );
        let Some(registration) = self.state().membership.registration().filter(|_| takes) else {
            return made.await;
        };
        let nexus = self.nexus();
        let is_news = registration.may_hold(nexus);
        let result = made.await;
        match &result {
            Ok(()) if matches!(change, PersistentReserveOut::Reserve { .. }) => {
                registration.holds(nexus);
            }
            Err(error) if is_news && is_answer(error) => registration.does_not_hold(nexus),
            Ok(()) | Err(_) => {}
        }
        result
    }

    /// The nexus of the session, if the target says which of its ports it is.
    fn nexus(&self) -> Option<Nexus> {
        let isid = self.session().isid();
        self.session().portal_group().map(|portal_group| Nexus { isid, portal_group })
    }

    /// Has the unit itself say whether the nexus is registered by the key.
    async fn prove(&self, registration: &Registration) -> Result<(), Error> {
        match self.change_registration(&registration.proof()).await {
            Err(error) if error.is_reservation_conflict() => Err(registration.preempt()),
            result => result,
        }
    }

    async fn register_further(
        &self,
        registration: &Arc<Registration>,
        nexus: Option<Nexus>,
    ) -> Result<(), Error> {
        let unit = self.for_registration();
        for _ in 0..MAX_TRIES {
            let late = registration.prepare(nexus);
            let before = unit.registered_keys().await?;
            let key = registration.key();
            // Those that are not certain may be there although the others were ended.
            if before.keys.iter().filter(|other| **other == key).count() <= late {
                return Err(registration.preempt());
            }
            registration.begin(nexus);
            let begun = self.begin_registration(registration).await;
            if let Err(error) = begun {
                if is_answer(&error) {
                    registration.answered(nexus, false);
                }
                return Err(error);
            }
            let after = unit.registered_keys().await?;
            if after.generation == before.generation.wrapping_add(1) {
                registration.answered(nexus, true);
                return Ok(());
            }
            unit.persistent_reserve_out(&registration.end()).await?;
            registration.answered(nexus, false);
        }
        Err(Error::Unsupported("a count of the changes of its registrations (PRGENERATION)"))
    }

    /// Registers the nexus, for as long as the unit keeps registrations.
    async fn begin_registration(&self, registration: &Registration) -> Result<(), Error> {
        match self.change_registration(&registration.beginning()).await {
            // It may be APTPL that the unit does not take.
            Err(Error::CheckCondition { .. }) if registration.give_up_persistence() => {}
            result => return result,
        }
        match self.change_registration(&registration.beginning()).await {
            // A unit of SPC-2 does not know REGISTER AND IGNORE EXISTING KEY.
            Err(Error::CheckCondition { sense, .. }) if sense.key == SenseKey::IllegalRequest => {}
            result => return result,
        }
        self.change_registration(&PersistentReserveOut::Register {
            key: ReservationKey::NONE,
            new_key: registration.key(),
            persist_through_power_loss: false,
            all_target_ports: false,
        })
        .await
    }

    /// Changes the registration of the nexus. LIO without `/var/target/pr`, where it stores registrations, carries out each REGISTER and
    /// answers NOT READY, LOGICAL UNIT COMMUNICATION FAILURE. So after a CHECK CONDITION the unit is asked whether it did.
    async fn change_registration(&self, change: &PersistentReserveOut) -> Result<(), Error> {
        let unit = self.for_registration();
        let error = match unit.persistent_reserve_out(change).await {
            Err(error) if error.sense().is_some() && !is_refused(&error) => error,
            result => return result,
        };
        let (PersistentReserveOut::Register { new_key: wanted, .. }
        | PersistentReserveOut::RegisterAndIgnoreExistingKey { new_key: wanted, .. }) = *change
        else {
            return Err(error);
        };
        match self.has_key(&unit, wanted).await {
            Ok(true) => {
                let span = self.session().span();
                tracing::debug!(parent: span, %error, "registered all the same");
                Ok(())
            }
            Ok(false) | Err(_) => Err(error),
        }
    }

    /// Whether the registration of the nexus is as `wanted` (READ FULL STATUS): by this key, or absent for
    /// [`NONE`](ReservationKey::NONE).
    async fn has_key(&self, unit: &Self, wanted: ReservationKey) -> Result<bool, Error> {
        let registrants = unit.reservation_full_status().await?.registrants;
        let Some(membership) = self.state().membership.registration() else { return Ok(false) };
        let isid = self.session().isid();
        let by = if wanted.is_none() { membership.key() } else { wanted };
        let told =
            registrants.iter().filter(|it| it.key == by && it.initiator_port.isid() == Some(isid));
        // A session with the same ISID at another target port is another nexus, with an entry of its own.
        let others = membership.nexuses_beside(self.nexus(), isid);
        Ok((told.count() > others) != wanted.is_none())
    }

    /// The same unit for commands that wait for no request.
    fn for_registration(&self) -> Self {
        self.with_questions(Budget::new(COMMANDS, COMMAND_BYTES))
    }
}

/// Whether the unit has answered.
const fn is_answer(error: &Error) -> bool {
    matches!(error, Error::Status { .. } | Error::CheckCondition { .. })
}
