//! Executes one command of a unit: retries it until its result is final, in a form that the unit knows, and only
//! while the session leads to the known unit.
//!
//! Design: `docs/design/commands.md`.

use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iscsi_multipath::requests::end::End;
use iscsi_multipath::{Begun, CommandNumber, GoodEnd};
use iscsi_pdu::scsi::{Cdb, SenseKey};
use iscsi_session::{Command, Completion, Payload, ReadBuffer, TaskError};
use tokio::time::sleep;

use crate::boxed::{BoxFuture, boxed};
use crate::completion::{attention_of, failure_of, sense_of};
use crate::driver::request::RequestId;
use crate::error::{Cause, Error, SessionCause};
use crate::runtime;
use crate::state::attempt::{AttemptReport, Attempted, Requester};
use crate::state::budget::Permit;
use crate::state::range_locks::RangeGuard;
use crate::state::unit_state::{CommandTerms, ExecutedBy, Judged, Listener};
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::recognition::Recognition;
use crate::unit::retry::{Patience, TRANSITION_LIMIT, Verdict};
use crate::unit::transfer::Transfer;

/// A command that has ended with a status.
struct Sent {
    begun: Begun,
    completion: Completion,
    /// Whether a status of GOOD means that the known unit has executed the command. This is uncertain if the
    /// unit has since reported more than one event that may have replaced it: another unit may have taken its
    /// place for a while.
    is_of_this_unit: bool,
}

/// Conditions that must be certain before a command is sent, and before its result counts.
#[derive(Clone, Copy, Debug)]
struct Certainty {
    /// Conditions about the unit that executes the command.
    terms: CommandTerms,
    /// Whether the command must not be sent after another host has ended a registration of the disk.
    membership: bool,
}

impl LogicalUnit {
    /// Sends a command once, without a retry.
    ///
    /// # Errors
    /// With a [status](Error::status), and usually with [sense data](Error::sense), if the unit reports an
    /// error. Without a status if no response came: [`is_of_session`](Error::is_of_session) is true if the
    /// session ended.
    #[doc(alias("CDB", "passthrough"))]
    pub async fn execute(&self, command: Command) -> Result<Completion, Error> {
        self.execute_once(command).await
    }

