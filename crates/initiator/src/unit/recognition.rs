//! The unit of before, or another one: asked again when there is a reason to doubt it.

use std::pin::Pin;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use crate::error::Error;
use crate::state::budget::Budget;
use crate::state::profile::Profile;
use crate::unit::identity::Identity;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe;
use crate::url::portal_name;

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
        self.state().is_in_doubt().then(|| self.recognize())
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
        let (outstanding, patience) = (&self.state().outstanding, self.session().policy().patience);
        loop {
            let heard = timeout(patience, outstanding.ended_before(outstanding.next())).await;
            heard.map_err(|_| self.unproven())?;
            if !self.state().is_in_doubt() {
                return Ok(());
            }
            self.recognized().await?;
        }
    }

    /// Asks the unit whether it is the one of before, whatever it has told.
    ///
    /// # Errors
    /// [`Error::DifferentUnits`] or [`Error::BlockSizeChanged`] if it is not, for good;
    /// [`Error::UnprovenUnit`], or the end of the question, when nothing has told it for as long as
    /// [`Options::with_retry_timeout`](crate::Options::with_retry_timeout) says; when the session ended.
    pub(crate) async fn confirm(&self) -> Result<(), Error> {
        self.state().doubts.raise();
        self.recognize().await
    }

    /// The error of a command that another unit may have executed.
    pub(super) fn unproven(&self) -> Error {
        let identity = self.state().profile.get().map(|known| Identity::within_a_session(known));
        Error::UnprovenUnit {
            portal: self.session().portal().map(portal_name).unwrap_or_default(),
            expected: identity.map(|identity| identity.to_string()).unwrap_or_default(),
            why: "it may have been another one while it executed a command".to_owned(),
        }
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
            asked.unwrap_or(Err(Error::Closed))
        })
    }

    /// One asks for all: who waits for its turn meanwhile need not ask again.
    async fn ask_for_all(&self) -> Result<(), Error> {
        let Some(known) = self.state().profile.get() else { return Ok(()) };
        let doubts = &self.state().doubts;
        let _turn = doubts.turn().await;
        let policy = self.session().policy();
        let (begun, mut pauses) = (Instant::now(), policy.retry.pauses());
        // What waits for the answer may hold the whole budget of the others.
        let mut unit = self.with_questions(Budget::new(QUESTIONS, QUESTION_BYTES));
        if self.state().across.transitions.have_other_ports() {
            unit = unit.through_one_of_several_ports();
        }
        loop {
            doubts.verdict()?;
            if !doubts.is_any() {
                return Ok(());
            }
            let count = doubts.count();
            match Box::pin(unit.compare(known)).await {
                Ok(()) => doubts.resolve(count),
                Err(error) if is_final(&error) => self.state().found_another(&error),
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
    async fn compare(&self, known: &Profile) -> Result<(), Error> {
        let identity = Identity::within_a_session(known);
        let question = self.state().across.size.ask();
        let (inquiry, found, capacity, mode) = tokio::join!(
            probe::inquiry(self),
            identity.ask(self),
            probe::capacity(self),
            probe::mode(self)
        );
        inquiry?;
        if mode?.and_then(|mode| mode.write_cache_enabled()) != Some(false) {
            self.state().unflushed.found_cache();
        }
        let portal = || self.session().portal().map(portal_name).unwrap_or_default();
        found?.map_err(|doubt| doubt.about(&identity, portal()))?;
        let capacity = capacity?;
        known.capacity.check_block_size(capacity.block_size)?;
        self.state().learn_size(question, &capacity);
        Ok(())
    }
}

/// Whether the unit is known to be another one, or to have its bytes elsewhere.
const fn is_final(error: &Error) -> bool {
    matches!(error, Error::DifferentUnits { .. } | Error::BlockSizeChanged { .. })
}

/// Whether the session leads to nothing that could be asked, for the time being: whoever waits is told,
/// and the next one asks again.
fn is_told_at_once(error: &Error) -> bool {
    let is_gone = matches!(
        error,
        Error::NoSuchUnit { .. } | Error::UnitGone(_) | Error::NotABlockDevice { .. }
    );
    is_gone || error.is_of_session() || error.may_be_of_port()
}
