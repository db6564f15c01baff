//! Reports that the unit does not take a request, and that a request may be what ends sessions.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::requests::{Failure, Report as Reported};

use crate::error::{Consequence, Error};
use crate::events::disk_event::DiskEvent;
use crate::events::waiting::WaitCause;
use crate::multipath::report::{Report, Wait};

/// Readable description of a request, and the reports that last until the request ends.
pub(super) struct RequestReport {
    report: Arc<Report>,
    command: &'static str,
    blocks: Option<Range<u64>>,
    /// The report that the unit does not take the request, and the time limit that the report names.
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
            Reported::Held(error, limit) => self.hold(error, limit),
            Reported::Released => self.held = None,
            Reported::SentAlone => {
                self.suspicion = Some(self.report.wait(WaitCause::SentAlone, None));
            }
            Reported::WasAlone(times, error) => self.suspect(times, error),
        }
    }

    fn hold(&mut self, error: Error, limit: Duration) {
        if !error.may_have_executed() {
            self.suspicion = None;
        }
        let cause = WaitCause::UnitRefuses { error };
        match &self.held {
            Some((wait, held_limit)) if *held_limit == limit => wait.set_cause(cause),
            Some(_) | None => self.held = Some((self.report.wait(cause, Some(limit)), limit)),
        }
    }

    /// Reports that `sessions` sessions in a row were lost while this request was alone on them.
    fn suspect(&mut self, sessions: u32, error: Error) {
        let (command, blocks) = (self.command, self.blocks.clone());
        if sessions == 1 {
            let (blocks, error) = (blocks.clone(), error.clone());
            self.report.add_note(DiskEvent::EndsSessions { command, blocks, sessions, error });
        }
        let cause = WaitCause::EndsSessions { command, blocks, sessions, error };
        match &self.suspicion {
            Some(wait) => wait.set_cause(cause),
            None => self.suspicion = Some(self.report.wait(cause, None)),
        }
    }

    /// Returns the error of a request that has failed.
    pub(super) fn error_of(&self, failure: Failure<Error>) -> Error {
        match failure {
            Failure::Attempt(error) | Failure::Reservation(error) | Failure::Refused(error) => {
                error
            }
            Failure::EndsSessions { times, cause } => {
                let (command, blocks) = (self.command, self.blocks.clone());
                Error::from(Consequence::EndsSessions { command, blocks, times, cause })
            }
            Failure::NotRetried { lost, why } => why.after_loss(lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::Status;
    use iscsi_session::{SessionError, TransportError};

    use super::*;
    use crate::error::{SessionCause, SessionFailure, UnitCause};

    fn lost() -> Error {
        Error::from(SessionCause::Ended(SessionFailure {
            portal: "192.0.2.1:3260".to_owned(),
            cause: SessionError::Transport(TransportError::Closed),
            may_have_executed: true,
        }))
    }

    fn request() -> (Arc<Report>, RequestReport) {
        let report = Arc::new(Report::default());
        let request = RequestReport::new(&report, "READ (16)", Some(7..8));
        (report, request)
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_the_unit_shows_with_its_limit_while_it_lasts() {
        let (report, mut request) = request();
        let busy = || Error::from(UnitCause::Status { command: "READ (16)", status: Status::BUSY });
        for limit in [5, 300].map(Duration::from_secs) {
            request.apply(Reported::Held(busy(), limit));
            let waits = report.get().waits;
            assert_eq!((waits.len(), &*waits[0].cause.to_string()), (1, "the unit answers BUSY"));
            assert_eq!(waits[0].limit, Some(limit));
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        request.apply(Reported::Held(busy(), Duration::from_secs(300)));
        assert!(report.get().notes[0].to_string().contains("the unit answers BUSY (11 s so far"));
        request.apply(Reported::Released);
        assert!(report.get().waits.is_empty());
    }

    /// While many requests are in flight, the request that ends sessions is unknown, so none is named. It is
    /// named after a session was lost on which it was alone.
    #[tokio::test(start_paused = true)]
    async fn a_suspect_is_named_once_it_was_alone() {
        let (report, mut request) = request();
        request.apply(Reported::SentAlone);
        let status = report.get();
        assert!(status.notes.is_empty() && status.waits.len() == 1, "{status:?}");
        for times in 1..3 {
            request.apply(Reported::WasAlone(times, lost()));
            let notes = report.get().notes;
            let named = "READ (16) of blocks 7 to 7 was alone on 1 session that was lost: ";
            assert!(notes.len() == 1 && notes[0].to_string().starts_with(named), "{notes:?}");
        }
        let waits = report.get().waits;
        assert!(waits.len() == 1 && waits[0].cause.to_string().contains("2 sessions"), "{waits:?}");
        let failure = Failure::EndsSessions { times: 5, cause: lost() };
        let error = request.error_of(failure).to_string();
        assert!(error.contains("READ (16) of blocks 7 to 7 ended"), "{error}");
        assert!(error.contains("the target closed the connection"), "{error}");
        drop(request);
        assert!(report.get().waits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_a_suspicion() {
        let (report, mut request) = request();
        request.apply(Reported::SentAlone);
        request.apply(Reported::Held(lost(), Duration::from_secs(1)));
        assert_eq!(report.get().waits.len(), 2);
        let busy = Error::from(UnitCause::Status { command: "READ (16)", status: Status::BUSY });
        request.apply(Reported::Held(busy, Duration::from_secs(1)));
        assert_eq!(report.get().waits.len(), 1);
    }
}
