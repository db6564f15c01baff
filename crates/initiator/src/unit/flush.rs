//! Flushes a unit over one session (SYNCHRONIZE CACHE), and checks whether earlier writes were lost.

use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use iscsi_multipath::flushing::{Command, End, Failure, Question, Step, Terms};
use iscsi_multipath::{Blocks, CommandNumber, PathId};
use iscsi_pdu::scsi::Cdb;
use iscsi_session::TaskError;
use tracing::Instrument;

use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, SessionCause};
use crate::runtime::Task;
use crate::state::budget::{Budget, Permit};
use crate::state::flush_in_progress::Flushing;
use crate::state::unit_state::UnitState;
use crate::unit::in_flight::{InFlight, by};
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe;
use crate::unit::retry::Patience;
use crate::unit::transfer::Transfer;

/// Separate budget in bytes for MODE SENSE during a flush, because requests may hold the whole budget of the
/// session.
const QUESTION_BYTES: usize = 1 << 10;

/// Result of a command of a flush: the number of its last attempt in its session, and its data.
type Answer = Result<(CommandNumber, BytesMut), Error>;

/// Sends the commands of a flush over one session.
struct Questions {
    unit: LogicalUnit,
    /// Another session to the unit, for the query whether a write was lost when this session cannot tell.
    witness: Option<LogicalUnit>,
    synchronize: Cdb,
    patience: fn(&LogicalUnit) -> Patience<'_>,
    permit: Arc<Permit>,
    in_flight: InFlight<Answer>,
    failed: Vec<(u32, Error)>,
}

impl LogicalUnit {
    /// Flushes the unit's cache, so that all earlier writes are on the medium (SYNCHRONIZE CACHE). Does nothing
    /// if the unit does not know the command and reports no volatile cache.
    ///
    /// Dropping the future does not stop a flush that has begun: the next flush waits for its end.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    ///
    /// [`UnflushedWritesLost`](crate::ErrorKind::UnflushedWritesLost) when earlier writes may be lost: the unit
    /// was reset, it reported later that a write had failed (a deferred error), or an earlier flush failed on
    /// the medium, even a flush of another disk of this initiator. The error is returned also if the loss is
    /// not certain. Each handle returns it once for each loss, as `fsync` does for each open file: a clone is a
    /// separate handle, and so is a stream of a disk.
    #[doc(alias("sync", "fsync", "SYNCHRONIZE CACHE"))]
    pub async fn flush(&self) -> Result<(), Error> {
        self.flush_alone().await
    }

    fn flush_alone(&self) -> BoxFuture<'_, Result<(), Error>> {
        boxed(async move {
            let seen = self.losses.begin();
            self.flush_with(Self::patience, None, || None).await?;
            self.losses.end(seen)
        })
    }

    /// Flushes, and finds out whether a write was lost, which the handles then report. If this session cannot
    /// tell, the unit is queried over another session, the witness.
    ///
    /// Once the flush has its turn, it runs to its end, even if this future is dropped.
    ///
    /// `permit` is the flush's share of the budget. A flush that has a path to itself must bring a permit:
    /// requests that hold the whole budget may wait for that path.
    pub(crate) async fn flush_with(
        &self,
        patience: fn(&Self) -> Patience<'_>,
        permit: Option<Arc<Permit>>,
        witness: impl Fn() -> Option<Self> + Send + 'static,
    ) -> Result<(), Error> {
        let profile = self.profile().await?;
        // Reserve before waiting for the turn: the flush that has the turn may hold the only path, and requests
        // that hold the budget may wait for that path.
        let permit = match permit {
            Some(permit) => permit,
            None => Arc::new(self.reserve(0).await?),
        };
        let flushes = self.state.flushes_or(|| self.session.shared_of(self.lun, &profile).1);
        let retry_timeout = self.session.policy().patience;
        let terms = Terms { write_cache: profile.write_cache, retry_timeout };
        let (flushing, caller) = Flushing::start(&self.state, flushes, terms);
        let questions = Questions {
            unit: self.clone(),
            witness: None,
            synchronize: Blocks(&profile.capacity).flush(),
            patience,
            permit,
            in_flight: InFlight::default(),
            failed: Vec::new(),
        };
        let run = run(flushing, questions, witness).in_current_span();
        let result = Task::detached(run).await;
        drop(caller);
        result
    }
}

