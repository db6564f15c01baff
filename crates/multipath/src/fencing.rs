//! Registers the paths of a disk with its reservation key, and finds out whether they still are registered
//! (SPC-4 §5.13).
//!
//! Design: `docs/design/fencing.md`.

mod exchange;
mod procedure;
mod question;
mod registrations;
mod step;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use iscsi_pdu::scsi::AdditionalSense;
use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};

use crate::PathId;
use procedure::Procedure;
pub use question::{End, Question, ReserveCommand};
pub use registrations::PathNexus;
use registrations::{Nexus, Registrations};
pub use step::{Failure, Goal, Step};

/// The registrations of a disk with a reservation key, over all of its paths.
///
/// A host that ends a registration of the disk (PREEMPT, CLEAR) wants to stop all writes of this host. So the
/// disk never renews a registration that another host has ended, and from then on all of its requests fail
/// ([`is_preempted`](Self::is_preempted)). This state is final.
///
/// Each session registers its I_T nexus before anything is written over it. A registration belongs to the nexus
/// and outlives the session (SPC-4 §5.13.1). So a session that reconnects is still registered, unless another
/// host has ended the registration.
///
/// | path | command | how the disk confirms that no other host has ended the registrations |
/// |---|---|---|
/// | the first one | REGISTER AND IGNORE EXISTING KEY | not at all: the caller that opens the disk wants it registered |
/// | one whose nexus was registered | REGISTER, with the key of the nexus | if the registration was ended, the unit refuses this with RESERVATION CONFLICT. The path is then registered as a further one, because some targets, such as tgt, treat each session as a new nexus |
/// | a further one | REGISTER AND IGNORE EXISTING KEY between two READ KEYS | the first READ KEYS shows the key, and PRGENERATION has grown by one: no registration was ended in between. Otherwise the new registration is ended, and the path tries again |
///
/// A registration that was sent and has no status may still be executed, until its nexus logs in again. Such
/// a registration may have set the key that READ KEYS shows, so the key alone is then not enough: READ FULL
/// STATUS shows whether another nexus is registered. A nexus that logs in again first ends its own uncertain
/// registration.
///
/// RESERVATION CONFLICT means that another host holds a reservation, or that this host was fenced off. A
/// REGISTER as in the second row of the table, over the same path, shows which. A unit attention that reports
/// a preemption over a registered path needs no further check.
///
/// A path that is not needed any more ends its registration, unless a reservation may end with it. This
/// applies to the registration of the holder, and to the last registration under an all registrants type
/// (SPC-4 §5.13.11.2). Such a registration stays until the disk ends.
///
/// Procedures run one at a time, in the order of their [`start`](Self::start), because each checks the count
/// of all changes of registrations. Only the end of a registration does not wait ([`Goal::End`]): when a disk
/// ends, one silent path must not delay all others.
///
/// ```
/// use std::time::Instant;
///
/// use iscsi_multipath::PathId;
/// use iscsi_multipath::fencing::{End, Fencing, Goal, PathNexus, Step};
/// use iscsi_pdu::Isid;
/// use iscsi_pdu::scsi::reservation::ReservationKey;
///
/// let mut fencing = Fencing::new(ReservationKey(0x1a2b));
/// let path = PathId(1);
/// fencing.attach(path, PathNexus { isid: Isid::random([1, 2, 3], 0), portal_group: Some(1) });
/// let procedure = fencing.start(path, Goal::Register);
/// loop {
///     match fencing.poll(procedure, Instant::now()) {
///         // The unit answers GOOD.
///         Step::Ask(_question) => fencing.on_end(procedure, End::Good(&[])),
///         Step::Done(result) => break assert_eq!(result, Ok(())),
///         Step::Wait => unreachable!("no other procedure is running"),
///     }
/// }
/// assert!(fencing.is_registered(path));
/// ```
#[derive(Debug)]
pub struct Fencing {
    registrations: Registrations,
    procedures: Vec<(ProcedureId, Procedure)>,
    /// Procedures that run one at a time; the first one is running.
    turns: VecDeque<ProcedureId>,
    next_procedure: u64,
}

/// Identifies a procedure. No identifier is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ProcedureId(u64);

/// A command in flight that may reserve the unit; see [`Fencing::begin_reserving`].
#[derive(Debug)]
#[must_use]
pub struct Claim {
    nexus: Option<Nexus>,
    /// Whether the nexus could not hold a reservation before this command.
    is_new: bool,
    is_reserve: bool,
}

impl Fencing {
    /// Creates the state of a disk with this key that is registered over no path.
    pub const fn new(key: ReservationKey) -> Self {
        Self {
            registrations: Registrations::new(key),
            procedures: Vec::new(),
            turns: VecDeque::new(),
            next_procedure: 0,
        }
    }

    /// Returns the key.
    pub const fn key(&self) -> ReservationKey {
        self.registrations.key()
    }

    /// Returns whether another host has ended a registration of the disk.
    pub const fn is_preempted(&self) -> bool {
        self.registrations.is_preempted()
    }

    /// Adds a path whose session has logged in. It is not registered.
    pub fn attach(&mut self, path: PathId, nexus: PathNexus) {
        self.registrations.attach(path, nexus);
    }

