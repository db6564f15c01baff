//! Tracks the registrations of a disk by its reservation key, which its sessions share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use iscsi_multipath::PathId;
use iscsi_multipath::fencing::{
    Claim, End, Failure, Fencing, Goal, PathNexus, ProcedureId, Question, Step,
};
use iscsi_pdu::scsi::AdditionalSense;
use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{Consequence, Error, UnitCause};
use crate::state::unit_lock::{Guarded, LeftPaths, UnitLock};

/// The [`Fencing`] of a disk under the lock of its unit, and the wait of each procedure for its turn.
#[derive(Debug)]
pub(crate) struct SharedFencing {
    key: ReservationKey,
    fencing: Guarded<Fencing>,
    /// Paths whose sessions have ended.
    left: LeftPaths,
    /// Copy of [`Fencing::is_preempted`], which each request reads when it begins, without the lock.
    is_preempted: AtomicBool,
    /// Notified when the turn may have passed to another procedure.
    turned: Notify,
}

/// The part of one session in the registrations of its disk.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    fencing: OnceLock<Arc<SharedFencing>>,
    path: OnceLock<PathId>,
}

/// A path of a disk that has a reservation key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    fencing: &'a SharedFencing,
    path: PathId,
}

/// A procedure in progress, such as a registration. Dropping it cancels the procedure.
#[derive(Debug)]
pub(crate) struct Procedure<'a> {
    fencing: &'a SharedFencing,
    id: ProcedureId,
}

impl SharedFencing {
    fn new(key: ReservationKey, unit: &Arc<UnitLock>) -> Self {
        Self {
            key,
            fencing: Guarded::new(unit, Fencing::new(key)),
            left: LeftPaths::default(),
            is_preempted: AtomicBool::new(false),
            turned: Notify::new(),
        }
    }

    pub(crate) const fn key(&self) -> ReservationKey {
        self.key
    }

    /// Returns an error if another host has ended a registration of the disk: then all requests of the disk
    /// fail with this error.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        let is_preempted = self.is_preempted.load(Ordering::SeqCst);
        if is_preempted { Err(UnitCause::Preempted { key: self.key }.into()) } else { Ok(()) }
    }

    /// Returns whether the unit may still have a registration by the key, for an open session of the disk or
    /// for a session that has ended.
    pub(crate) fn may_be_left(&self) -> bool {
        self.with(|fencing| fencing.may_be_left())
    }

    /// Returns the error of a disk that has ended and may have left a registration. `why` is the reason.
    pub(crate) fn left_because(&self, why: Error) -> Error {
        Error::from(Consequence::StillRegistered { key: self.key, why })
    }

    fn with<T>(&self, call: impl FnOnce(&mut Fencing) -> T) -> T {
        let mut fencing = self.fencing.lock();
        for path in self.left.take() {
            fencing.detach(path);
        }
        let result = call(&mut fencing);
        if fencing.is_preempted() {
            self.is_preempted.store(true, Ordering::SeqCst);
        }
        result
    }
}

impl Membership {
    /// Returns the membership of a further session of the same disk.
    pub(crate) fn follow(&self) -> Self {
        Self { fencing: self.fencing.clone(), path: OnceLock::new() }
    }

    /// Returns the registrations of the disk, if it has a key.
    pub(crate) fn fencing(&self) -> Option<&Arc<SharedFencing>> {
        self.fencing.get()
    }

    /// Sets the key of the disk, if it has none yet.
    pub(crate) fn set_key(&self, key: ReservationKey, unit: &Arc<UnitLock>) {
        self.fencing.get_or_init(|| Arc::new(SharedFencing::new(key, unit)));
    }

    /// Returns the session as a member, if the disk has a key. `path` is the session's path. `nexus` returns
    /// the ISID and the portal group of the session, for which the unit stores the registration.
    pub(crate) fn member(
        &self,
        path: PathId,
        nexus: impl FnOnce() -> PathNexus,
    ) -> Option<Member<'_>> {
        let fencing = self.fencing()?;
        let attach = || {
            let nexus = nexus();
            fencing.with(|fencing| fencing.attach(path, nexus));
            path
        };
        Some(Member { fencing, path: *self.path.get_or_init(attach) })
    }

    /// Returns an error if another host has ended a registration of the disk: then all requests of the disk
    /// fail with this error.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        self.fencing().map_or(Ok(()), |fencing| fencing.verdict())
    }

    /// Handles a unit attention. Returns whether it reports that another host has ended the registration of
    /// the disk.
    pub(crate) fn on_unit_attention(&self, additional: AdditionalSense) -> bool {
        let member = self.fencing().zip(self.path.get());
        member.is_some_and(|(fencing, path)| {
            fencing.with(|fencing| fencing.on_unit_attention(*path, additional))
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some((fencing, path)) = self.fencing().zip(self.path.get()) {
            // The lock may be held here, so the path is only queued.
            fencing.left.add(*path);
            fencing.turned.notify_waiters();
        }
    }
}

impl<'a> Member<'a> {
    pub(crate) const fn key(&self) -> ReservationKey {
        self.fencing.key
    }

    /// Returns whether the session was registered.
    pub(crate) fn is_registered(&self) -> bool {
        self.fencing.with(|fencing| fencing.is_registered(self.path))
    }

    /// Returns whether the unit may have a registration by the key of the disk for the ISID and the portal
    /// group of the session, even if an earlier session has made it.
    pub(crate) fn is_nexus_registered(&self) -> bool {
        self.fencing.with(|fencing| fencing.is_nexus_registered(self.path))
    }

    pub(crate) fn start(&self, goal: Goal) -> Procedure<'a> {
        let id = self.fencing.with(|fencing| fencing.start(self.path, goal));
        Procedure { fencing: self.fencing, id }
    }

    pub(crate) fn begin_reserving(&self, change: &PersistentReserveOut) -> Option<Claim> {
        self.fencing.with(|fencing| fencing.begin_reserving(self.path, change))
    }

    pub(crate) fn end_reserving(&self, claim: Claim, end: End<'_>) {
        self.fencing.with(|fencing| fencing.end_reserving(claim, end));
    }
}

impl Procedure<'_> {
    /// Waits until the procedure has a command to send, or has ended.
    ///
    /// # Errors
    /// The result of the procedure, once it has ended.
    pub(crate) async fn next(&self) -> Result<Question, Result<(), Failure>> {
        let turned = &self.fencing.turned;
        loop {
            let mut turned = std::pin::pin!(turned.notified());
            // Register before the check, so that no turn is missed.
            turned.as_mut().enable();
            let now = Instant::now().into_std();
            match self.fencing.with(|fencing| fencing.poll(self.id, now)) {
                Step::Ask(question) => return Ok(question),
                Step::Done(result) => return Err(result),
                Step::Wait => turned.await,
            }
        }
    }

    pub(crate) fn on_end(&self, end: End<'_>) {
        self.fencing.with(|fencing| fencing.on_end(self.id, end));
    }
}

impl Drop for Procedure<'_> {
    fn drop(&mut self) {
        self.fencing.with(|fencing| fencing.cancel(self.id));
        self.fencing.turned.notify_waiters();
    }
}
