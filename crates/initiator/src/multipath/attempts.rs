//! The attempts of one request of a disk: what it has been through ([`History`]), what is reported of it, and its pauses.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::paths::Requirements;
use iscsi_multipath::requests::history::{AfterLoss, History};
use tokio::time::{Instant, timeout};

use crate::error::{Consequence, Error, of_blocks};
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, now};
use crate::multipath::report::{Report, Wait};
use crate::unit::retry::answer_of;

/// The attempts of one request.
pub(super) struct Attempts<'a, C: Carrier> {
    paths: &'a Paths<C>,
    /// How often a port had been found in another state when the last attempt began.
    access_changes: u64,
    /// How the attempts before have failed; most requests succeed at the first attempt.
    failures: Option<Box<Failures>>,
}

#[derive(Default)]
struct Failures {
    history: History<Error>,
    /// The unit does not take the request: the report, and the limit that it names.
    held: Option<(Wait, Duration)>,
    /// The report of the suspicion that the request ends sessions.
    suspicion: Option<Wait>,
}

impl<'a, C: Carrier> Attempts<'a, C> {
    pub(super) const fn new(paths: &'a Paths<C>) -> Self {
        Self { paths, access_changes: 0, failures: None }
    }

    fn failures(&mut self) -> &mut Failures {
        self.failures.get_or_insert_default()
    }

    fn history(&self) -> Option<&History<Error>> {
        self.failures.as_deref().map(|failures| &failures.history)
    }

    /// An attempt begins, and a port had been found in another state this often.
    pub(super) const fn begin(&mut self, access_changes: u64) {
        self.access_changes = access_changes;
    }

    /// Whether another port is tried immediately if one refuses the request.
    pub(super) fn refusals_left(&self) -> bool {
        self.history().is_none_or(History::refusals_left)
    }

    /// A port has refused the request.
    pub(super) fn count_refusal(&mut self) {
        self.failures().history.count_refusal();
    }

    /// What the request asks of its path.
    pub(super) fn requirements(&self) -> Requirements {
        Requirements { avoid: None, is_alone: self.history().is_some_and(History::is_suspect) }
    }

    /// One of two copies has ended in this way. The other one decides about the request.
    pub(super) fn note(&mut self, error: Error) {
        if error.may_have_executed() {
            self.failures().history.may_have_executed(error);
        }
    }

    /// Waits until the request is worth another attempt, as the unit does not take it now.
    ///
    /// # Errors
    /// The same error when that has gone on for as long as it may; that of an earlier attempt, if the request may have been
    /// executed.
    pub(super) async fn pause(&mut self, error: Error, limit: Duration) -> Result<(), Error> {
        let (paths, seen) = (self.paths, self.access_changes);
        let failures = self.failures();
        if error.may_have_executed() {
            failures.history.may_have_executed(error.clone());
        } else {
            failures.history.answered();
            failures.suspicion = None;
        }
        let answers = format!("the unit answers {}", answer_of(&error));
        if failures.held.as_ref().is_none_or(|(_, held_limit)| *held_limit != limit) {
            let wait = paths.report().wait(answers.clone(), Some(limit));
            failures.held = Some((wait, limit));
        }
        let policy = paths.policy();
        let pauses = policy.retry.pauses();
        let Some(pause) = failures.history.pause(pauses, limit, policy.patience, now()) else {
            return Err(failures.history.take_executed().unwrap_or(error));
        };
        if let Some((wait, _)) = &failures.held {
            wait.say(answers);
        }
        // A port that is found in another state may take it now.
        if timeout(pause, paths.access_changes_beyond(seen)).await.is_ok() {
            failures.history.shorten_pauses();
        }
        Ok(())
    }

    /// The next attempt waited for the class of the request.
    pub(super) fn waited_in_class(&mut self, since: Instant) {
        if let Some(failures) = self.failures.as_deref_mut() {
            failures.history.waited_in_class(since.elapsed());
        }
    }

    /// A session was lost under the request, or a connection. Reports name the command and its blocks.
    ///
    /// # Errors
    /// When another attempt is of no use.
    pub(super) fn lost(
        &mut self,
        (command, blocks): (&'static str, Option<Range<u64>>),
        error: Error,
        was_alone: bool,
        goes_on: bool,
    ) -> Result<(), Error> {
        let paths = self.paths;
        let plain_losses = paths.lock().paths.plain_losses();
        let failures = self.failures();
        failures.held = None;
        let was_sent = error.may_have_executed();
        let next = failures.history.lost(was_sent, was_alone, plain_losses);
        if let AfterLoss::EndsSessions(times) = next {
            return Err(Consequence::EndsSessions { command, blocks, times, cause: error }.into());
        }
        if was_sent {
            failures.report_suspicion(paths.report(), command, blocks.as_ref(), &error);
            failures.history.may_have_executed(error.clone());
        }
        if goes_on && next == AfterLoss::Retry {
            return Ok(());
        }
        Err(failures.history.take_executed().unwrap_or(error))
    }

    /// The error for the request, when nothing goes any more.
    pub(super) fn end(&mut self, end: Error) -> Error {
        let failures = self.failures.as_deref_mut();
        match failures.and_then(|failures| failures.history.take_executed()) {
            Some(lost) => end.after_loss(lost),
            None => end,
        }
    }
}

impl Failures {
    /// Reports a suspicion: the same of all requests that are under it, until one was alone on a session.
    fn report_suspicion(
        &mut self,
        report: &Arc<Report>,
        command: &'static str,
        blocks: Option<&Range<u64>>,
        error: &Error,
    ) {
        let alone = self.history.ended_alone();
        if alone == 0 {
            if self.history.is_suspect() {
                let text = "requests that were in flight on several sessions in a row that were \
                            lost are sent alone";
                self.suspicion = Some(report.wait(text.to_owned(), None));
            }
            return;
        }
        let blocks = of_blocks(blocks);
        let sessions = if alone == 1 { "session that was" } else { "sessions that were" };
        let text = format!("{command}{blocks} was alone on {alone} {sessions} lost: {error}");
        if alone == 1 {
            report.note(text.clone());
        }
        match &self.suspicion {
            Some(wait) => wait.say(text),
            None => self.suspicion = Some(report.wait(text, None)),
        }
    }
}