    /// Removes a path, and cancels its procedures. The registration of its nexus stays.
    pub fn detach(&mut self, path: PathId) {
        for (_, procedure) in self.procedures.iter_mut().filter(|(_, it)| it.path() == path) {
            procedure.give_up(&mut self.registrations);
        }
        self.registrations.detach(path);
    }

    /// Returns whether the path was registered and the disk has not ended that registration.
    pub fn is_registered(&self, path: PathId) -> bool {
        self.registrations.is_registered(path)
    }

    /// Returns whether the unit may have a registration of the nexus of the path with the key of the disk.
    pub fn is_nexus_registered(&self, path: PathId) -> bool {
        let nexus = self.registrations.nexus_of(path);
        !self.is_preempted() && nexus.is_some_and(|nexus| self.registrations.knows(nexus))
    }

    /// Returns whether the unit may have a registration of any nexus of the disk.
    pub fn may_be_left(&self) -> bool {
        self.registrations.may_be_left()
    }

    /// Records a unit attention of a path. Returns whether it reports that another host has ended the
    /// registration of the disk: by its key, or with all others (SPC-4 §5.13.11.4, §5.13.11.6). If the path
    /// was not registered, returns `false`, because the report is about an earlier registration of the same
    /// nexus.
    pub fn on_unit_attention(&mut self, path: PathId, additional: AdditionalSense) -> bool {
        let is_preemption = matches!(
            additional,
            AdditionalSense::REGISTRATIONS_PREEMPTED | AdditionalSense::RESERVATIONS_PREEMPTED
        );
        let is_ours = is_preemption && self.is_registered(path);
        if is_ours {
            self.registrations.preempt();
        }
        is_ours
    }

    /// Starts a procedure. To run it, call [`poll`](Self::poll) until it is done.
    pub fn start(&mut self, path: PathId, goal: Goal) -> ProcedureId {
        let id = ProcedureId(self.next_procedure);
        self.next_procedure += 1;
        if let Some(nexus) = self.registrations.nexus_of(path) {
            self.procedures.push((id, Procedure::new(goal, path, nexus)));
            if goal != Goal::End {
                self.turns.push_back(id);
            }
        }
        id
    }

    /// Returns the next step of a procedure. Each command is returned once.
    pub fn poll(&mut self, procedure: ProcedureId, now: Instant) -> Step {
        let is_waiting = self.turns.contains(&procedure) && self.turns.front() != Some(&procedure);
        if is_waiting {
            return Step::Wait;
        }
        let Some(running) = find(&mut self.procedures, procedure) else {
            return Step::Done(Err(Failure::GivenUp));
        };
        let step = running.poll(&mut self.registrations, now);
        if matches!(step, Step::Done(_)) {
            self.remove(procedure);
        }
        step
    }

    /// Records the end of the command that [`poll`](Self::poll) returned last for this procedure.
    pub fn on_end(&mut self, procedure: ProcedureId, end: End<'_>) {
        if let Some(running) = find(&mut self.procedures, procedure) {
            running.on_end(end, &mut self.registrations);
        }
    }

    /// Cancels a procedure, because its caller does not wait any more. The unit may still execute a command
    /// that was sent, so its possible effect stays recorded.
    pub fn cancel(&mut self, procedure: ProcedureId) {
        if let Some(running) = find(&mut self.procedures, procedure) {
            running.give_up(&mut self.registrations);
        }
        self.remove(procedure);
    }

    /// Notes that a command is about to be sent over the path. Returns a claim if the command may give the
    /// nexus the reservation of the unit: pass the end of the command to
    /// [`end_reserving`](Self::end_reserving). A claim without an end counts as a reservation that may be held.
    pub fn begin_reserving(
        &mut self,
        path: PathId,
        command: &PersistentReserveOut,
    ) -> Option<Claim> {
        let is_reserve = match command {
            PersistentReserveOut::Reserve { .. } => true,
            PersistentReserveOut::Preempt { .. } | PersistentReserveOut::PreemptAndAbort { .. } => {
                false
            }
            PersistentReserveOut::Register { .. }
            | PersistentReserveOut::RegisterAndIgnoreExistingKey { .. }
            | PersistentReserveOut::Release { .. }
            | PersistentReserveOut::Clear { .. } => return None,
        };
        let nexus = self.registrations.nexus_of(path).and_then(PathNexus::known);
        Some(Claim { nexus, is_new: self.registrations.may_hold(nexus), is_reserve })
    }

    /// Records the end of a command that may have reserved the unit.
    pub fn end_reserving(&mut self, claim: Claim, end: End<'_>) {
        let Claim { nexus, is_new, is_reserve } = claim;
        match end {
            End::Good(_) if is_reserve => self.registrations.holds(nexus),
            End::Check(_) | End::Status(_) if is_new => self.registrations.does_not_hold(nexus),
            End::Good(_) | End::Check(_) | End::Status(_) | End::NoAnswer => {}
        }
    }

    fn remove(&mut self, procedure: ProcedureId) {
        self.procedures.retain(|(id, _)| *id != procedure);
        self.turns.retain(|id| *id != procedure);
    }
}

fn find(
    procedures: &mut [(ProcedureId, Procedure)],
    procedure: ProcedureId,
) -> Option<&mut Procedure> {
    procedures.iter_mut().find(|(id, _)| *id == procedure).map(|(_, it)| it)
}
