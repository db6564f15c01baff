//! What is reported of a request of a disk: that the unit does not take it, and that it may be what ends sessions.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::requests::{Failure, Report as Reported};

use crate::error::{Error, of_blocks};
use crate::multipath::report::{Report, Wait};
use crate::unit::retry::answer_of;

/// A request, for people, and what is reported of it as long as it lasts.
pub(super) struct RequestReport {
    report: Arc<Report>,
    command: &'static str,
    blocks: Option<Range<u64>>,
    /// The unit does not take the request: the report, and the limit that it names.
    held: Option<(Wait, Duration)>,
    /// The report of the suspicion that the request ends sessions.
    suspicion: Option<Wait>,
}

impl RequestReport {
    pub(super) fn new(
        report: &Arc<Report>,
        command: &'static str,
        blocks: Option<Range<u64>>,
    ) -> Self {
        Self { report: Arc::clone(report), command, blocks, held: None, suspicion: None }
    }

    pub(super) fn apply(&mut self, reported: Reported<Error>) {
        match reported {
            Reported::Held(error, limit) => self.hold(&error, limit),
            Reported::Released => self.held = None,
            Reported::SentAlone => {
                let text = "requests that were in flight on several sessions in a row that were \
                            lost are sent alone";
                self.suspicion = Some(self.report.wait(text.to_owned(), None));
            }
            Reported::WasAlone(times, error) => self.suspect(times, &error),
        }
    }

    fn hold(&mut self, error: &Error, limit: Duration) {
        if !error.may_have_executed() {
            self.suspicion = None;
        }
        let answers = format!("the unit answers {}", answer_of(error));
        match &self.held {
            Some((wait, held_limit)) if *held_limit == limit => wait.say(answers),
            Some(_) | None => self.held = Some((self.report.wait(answers, Some(limit)), limit)),
        }
    }

    /// The request was alone on this number of sessions in a row that were lost.
    fn suspect(&mut self, times: u32, error: &Error) {
        let (command, blocks) = (self.command, of_blocks(self.blocks.as_ref()));
        let sessions = if times == 1 { "session that was" } else { "sessions that were" };
        let text = format!("{command}{blocks} was alone on {times} {sessions} lost: {error}");
        if times == 1 {
            self.report.note(text.clone());
        }
        match &self.suspicion {
            Some(wait) => wait.say(text),
            None => self.suspicion = Some(self.report.wait(text, None)),
        }
    }

    /// The error of a request that has failed.
    pub(super) fn error_of(&self, failure: Failure<Error>) -> Error {
        match failure {
            Failure::Attempt(error) | Failure::Reservation(error) | Failure::Refused(error) => {
                error
            }
            Failure::EndsSessions { times, cause } => {
                let (command, blocks) = (self.command, self.blocks.clone());
                Error::EndsSessions { command, blocks, times, cause: Box::new(cause) }
            }
            Failure::NotRetried { lost, why } => why.after_loss(lost),
        }
    }
}
