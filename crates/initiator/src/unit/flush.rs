//! SYNCHRONIZE CACHE over one session, and what it vouches for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use iscsi_multipath::{Blocks, CommandNumber, is_write_failure};
use iscsi_pdu::scsi::{AdditionalSense, Cdb, SenseKey};
use iscsi_session::{Completion, TaskError};
use tokio::time::timeout;
use tracing::Instrument;

use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, SessionCause};
use crate::runtime::Task;
use crate::state::budget::{Budget, Permit};
use crate::state::flushing::Flushing;
use crate::unit::execute::is_refused;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe;
use crate::unit::retry::Patience;
use crate::unit::transfer::Transfer;

/// A unit that has not answered a flush for so long is asked whether it is ready. It is longer than a target may be silent
/// after a NOP-Out, since what is sent puts the end of that off.
const ASK_AFTER: Duration = Duration::from_secs(60);

/// Bytes that a question may have in flight while requests hold the whole budget.
const QUESTION_BYTES: usize = 1 << 10;

impl LogicalUnit {
    /// Flushes the unit's cache: brings all that was written onto the medium (SYNCHRONIZE CACHE).
    /// If the unit does not know the command and reports no volatile cache, nothing is to do.
    ///
    /// Dropping the future does not stop a flush that has begun: the next flush waits for its end.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    ///
    /// [`UnflushedWritesLost`](crate::ErrorKind::UnflushedWritesLost) if earlier writes may be lost: the unit was reset, reports
    /// later that a write has failed (a deferred error), or an earlier flush failed on the medium,
    /// even one of another disk of this initiator. If it is not certain, the error is returned.
    /// Each handle returns it once for each loss, as `fsync` does for each open file: a clone is a
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

    /// Flushes, and finds out whether something was lost: the handles' cursors tell of it. Where this session
    /// cannot know, the unit is asked over that of a witness.
    ///
    /// Once it has its turn it runs to its end, whoever waits for it, and the next one waits until then: one that
    /// is given up might have failed on the medium without a word.
    ///
    /// `permit` is its share of the budget. A flush that has a path to itself must bring one: requests that hold the whole budget may
    /// wait for that path.
    pub(crate) async fn flush_with(
        &self,
        patience: fn(&Self) -> Patience<'_>,
        permit: Option<Arc<Permit>>,
        witness: impl FnOnce() -> Option<Self> + Send + 'static,
    ) -> Result<(), Error> {
        let unit = self.clone();
        let caller = Arc::new(());
        let wanted = Arc::downgrade(&caller);
        let flush =
            async move { unit.synchronize(patience(&unit), permit, witness, &wanted).await };
        let result = Task::detached(flush.in_current_span()).await;
        drop(caller);
        result
    }

    async fn synchronize(
        &self,
        patience: Patience<'_>,
        permit: Option<Arc<Permit>>,
        witness: impl FnOnce() -> Option<Self>,
        wanted: &Weak<()>,
    ) -> Result<(), Error> {
        let profile = self.profile().await?;
        if profile.write_cache != Some(false) {
            self.state.found_cache();
        }
        let cdb = Blocks(&profile.capacity).flush();
        let mut transfer = Transfer::query(cdb, 0).with_proof();
        // Reserve before waiting for the turn: the flush that has the turn may hold the only path, and requests that hold the
        // budget may wait for that path.
        let permit = match permit {
            Some(permit) => permit,
            None => Arc::new(self.reserve(0).await?),
        };
        transfer.set_permit(Arc::clone(&permit));
        let mut flush = Flushing::begin(&self.state).await;
        if wanted.strong_count() == 0 {
            return Err(SessionCause::Task {
                request: transfer.name(),
                cause: TaskError::Withdrawn,
            }
            .into());
        }
        match self.flush_and_ask(&mut transfer, patience, &permit).await {
            Ok((number, _)) => {
                flush.answered();
                self.hear_all_before(number).await;
            }
            Err(error)
                if is_unsupported(&error) && self.has_no_cache(profile.write_cache).await? =>
            {
                let span = self.session.span();
                tracing::debug!(parent: span, lun = %self.lun, "the unit has no cache to flush");
            }
            Err(error) => {
                if error.sense().is_some_and(|sense| is_write_failure(sense.key)) {
                    flush.failed();
                }
                return Err(error);
            }
        }
        let mut witness = if flush.needs_witness() { witness() } else { None };
        if let Some(other) = &witness
            && !(flush.is_known_to(&other.state) && other.is_told_of_resets(Some(permit)).await)
        {
            witness = None;
        }
        flush.ended(witness.as_ref().map(|witness| &*witness.state));
        Ok(())
    }