    fn execute_once(&self, mut command: Command) -> BoxFuture<'_, Result<Completion, Error>> {
        boxed(async move {
            command.lun = self.lun;
            let name = command.cdb.operation_name();
            let written = command.write.as_ref().map_or(0, Payload::len);
            let read = command.read.as_ref().map_or(0, ReadBuffer::len);
            let permit = Arc::new(self.reserve(written + read).await?);
            let mut buffer = command.read.take();
            let has_buffer = buffer.is_some();
            let Sent { begun, completion, is_of_this_unit, .. } = loop {
                let fresh = || has_buffer.then(|| ReadBuffer::later(read, None));
                let mut next = command.clone();
                next.read = buffer.take().or_else(fresh);
                let good = if written > 0 { GoodEnd::Wrote } else { good_end(&next.cdb) };
                let certainty = self.certainty(&next.cdb, good);
                match self.send(|| next, Arc::clone(&permit), None, certainty).await {
                    Err(error) if is_withdrawn(&error) => {}
                    result => break result?,
                }
            };
            if !is_of_this_unit {
                return Err(self.unproven());
            }
            if completion.is_success() {
                return Ok(completion);
            }
            let is_refused = attention_of(&completion).is_some();
            if written > 0 && !is_refused {
                self.state.wrote(&begun);
            }
            Err(failure_of(name, &completion))
        })
    }

    /// Sends a command, with the retries of a unit that is used without a disk.
    pub(super) async fn execute_with_retry(&self, transfer: Transfer) -> Result<Completion, Error> {
        self.execute_with(transfer, self.patience()).await
    }

    /// Returns the retry rules for a unit that is used without a disk.
    pub(super) fn patience(&self) -> Patience<'_> {
        let retry = &self.session.policy().retry;
        let usual = self.state.known().transitions().limit(TRANSITION_LIMIT);
        Patience::of_a_unit(retry, if self.has_other_ports { Duration::ZERO } else { usual })
    }

    /// Returns the retry rules for a unit that is a path of a disk.
    pub(crate) fn patience_of_a_path(&self) -> Patience<'_> {
        Patience::of_a_path(&self.session.policy().retry)
    }

    pub(crate) fn execute_with<'a>(
        &'a self,
        mut transfer: Transfer,
        patience: Patience<'a>,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        boxed(async move {
            runtime::require()?;
            Ok(self.execute_in_order(&mut transfer, patience).await?.1)
        })
    }

    /// Sends a command with retries, within a runtime. Returns the number of the last attempt among the unit's
    /// commands. After a failure the transfer can be sent over another session.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep its arguments twice")]
    pub(crate) fn execute_in_order<'a>(
        &'a self,
        transfer: &'a mut Transfer,
        mut patience: Patience<'a>,
    ) -> impl Future<Output = Result<(CommandNumber, Completion), Error>> + Send + 'a {
        async move {
            loop {
                let error = match self.attempt(transfer).await {
                    Ok(ended) => return Ok(ended),
                    Err(error) => error,
                };
                match patience.judge(error.end(), transfer.can_shorten()) {
                    Verdict::Final => return Err(self.explain(transfer, error).await),
                    Verdict::Shorter => {
                        transfer.shorten();
                    }
                    Verdict::Again(pause) => {
                        self.session.count_retry();
                        sleep(pause).await;
                    }
                }
            }
        }
    }

    /// Sends a command once, and returns its number among the unit's commands. The command is sent again only if
    /// it was withdrawn before it was sent, or if another unit may have executed it. After a failure the caller
    /// can send the transfer again, over any session.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep its arguments twice")]
    pub(crate) fn attempt<'a>(
        &'a self,
        transfer: &'a mut Transfer,
    ) -> impl Future<Output = Result<(CommandNumber, Completion), Error>> + Send + 'a {
        async move {
            if self.state.known().is_unknown_form(transfer.operation_code()) {
                transfer.shorten();
            }
            let permit = match transfer.permit() {
                Some(permit) => permit,
                None => Arc::new(self.reserve(transfer.len()).await?),
            };
            loop {
                let extent = transfer.extent();
                let certainty = self.certainty_of(transfer);
                let command = || transfer.command(self.lun);
                let permit = Arc::clone(&permit);
                let sent = self.send(command, permit, extent, certainty).await;
                // `sent` is passed by value: if its parts were borrowed here, the future would keep room for
                // them.
                if let Some(ended) = self.conclude(transfer, sent) {
                    return ended;
                }
            }
        }
    }

    /// Returns the result of an attempt; `None` if the command is to be sent again immediately.
    fn conclude(
        &self,
        transfer: &mut Transfer,
        sent: Result<Sent, Error>,
    ) -> Option<Result<(CommandNumber, Completion), Error>> {
        let Sent { begun, completion, is_of_this_unit } = match sent {
            Ok(sent) => sent,
            Err(error) if is_withdrawn(&error) => return None,
            Err(error) => return Some(Err(error)),
        };
        if !is_of_this_unit {
            transfer.restore(completion.data);
            self.session.count_retry();
            return None;
        }
        let sense = sense_of(&completion);
        if completion.is_success() {
            if let Some(sense) = sense {
                let (span, name) = (self.session.span(), transfer.name());
                tracing::debug!(parent: span, command = name, "the unit succeeded with effort: {sense}");
            }
            return Some(Ok((begun.number, completion)));
        }
        if End::of_completion(&completion) == End::UnknownCommand {
            self.state.lock().identity.unknown_commands.add(transfer.operation_code());
            let (span, name) = (self.session.span(), transfer.name());
            tracing::debug!(parent: span, command = name, "the unit does not know this form");
        }
        let error = self.state.failure_of(self.lun, transfer.name(), &completion);
        transfer.restore(completion.data);
        Some(Err(error))
    }

    /// Returns the conditions that must be certain for a transfer.
    fn certainty_of(&self, transfer: &Transfer) -> Certainty {
        let mut certainty = self.certainty(transfer.cdb(), Self::good_end(transfer));
        certainty.terms.wants_proof = transfer.wants_proof();
        certainty
    }

    /// Returns the conditions that must be certain for a command; `good` is what its success means for
    /// durability.
    fn certainty(&self, cdb: &Cdb, good: GoodEnd) -> Certainty {
        let is_for_known_unit = self.questions.is_none() && !cdb.ignores_unit_attention();
        let synchronizes_cache = cdb.synchronizes_cache();
        let terms =
            CommandTerms { synchronizes_cache, is_for_known_unit, wants_proof: false, good };
        Certainty { terms, membership: is_for_known_unit && cdb.accesses_blocks() }
    }

    /// Sends a command when it is certain which unit receives it. After success, the result also says whether
    /// that was still certain when the command ended.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep its arguments twice")]
    fn send<'a>(
        &'a self,
        command: impl FnOnce() -> Command + Send + 'a,
        permit: Arc<Permit>,
        extent: Option<Arc<RangeGuard>>,
        certainty: Certainty,
    ) -> impl Future<Output = Result<Sent, Error>> + Send + 'a {
        async move {
            let Certainty { terms, membership } = certainty;
            if terms.is_for_known_unit {
                self.recognized().await?;
            }
            if membership {
                self.state.membership.verdict()?;
            }
            let answer = self.session.perform(command, permit, extent, &self.state, terms);
            let (completion, Judged { begun, executed_by, .. }) = answer.await?;
            let is_of_this_unit = match executed_by {
                ExecutedBy::Unknown if completion.is_success() => {
                    self.prove(terms.wants_proof).await?;
                    self.state.end_with_good(&begun, terms.good)
                }
                ExecutedBy::Unknown | ExecutedBy::KnownUnit => true,
                ExecutedBy::AnotherUnit => false,
            };
            Ok(Sent { begun, completion, is_of_this_unit })
        }
    }

    /// Hands a transfer to the session, as one attempt of a disk's request. The result is reported to the request. The identity
    /// of the unit must have been checked before: if another unit may have taken its place since, the command is
    /// withdrawn before it is sent.
    ///
    /// # Errors
    /// If another host has ended a registration of the disk. Then nothing is reported.
    pub(crate) fn hand_over(
        &self,
        transfer: &mut Transfer,
        permit: Arc<Permit>,
        requester: Weak<dyn Requester>,
        mut attempted: Attempted,
    ) -> Result<RequestId, Error> {
        if self.state.known().is_unknown_form(transfer.operation_code()) {
            transfer.shorten();
        }
        let Certainty { terms, membership } = self.certainty_of(transfer);
        if membership {
            self.state.membership.verdict()?;
        }
        attempted.can_shorten = transfer.can_shorten();
        let lun = self.lun;
        let listener = || {
            let report = AttemptReport { requester, attempted, lun };
            Listener::new(Arc::clone(&self.state), terms).reporting(report)
        };
        let extent = transfer.extent();
        Ok(self.session.hand_over(|| transfer.command(lun), permit, extent, listener))
    }

    /// Returns a future to await before a transfer is handed over, which checks the unit's identity; `None` if
    /// the unit is known.
    pub(crate) fn recognition_for(&self, transfer: &Transfer) -> Option<Recognition> {
        // Checked first, because it is nearly always `None`.
        let recognition = self.recognition()?;
        self.certainty_of(transfer).terms.is_for_known_unit.then_some(recognition)
    }

    /// Returns what GOOD means for a transfer that the known unit has executed.
    pub(crate) fn good_end(transfer: &Transfer) -> GoodEnd {
        if transfer.writes() { GoodEnd::Wrote } else { good_end(transfer.cdb()) }
    }

    /// Waits until it is certain which unit has executed a command that ended with GOOD. With `wants_proof` this
    /// must be certain over all connections of the session.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    pub(crate) async fn prove(&self, wants_proof: bool) -> Result<(), Error> {
        self.recognized().await?;
        if wants_proof {
            Box::pin(self.recognized_by_all()).await?;
        }
        Ok(())
    }

    pub(super) async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        match &self.questions {
            Some(budget) => budget.reserve(bytes).await,
            None => self.session.reserve(bytes).await,
        }
    }

    /// Returns the error of a command, or the reason that the unit gives after a reservation conflict. Boxed,
    /// because few commands fail.
    pub(crate) fn explain(
        &self,
        transfer: &Transfer,
        error: Error,
    ) -> Pin<Box<dyn Future<Output = Error> + Send + '_>> {
        if transfer.accesses_blocks() {
            Box::pin(self.explain_conflict(error))
        } else {
            Box::pin(ready(error))
        }
    }
}

/// Returns what GOOD means for a command that changes no blocks.
fn good_end(cdb: &Cdb) -> GoodEnd {
    if cdb.ignores_unit_attention() { GoodEnd::SaysNothing } else { GoodEnd::NoReset }
}

/// Returns whether the command was withdrawn before it was sent.
fn is_withdrawn(error: &Error) -> bool {
    matches!(error.cause(), Cause::Session(SessionCause::Task { cause: TaskError::Withdrawn, .. }))
}

/// Returns whether the unit refuses the command in this form (ILLEGAL REQUEST).
pub(crate) fn is_refused(error: &Error) -> bool {
    error.sense().is_some_and(|sense| sense.key == SenseKey::IllegalRequest)
}
