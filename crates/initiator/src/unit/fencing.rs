//! Sends the commands of [`Fencing`](iscsi_multipath::fencing::Fencing), which keeps the registrations of a
//! disk.

use std::time::Duration;

use bytes::BytesMut;
use iscsi_multipath::fencing::{End, Failure, Goal, PathNexus, Question, ReserveCommand};
use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};
use iscsi_session::TaskError;
use tokio::time::{timeout, timeout_at};

use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, ErrorKind, SessionCause, UnitCause};
use crate::state::budget::Budget;
use crate::state::fencing::Member;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::transfer::Transfer;

/// Separate budget of the commands of a procedure: requests that wait for its result may hold the whole budget
/// of the session.
const COMMANDS: usize = 2;
const COMMAND_BYTES: usize = 1 << 20;
/// Time limit of the wait for the commands of a session, before its registration ends.
const REQUESTS_LIMIT: Duration = Duration::from_secs(5);
/// Name of the missing feature, in the error for a unit without persistent reservations.
const LACK: &str =
    "persistent reservations, which a disk with a reservation key needs; open it without one";

impl LogicalUnit {
    /// Registers the first session of a disk by its key, if it has one.
    ///
    /// # Errors
    /// [`UnitCause::Unsupported`] if the unit has no persistent reservations; [`UnitCause::Preempted`] if the
    /// session was registered before, and another host has ended that registration; or as
    /// [`execute`](Self::execute).
    pub(crate) fn register(&self) -> BoxFuture<'_, Result<(), Error>> {
        boxed(async move {
            let Some(key) = self.session().policy().reservation_key else { return Ok(()) };
            self.state().membership.set_key(key, self.state().known());
            match self.member() {
                Some(member) => self.run(member, Goal::Register).await,
                None => Ok(()),
            }
        })
    }

    /// Registers a further session of a disk, or one that has reconnected, if the disk has a key and is still
    /// registered by that key.
    ///
    /// # Errors
    /// [`UnitCause::Preempted`] if another host has ended its registration, for good; otherwise as
    /// [`register`](Self::register).
    pub(crate) async fn join_registration(&self) -> Result<(), Error> {
        match self.member() {
            Some(member) => self.run(member, Goal::Join).await,
            None => Ok(()),
        }
    }

    /// Returns the error of a command after a reservation conflict: another host holds the unit, or has fenced
    /// this host off.
    pub(super) async fn explain_conflict(&self, error: Error) -> Error {
        let member = self.member().filter(|_| error.is_reservation_conflict());
        let Some(member) = member.filter(Member::is_registered) else { return error };
        // Another unit at the same LUN would not know the disk's key, which does not mean that the disk was
        // fenced off. So the unit's identity is checked first.
        if let Err(error) = Box::pin(self.recognized()).await {
            return error;
        }
        match self.run(member, Goal::Prove).await {
            Err(reason) if reason.kind() == ErrorKind::Preempted => reason,
            Err(reason) if reason.is_of_session() => reason,
            Err(_) | Ok(()) => error,
        }
    }

    /// Returns whether the unit may have a registration of the session by the disk's key.
    pub(crate) fn is_registered(&self) -> bool {
        self.member().is_some_and(|member| member.is_nexus_registered())
    }

    /// Ends the registration of the session, after the session's commands have ended.
    ///
    /// # Errors
    /// The reason why the unit may still have the registration.
    pub(crate) async fn unregister(&self) -> Result<(), Error> {
        self.end_registration(Goal::End).await
    }

    /// Ends the registration of the session, unless a reservation may end with it.
    pub(crate) async fn unregister_unless_holder(&self) {
        // The error can be dropped: the member stores whether the registration may still exist.
        drop(self.end_registration(Goal::EndUnlessReserved).await);
    }

    async fn end_registration(&self, goal: Goal) -> Result<(), Error> {
        let Some(member) = self.member().filter(Member::is_registered) else { return Ok(()) };
        let state = self.state();
        // A command that takes longer does not keep the registration from being ended, so the result is
        // dropped.
        drop(timeout(REQUESTS_LIMIT, state.ended_before(state.next_command())).await);
        let result = self.run(member, goal).await;
        if let Err(why) = &result {
            let span = self.session().span();
            tracing::debug!(parent: span, %why, "the registration of a session did not end in order");
        }
        result
    }

    /// Records that the session holds the reservation after this change, or may hold it.
    pub(super) async fn reserving(
        &self,
        change: &PersistentReserveOut,
        made: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let Some(member) = self.member() else { return made.await };
        let Some(claim) = member.begin_reserving(change) else { return made.await };
        let result = made.await.map(|()| BytesMut::new());
        member.end_reserving(claim, end_of(&result));
        result.map(drop)
    }

    fn member(&self) -> Option<Member<'_>> {
        let session = self.session();
        self.state().membership.member(self.state().path(), || PathNexus {
            isid: session.isid(),
            portal_group: session.portal_group(),
        })
    }

    /// Runs a procedure of the fencing state machine over this session.
    fn run<'a>(&'a self, member: Member<'a>, goal: Goal) -> BoxFuture<'a, Result<(), Error>> {
        boxed(async move {
            let unit = self.with_questions(Budget::new(COMMANDS, COMMAND_BYTES));
            let procedure = member.start(goal);
            let mut failed = Vec::new();
            let result = loop {
                match procedure.next().await {
                    Ok(question) => {
                        let answer = unit.answer(&question).await;
                        procedure.on_end(end_of(&answer));
                        failed.extend(answer.err().map(|error| (question.number, error)));
                    }
                    Err(result) => break result,
                }
            };
            result.map_err(|failure| error_of(failure, failed, member.key()))
        })
    }

    /// Sends a command of a procedure to the unit, and returns the data of the response.
    async fn answer(&self, question: &Question) -> Result<BytesMut, Error> {
        let transfer = match question.command {
            ReserveCommand::In { action, allocation_length } => {
                Transfer::query(action.cdb(allocation_length), allocation_length.into())
            }
            ReserveCommand::Out(change) => Transfer::reserve_out(&change),
        };
        let request = transfer.name();
        let answer = async { Ok(self.execute_with_retry(transfer).await?.data) };
        match question.deadline {
            None => answer.await,
            Some(deadline) => timeout_at(deadline.into(), answer)
                .await
                .unwrap_or(Err(SessionCause::Task { request, cause: TaskError::TimedOut }.into())),
        }
    }
}

