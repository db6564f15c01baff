//! The unit of before, or another one: asked again when there is a reason to doubt it.

use std::pin::Pin;

use iscsi_multipath::{Mismatch, Profile, Verdict, check_block_size};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use crate::error::{Cause, Error, UnitCause};
use crate::state::budget::Budget;
use crate::unit::identity::{mismatch_error, name_within_a_session};
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe;

/// What the questions may have under way: all at once.
const QUESTIONS: usize = 8;
const QUESTION_BYTES: usize = 1 << 20;

pub(super) type Recognition = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl LogicalUnit {
    /// Waits until it is certain that this is the unit of before.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    pub(crate) async fn recognized(&self) -> Result<(), Error> {
        match self.recognition() {
            Some(recognition) => recognition.await,
            None => Ok(()),
        }
    }

    /// What is to be waited for until that is certain, unless it is.
    pub(super) fn recognition(&self) -> Option<Recognition> {
        self.state().needs_revalidation().then(|| self.recognize())
    }

    /// The same, and waits for whatever the unit may have told by now. Nothing orders the connections of a
    /// session: the answer of another unit may come over one before the unit attention over another.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    pub(super) async fn recognized_by_all(&self) -> Result<(), Error> {
        if !self.session().may_have_several_connections() {
            return Ok(());
        }
        let (state, patience) = (self.state(), self.session().policy().patience);
        loop {
            let heard = timeout(patience, state.ended_before(state.next_command())).await;
            heard.map_err(|_| self.unproven())?;
            if !state.needs_revalidation() {
                return Ok(());
            }
            self.recognized().await?;
        }
    }

    /// Asks the unit whether it is the one of before, whatever it has told.
    ///
    /// # Errors
    /// [`UnitCause::DifferentUnits`] or [`UnitCause::BlockSizeChanged`] if it is not, for good;
    /// [`UnitCause::UnprovenUnit`], or the end of the question, when nothing has told it for as long as
    /// [`Options::with_retry_timeout`](crate::Options::with_retry_timeout) says; when the session ended.
    pub(crate) async fn confirm(&self) -> Result<(), Error> {
        self.state().add_reason();
        self.recognize().await
    }

    /// The error of a command that another unit may have executed.
    pub(super) fn unproven(&self) -> Error {
        let name = self.state().profile.get().map(|known| name_within_a_session(known));
        Error::from(UnitCause::UnprovenUnit {
            portal: self.portal_name(),
            expected: name.map(|name| name.to_string()).unwrap_or_default(),
            why: "it may have been another one while it executed a command".to_owned(),
        })
    }

    /// Boxed, since hardly a request has to wait for it, and since the questions are requests
    /// themselves. They run in a task: a caller who leaves its request alone for a while holds nobody up.
    fn recognize(&self) -> Recognition {
        let unit = self.clone();
        Box::pin(async move {
            // The set ends its task when it is dropped.
            let mut tasks = JoinSet::new();
            let span = unit.session().span().clone();
            tasks.spawn(async move { unit.ask_for_all().await }.instrument(span));
            let asked = tasks.join_next().await.and_then(Result::ok);
            asked.unwrap_or(Err(Error::closed()))
        })
    }

    /// One asks for all: who waits for its turn meanwhile need not ask again.
    async fn ask_for_all(&self) -> Result<(), Error> {
        let state = self.state();
        let Some(known) = state.profile.get() else { return Ok(()) };
        let _turn = state.revalidation_turn().await;
        let policy = self.session().policy();
        let (begun, mut pauses) = (Instant::now(), policy.retry.pauses());
        // What waits for the answer may hold the whole budget of the others.
        let mut unit = self.with_questions(Budget::new(QUESTIONS, QUESTION_BYTES));
        if state.known().transitions().has_other_ports() {
            unit = unit.through_one_of_several_ports();
        }
        loop {
            let Some(asked_at) = state.open_reasons().map_err(|why| self.error_of(why))? else {
                return Ok(());
            };
            match Box::pin(unit.compare(known)).await {
                Ok(Ok(())) => state.recognized(asked_at),
                Ok(Err(verdict)) => state.found_another(verdict),
                Err(error) if is_told_at_once(&error) => return Err(error),
                Err(error) => {
                    let pause = pauses.next();
                    if begun.elapsed().saturating_add(pause) > policy.patience {
                        return Err(error);
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    /// Asks everything by which a unit is known again, at once; and whether it has a volatile cache by now: a
    /// reset may be all that is told of what came before it (SAM-5 §5.14), so also in place of MODE PARAMETERS
    /// CHANGED.
    ///
    /// # Errors
    /// Why nothing is known by that, for the time being.
    async fn compare(&self, known: &Profile) -> Result<Result<(), Verdict>, Error> {
        let name = name_within_a_session(known);
        let question = self.state().ask_size();
        let (inquiry, found, capacity, mode) = tokio::join!(
            probe::inquiry(self),
            self.ask_name(&name),
            probe::capacity(self),
            probe::mode(self)
        );
        inquiry?;
        if mode?.and_then(|mode| mode.write_cache_enabled()) != Some(false) {
            self.state().found_cache();
        }
        match found? {
            Ok(()) => {}
            Err(Mismatch::Other(found)) => {
                return Ok(Err(Verdict::OtherUnit { expected: name.to_string(), found }));
            }
            Err(unproven) => return Err(mismatch_error(unproven, &name, self.portal_name())),
        }
        let capacity = capacity?;
        if let Err(verdict) = check_block_size(&known.capacity, &capacity) {
            return Ok(Err(verdict));
        }
        self.state().learn_size(question, &capacity);
        Ok(Ok(()))
    }
}

/// Whether the session leads to nothing that could be asked, for the time being: whoever waits is told,
/// and the next one asks again.
fn is_told_at_once(error: &Error) -> bool {
    let is_gone = matches!(
        error.cause(),
        Cause::Unit(
            UnitCause::NoSuchUnit { .. }
                | UnitCause::UnitGone(_)
                | UnitCause::NotABlockDevice { .. }
        )
    );
    is_gone || error.is_of_session() || error.may_be_of_port()
}