    /// Sends the flush. While it takes long, asks the unit whether it is ready, now and then: a unit whose commands another
    /// initiator has cleared without a status reports that to a later command only, and the flush would wait for its time
    /// limit.
    async fn flush_and_ask(
        &self,
        transfer: &mut Transfer,
        patience: Patience<'_>,
        permit: &Arc<Permit>,
    ) -> Result<(CommandNumber, Completion), Error> {
        let mut flush = Box::pin(self.execute_in_order(transfer, patience));
        let mut asked: Option<Task<()>> = None;
        loop {
            if let Ok(ended) = timeout(ASK_AFTER, flush.as_mut()).await {
                return ended;
            }
            if asked.as_ref().is_none_or(Task::is_finished) {
                let (unit, permit) = (self.clone(), Arc::clone(permit));
                // Detached: the answer may report a reset, so that it must be heard after the flush has ended as well.
                let ask = async move {
                    unit.is_told_of_resets(Some(permit)).await;
                    Ok(())
                };
                asked = Some(Task::detached(ask.in_current_span()));
            }
        }
    }

    /// Whether a unit that does not take a flush has nothing to bring, by what it says of its volatile cache now. It said
    /// that `before`.
    async fn has_no_cache(&self, before: Option<bool>) -> Result<bool, Error> {
        if before == Some(false) && !self.state.lock().durability.has_cache() {
            return Ok(true);
        }
        // It may have been switched on since.
        let unit = self.with_questions(Budget::new(1, QUESTION_BYTES));
        let now = probe::mode(&unit).await?.and_then(|mode| mode.write_cache_enabled());
        Ok(matches!((before, now), (_, Some(false)) | (None, None)))
    }

    /// Lets the unit tell this session of every reset until now. A port that does not serve the unit does
    /// that as well: a unit attention goes before any other CHECK CONDITION (SAM-5 §5.14), so NOT READY says
    /// that none is left. Says whether it is certain that all was told.
    async fn is_told_of_resets(&self, permit: Option<Arc<Permit>>) -> bool {
        let patience = self.patience_of_a_path();
        let mut asked = Transfer::query(Cdb::test_unit_ready(), 0);
        permit.into_iter().for_each(|permit| asked.set_permit(permit));
        let answer = Box::pin(self.execute_in_order(&mut asked, patience)).await;
        let is_answer = match answer {
            Ok(_) => true,
            Err(error) => is_not_ready(&error),
        };
        if is_answer {
            self.hear_all_before(self.state.next_command()).await;
        }
        is_answer
    }

    /// What the unit has told to commands that came before may still be on its way. One that is never
    /// answered may have been told of a reset.
    async fn hear_all_before(&self, number: CommandNumber) {
        let patience = self.session.policy().patience;
        if timeout(patience, self.state.ended_before(number)).await.is_err() {
            self.state.give_up_before(number);
        }
    }
}

/// Whether the unit takes no such command now, and says nothing else.
fn is_not_ready(error: &Error) -> bool {
    error.sense().is_some_and(|sense| sense.key == SenseKey::NotReady && !sense.deferred)
}

/// Whether the unit does not know the command, or a field of it. One that is not there any more knows
/// none, but says something else.
fn is_unsupported(error: &Error) -> bool {
    let unsupported =
        [AdditionalSense::INVALID_COMMAND_OPERATION_CODE, AdditionalSense::INVALID_FIELD_IN_CDB];
    is_refused(error) && error.sense().is_some_and(|sense| unsupported.contains(&sense.additional))
}