fn end_of(answer: &Result<BytesMut, Error>) -> End<'_> {
    match answer {
        Ok(data) => End::Good(data),
        Err(error) => match (error.sense(), error.status()) {
            (Some(sense), _) => End::Check(sense),
            (None, Some(status)) => End::Status(status),
            (None, None) => End::NoAnswer,
        },
    }
}

/// Returns the error of a procedure; `failed` has the errors of its commands, by their numbers.
fn error_of(failure: Failure, failed: Vec<(u32, Error)>, key: ReservationKey) -> Error {
    match failure {
        Failure::Preempted => Error::from(UnitCause::Preempted { key }),
        Failure::NoReservations => Error::from(UnitCause::Unsupported(LACK)),
        Failure::NoGeneration => Error::from(UnitCause::Unsupported(
            "a count of the changes of its registrations (PRGENERATION)",
        )),
        Failure::Unproven => Error::from(UnitCause::Unsupported(
            "a list of registrations with their sessions (READ FULL STATUS)",
        )),
        Failure::Question(number) => {
            let failed = failed.into_iter().find(|(of, _)| *of == number);
            failed.map_or_else(Error::closed, |(_, error)| error)
        }
        Failure::Format(why) => {
            Error::from(UnitCause::Format { command: "PERSISTENT RESERVE IN", why })
        }
        Failure::GivenUp => Error::closed(),
    }
}