/// Runs a flush by [`Flushes`](iscsi_multipath::flushing::Flushes), whether or not its caller waits.
async fn run(
    flushing: Flushing,
    mut questions: Questions,
    choose_witness: impl Fn() -> Option<LogicalUnit>,
) -> Result<(), Error> {
    let mut given_up: Option<Arc<UnitState>> = None;
    loop {
        let mut turned = pin!(flushing.turned());
        // Enabled before the poll, so that no change of turns after it is missed.
        turned.as_mut().enable();
        let step = flushing.poll();
        if let Some(state) = given_up.take() {
            state.notify_given_up();
        }
        match step {
            Step::Ask(question) => questions.ask(question),
            Step::ChooseWitness => {
                questions.witness = choose_witness();
                flushing.on_witness(questions.witness.as_ref().map(|it| it.state.path()));
            }
            Step::AwaitCommands(path, number) => {
                let state = Arc::clone(&questions.unit_of(path).state);
                let heard = by(flushing.poll_timeout(), state.ended_before(number)).await;
                // If the time limit has passed, the next poll gives up these commands. The tasks that wait for
                // these commands are woken after that poll.
                given_up = heard.is_none().then_some(state);
            }
            Step::Wait => {
                let next = async {
                    tokio::select! {
                        biased;
                        answered = questions.in_flight.next() => Some(answered),
                        () = turned => None,
                    }
                };
                if let Some(Some((number, answer))) = by(flushing.poll_timeout(), next).await {
                    let span = questions.unit.session.span();
                    span.in_scope(|| flushing.on_end(number, end_of(&answer)));
                    questions.failed.extend(answer.err().map(|error| (number, error)));
                }
            }
            Step::Done(result) => return result.map_err(|failure| questions.error_of(failure)),
        }
    }
}

impl Questions {
    fn ask(&mut self, Question { number, path, command }: Question) {
        let unit = self.unit_of(path).clone();
        let answer: BoxFuture<'static, Answer> = match command {
            Command::SynchronizeCache => {
                let transfer = Transfer::query(self.synchronize.clone(), 0).with_proof();
                boxed(answer(unit, self.charged(transfer), self.patience))
            }
            Command::TestUnitReady => {
                let transfer = self.charged(Transfer::query(Cdb::test_unit_ready(), 0));
                let answer = answer(unit, transfer, LogicalUnit::patience_of_a_path);
                // Detached: the response may report a reset, which must be received even after the flush has
                // ended.
                boxed(Task::detached(answer.in_current_span()))
            }
            Command::ModeSense => {
                let unit = unit.with_questions(Budget::new(1, QUESTION_BYTES));
                boxed(answer(unit, probe::mode_question(), LogicalUnit::patience))
            }
        };
        self.in_flight.push(number, answer);
    }

    fn charged(&self, mut transfer: Transfer) -> Transfer {
        transfer.set_permit(Arc::clone(&self.permit));
        transfer
    }

    fn unit_of(&self, path: PathId) -> &LogicalUnit {
        let witness = self.witness.as_ref().filter(|it| it.state.path() == path);
        witness.unwrap_or(&self.unit)
    }

    fn error_of(self, failure: Failure) -> Error {
        let Failure::Question(number) = failure else {
            let request = self.synchronize.operation_name();
            return Error::from(SessionCause::Task { request, cause: TaskError::Withdrawn });
        };
        let failed = self.failed.into_iter().find(|(of, _)| *of == number);
        failed.map_or_else(Error::closed, |(_, error)| error)
    }
}

/// Sends a command with retries.
async fn answer(
    unit: LogicalUnit,
    mut transfer: Transfer,
    patience: fn(&LogicalUnit) -> Patience<'_>,
) -> Answer {
    let (number, completion) = unit.execute_in_order(&mut transfer, patience(&unit)).await?;
    Ok((number, completion.data))
}

fn end_of(answer: &Answer) -> End<'_> {
    let error = match answer {
        Ok((number, data)) => return End::Good(*number, data),
        Err(error) => error,
    };
    let sense = error.sense().map(End::Check);
    sense.or_else(|| error.status().map(End::Status)).unwrap_or(End::NoAnswer)
}
