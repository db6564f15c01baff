//! Checks that a session still leads to the known unit, when there is a reason to doubt it.

use std::collections::VecDeque;
use std::pin::{Pin, pin};

use bytes::BytesMut;
use iscsi_multipath::Mismatch;
use iscsi_multipath::revalidating::{End, Failure, Proof, ProofStep, Step, Terms};
use tokio::time::Instant;
use tracing::Instrument;

use crate::boxed::boxed;
use crate::error::{Error, UnitCause};
use crate::runtime::{self, Task};
use crate::state::budget::Budget;
use crate::state::revalidating::Asker;
use crate::unit::identity::{mismatch_error, name_within_a_session};
use crate::unit::in_flight::{InFlight, by};
use crate::unit::logical_unit::LogicalUnit;

/// Number of concurrent commands of a check: all are sent together.
const QUESTIONS: usize = 8;
const QUESTION_BYTES: usize = 1 << 20;
/// Number of failed commands whose errors are kept: all commands of one attempt, because one of their errors
/// may be the reason why the check fails.
const MAX_FAILED: usize = 8;

pub(crate) type Recognition = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl LogicalUnit {
    /// Waits until it is certain that the session leads to the known unit.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    pub(crate) async fn recognized(&self) -> Result<(), Error> {
        match self.recognition() {
            Some(recognition) => recognition.await,
            None => Ok(()),
        }
    }

    /// Returns a future that checks the unit's identity; `None` if the unit is known.
    pub(crate) fn recognition(&self) -> Option<Recognition> {
        self.state().needs_revalidation().then(|| self.recognize())
    }

    /// Waits until it is certain that the session leads to the known unit, whatever the unit may have reported
    /// so far on any connection. The connections of a session have no common order: the response of another
    /// unit may arrive over one connection before the unit attention arrives over another.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    pub(super) async fn recognized_by_all(&self) -> Result<(), Error> {
        if !self.session().may_have_several_connections() {
            return Ok(());
        }
        let state = self.state();
        let mut proof = Proof::by_all(self.session().policy().patience);
        loop {
            let step = proof.poll(state.path(), &state.lock(), Instant::now().into_std());
            match step {
                ProofStep::Revalidate => self.recognized().await?,
                ProofStep::AwaitCommands(number) => {
                    let until = proof.poll_timeout().map(Instant::from_std);
                    by(until, state.ended_before(number)).await;
                }
                ProofStep::Proven => return Ok(()),
                ProofStep::Unproven => return Err(self.unproven()),
            }
        }
    }

    /// Checks the unit's identity, even if the unit has reported no reason for a check.
    ///
    /// # Errors
    /// [`UnitCause::DifferentUnits`] or [`UnitCause::BlockSizeChanged`] if it is another unit; this is
    /// permanent. [`UnitCause::UnprovenUnit`], or the error of the last command, if the identity is not
    /// confirmed within [`Options::with_retry_timeout`](crate::Options::with_retry_timeout). Also when the
    /// session ended.
    pub(crate) async fn confirm(&self) -> Result<(), Error> {
        self.state().add_reason();
        self.recognize().await
    }

    /// Returns the error of a command that another unit may have executed.
    pub(super) fn unproven(&self) -> Error {
        let name = self.state().profile.get().map(|known| name_within_a_session(known));
        Error::from(UnitCause::UnprovenUnit {
            portal: self.portal_name(),
            expected: name.map(|name| name.to_string()).unwrap_or_default(),
            why: "it may have been another one while it executed a command".to_owned(),
        })
    }

    /// Checks the unit's identity. The future is boxed, because few requests wait for it, and because the
    /// commands of the check use the same functions. One task sends the commands on behalf of all callers, so
    /// that a caller that does not poll its request delays no other.
    fn recognize(&self) -> Recognition {
        let unit = self.clone();
        Box::pin(async move {
            let Some(terms) = unit.terms() else { return Ok(()) };
            runtime::require()?;
            let state = unit.state();
            let (waiter, asker) = state.revalidating().wait(state.path(), &terms);
            if let Some(asker) = asker {
                let span = unit.session().span().clone();
                drop(Task::detached(unit.clone().ask_for_all(asker, terms).instrument(span)));
            }
            waiter.answer().await
        })
    }

    /// Returns the terms of a check; `None` before the unit's profile was read.
    fn terms(&self) -> Option<Terms> {
        let known = self.state().profile.get()?;
        let policy = self.session().policy();
        Some(Terms {
            name: name_within_a_session(known),
            capacity: known.capacity,
            retry_timeout: policy.patience,
            pauses: policy.retry.pauses(),
        })
    }

    /// Runs the check by [`Revalidations`](iscsi_multipath::revalidating::Revalidations), as long as a caller
    /// waits for it.
    async fn ask_for_all(self, mut asker: Asker, terms: Terms) -> Result<(), Error> {
        // A separate budget: requests that wait for the result may hold the whole budget of the session.
        let mut asked = self.with_questions(Budget::new(QUESTIONS, QUESTION_BYTES));
        if self.state().known().transitions().has_other_ports() {
            asked = asked.through_one_of_several_ports();
        }
        let left = asker.left();
        let mut in_flight = InFlight::default();
        let mut failed = VecDeque::new();
        loop {
            let mut left = pin!(left.notified());
            // Enabled before the poll, so that no caller that stops waiting after it is missed.
            left.as_mut().enable();
            match asker.poll() {
                Step::Ask(question) => {
                    let (unit, command) = (asked.clone(), question.command);
                    let answer = boxed(async move {
                        let (cdb, len) = command.cdb_and_len();
                        unit.query(cdb, len).await
                    });
                    in_flight.push(question.number, answer);
                }
                Step::Resized(resized) => self.state().report_resized(resized),
                Step::Answer(waiter, result) => {
                    let answer = result.map_err(|why| self.error_of_failure(why, &failed, &terms));
                    asker.answer(waiter, answer);
                }
                Step::Idle => return Ok(()),
                Step::Wait => {
                    let next = async {
                        tokio::select! {
                            biased;
                            answered = in_flight.next() => Some(answered),
                            () = left => None,
                        }
                    };
                    if let Some(Some((number, answer))) = by(asker.poll_timeout(), next).await {
                        asker.on_end(number, end_of(&answer));
                        failed.extend(answer.err().map(|error| (number, error)));
                        failed.drain(..failed.len().saturating_sub(MAX_FAILED));
                    }
                }
            }
        }
    }

    /// Returns the error of a failed check; `failed` has the errors of its commands.
    fn error_of_failure(
        &self,
        failure: Failure,
        failed: &VecDeque<(u32, Error)>,
        terms: &Terms,
    ) -> Error {
        let lun = self.lun();
        match failure {
            Failure::Verdict(verdict) => self.error_of(verdict),
            Failure::Question(number) => {
                let failed = failed.iter().find(|(of, _)| *of == number);
                failed.map_or_else(Error::closed, |(_, error)| error.clone())
            }
            Failure::NoUnit => {
                Error::from(UnitCause::NoSuchUnit { lun, target: self.session().target_url() })
            }
            Failure::NotADisk(device_type) => {
                Error::from(UnitCause::NotABlockDevice { lun, device_type })
            }
            Failure::Format(command, why) => Error::from(UnitCause::Format {
                command: command.cdb_and_len().0.operation_name(),
                why,
            }),
            Failure::Unproven(why) => {
                mismatch_error(Mismatch::Unproven(why), &terms.name, self.portal_name())
            }
        }
    }
}

fn end_of(answer: &Result<BytesMut, Error>) -> End<'_> {
    let error = match answer {
        Ok(data) => return End::Good(data),
        Err(error) => error,
    };
    if let Some(sense) = error.sense() {
        End::Check(sense)
    } else if let Some(status) = error.status() {
        End::Status(status)
    } else if error.is_of_no_unit() {
        End::NoUnit
    } else if error.is_of_session() {
        End::SessionLost
    } else {
        End::NoAnswer
    }
}
