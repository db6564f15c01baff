//! Which ends of a command are worth another try; the table is in the crate documentation.

use std::time::Duration;

use iscsi_pdu::scsi::{AdditionalSense, Sense, SenseKey, Status};
use iscsi_session::TaskError;
use tokio::time::Instant;

use crate::error::Error;
use crate::error::sense::is_becoming_ready;
use crate::options::policy::RequestPolicy;
use crate::options::retry::RetryOptions;

/// What is to be done after a command has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Nothing: that was it, well or not.
    Final,
    /// Try again after this time.
    Again(Duration),
}

/// How often a command has been tried again within its session, and why.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    options: &'a RetryOptions,
    /// Unit attention conditions queue up in a unit; more than the options say in a row are no news.
    attentions: u32,
    pauses: u32,
    /// Whether it is paused at all for a unit that is busy.
    waits: bool,
    /// How long a port may take to change its state.
    transition: Duration,
    /// Since when it is waited for that.
    transition_since: Option<Instant>,
}

impl<'a> Patience<'a> {
    /// That of a unit.
    pub(crate) const fn of_a_unit(options: &'a RetryOptions, transition: Duration) -> Self {
        Self { options, attentions: 0, pauses: 0, waits: true, transition, transition_since: None }
    }

    /// That of a disk's path: whoever has others waits for himself.
    pub(crate) const fn of_a_path(options: &'a RetryOptions) -> Self {
        Self { waits: false, ..Self::of_a_unit(options, Duration::ZERO) }
    }

    /// Judges the end of one try.
    pub(crate) fn judge(&mut self, status: Status, sense: Option<&Sense>) -> Verdict {
        match (status, sense) {
            (Status::BUSY | Status::TASK_SET_FULL, _) => self.pause(),
            (Status::CHECK_CONDITION, Some(sense)) => self.judge_sense(sense),
            _ => Verdict::Final,
        }
    }

    fn judge_sense(&mut self, sense: &Sense) -> Verdict {
        // With either, the command itself was not executed (SPC-4 §4.5.5, SAM-5 §5.14).
        if sense.key == SenseKey::UnitAttention || sense.deferred {
            self.attentions = self.attentions.saturating_add(1);
            let again = self.attentions <= self.options.max_attentions;
            return if again { Verdict::Again(Duration::ZERO) } else { Verdict::Final };
        }
        if sense.additional == AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION {
            return self.wait_for_transition();
        }
        if sense.key == SenseKey::AbortedCommand || is_becoming_ready(sense) {
            return self.pause();
        }
        Verdict::Final
    }

    /// A port that changes its state does so within the time that the unit says (SPC-4 §5.11.2.7).
    fn wait_for_transition(&mut self) -> Verdict {
        let since = *self.transition_since.get_or_insert_with(Instant::now);
        let pause = self.next_pause();
        if since.elapsed().saturating_add(pause) > self.transition {
            return Verdict::Final;
        }
        Verdict::Again(pause)
    }

    fn pause(&mut self) -> Verdict {
        if !self.waits || self.pauses >= self.options.max_pauses {
            return Verdict::Final;
        }
        Verdict::Again(self.next_pause())
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.options.back_off().after(self.pauses).next();
        self.pauses = self.pauses.saturating_add(1);
        pause
    }
}

/// What the unit has answered, for people, in place of taking a command.
pub(crate) fn answer_of(error: &Error) -> String {
    if let Error::Status { status, .. } = error {
        return status.to_string();
    }
    error.sense().map_or_else(|| "nothing in time".to_owned(), ToString::to_string)
}

/// For how long a disk sends a command again that ended so; `None` if another try would end the same
/// way. None of these ends leaves anything that could still be executed.
pub(crate) fn endurance(error: &Error, policy: &RequestPolicy) -> Option<Duration> {
    let sense = error.sense().filter(|sense| !sense.deferred);
    let is_passing = matches!(
        error,
        Error::Status { status: Status::BUSY | Status::TASK_SET_FULL | Status::TASK_ABORTED, .. }
            | Error::Task { cause: TaskError::TimedOut, .. }
    );
    if is_passing || sense.is_some_and(is_becoming_ready) {
        return Some(policy.patience);
    }
    // It may be the command's own fault, or the link damages all that is sent so.
    let is_given_up = sense.is_some_and(|sense| sense.key == SenseKey::AbortedCommand);
    (is_given_up || error.is_damage()).then(|| policy.patience.min(policy.retry.aborted_patience))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use iscsi_pdu::RejectReason;

    use super::*;
    use crate::options::Options;

    fn sense(deferred: bool, key: u8, asc: u8, ascq: u8) -> Sense {
        let code = if deferred { 0x71 } else { 0x70 };
        let bytes = [code, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        Sense::decode(&bytes).unwrap()
    }

    const FIRST_PAUSE: Duration = Duration::from_millis(10);
    const BRIEF: Duration = Duration::from_secs(5);

    fn patient(patience: Duration) -> RequestPolicy {
        Options::default().policy(Some(patience))
    }

    fn first(status: Status, sense: Option<Sense>) -> Verdict {
        Patience::of_a_unit(&RetryOptions::default(), Duration::ZERO).judge(status, sense.as_ref())
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        let check = Status::CHECK_CONDITION;
        assert_eq!(first(Status::GOOD, None), Verdict::Final);
        assert_eq!(first(Status::RESERVATION_CONFLICT, None), Verdict::Final);
        assert_eq!(first(check, None), Verdict::Final);
        assert_eq!(first(check, Some(sense(false, 0x3, 0x11, 0))), Verdict::Final);
        assert_eq!(first(check, Some(sense(false, 0x2, 0x3a, 0))), Verdict::Final);
        assert_eq!(first(check, Some(sense(true, 0x3, 0x0c, 0))), Verdict::Again(Duration::ZERO));
        assert_eq!(first(check, Some(sense(false, 0x6, 0x29, 0))), Verdict::Again(Duration::ZERO));
        assert_eq!(first(check, Some(sense(false, 0x2, 0x04, 1))), Verdict::Again(FIRST_PAUSE));
        assert_eq!(first(check, Some(sense(false, 0xb, 0x47, 3))), Verdict::Again(FIRST_PAUSE));
        assert_eq!(first(Status::BUSY, None), Verdict::Again(FIRST_PAUSE));
        assert_eq!(first(Status::TASK_SET_FULL, None), Verdict::Again(FIRST_PAUSE));
    }

    #[test]
    fn a_disk_puts_up_with_what_passes_for_as_long_as_its_patience_lasts() {
        let long = Duration::from_secs(300);
        let lasts = |error| endurance(&error, &patient(long));
        let status = |status| Error::Status { command: "READ (16)", status };
        let check = |deferred, key, asc, ascq| {
            let sense = Box::new(sense(deferred, key, asc, ascq));
            Error::CheckCondition { command: "READ (16)", sense }
        };
        for passes in [Status::BUSY, Status::TASK_SET_FULL, Status::TASK_ABORTED] {
            assert_eq!(lasts(status(passes)), Some(long));
        }
        for bits in 0..=u8::MAX {
            assert!(lasts(status(Status(bits))).is_none() || status(Status(bits)).is_transient());
        }
        for (key, asc, ascq) in
            [(0x2, 0x04, 0x01), (0x2, 0x04, 0x09), (0x2, 0x04, 0x0a), (0xb, 0x47, 0x03)]
        {
            assert!(check(false, key, asc, ascq).is_transient(), "what is sent again is transient");
        }
        assert_eq!(lasts(check(false, 0x2, 0x04, 0x01)), Some(long));
        assert_eq!(lasts(check(false, 0x2, 0x04, 0x0a)), Some(long));
        assert_eq!(lasts(check(false, 0x2, 0x04, 0x07)), Some(long));
        assert_eq!(lasts(check(false, 0x2, 0x04, 0x04)), None, "what was written before is gone");
        let timed_out = TaskError::TimedOut;
        assert_eq!(lasts(Error::Task { request: "WRITE (16)", cause: timed_out }), Some(long));
        assert_eq!(lasts(check(false, 0xb, 0x47, 0x03)), Some(BRIEF));
        let reason = RejectReason::DATA_DIGEST_ERROR;
        for cause in [TaskError::DataDigest, TaskError::Rejected { reason, header: Bytes::new() }] {
            assert_eq!(lasts(Error::Task { request: "READ (16)", cause }), Some(BRIEF));
        }
        assert_eq!(lasts(status(Status::RESERVATION_CONFLICT)), None);
        assert_eq!(lasts(check(true, 0x2, 0x04, 0x01)), None);
        assert_eq!(lasts(check(false, 0x2, 0x3a, 0)), None);
        assert_eq!(lasts(check(false, 0x3, 0x11, 0)), None);
        assert_eq!(lasts(Error::Closed), None);
        let most = endurance(&check(false, 0xb, 0x47, 0x03), &patient(Duration::from_secs(1)));
        assert_eq!(most, Some(Duration::from_secs(1)));
    }

    #[test]
    fn patience_ends() {
        let options = RetryOptions::default();
        let mut patience = Patience::of_a_unit(&options, Duration::ZERO);
        let mut total = Duration::ZERO;
        while let Verdict::Again(pause) = patience.judge(Status::BUSY, None) {
            assert!(pause <= options.max_pause);
            total += pause;
        }
        assert!((4..6).contains(&total.as_secs()), "{total:?}");
        let attention = sense(false, 0x6, 0x29, 0);
        let tries = (0..100)
            .take_while(|_| {
                patience.judge(Status::CHECK_CONDITION, Some(&attention)) != Verdict::Final
            })
            .count();
        assert_eq!(tries, 8);
        let mut path = Patience::of_a_path(&options);
        assert_eq!(path.judge(Status::BUSY, None), Verdict::Final);
        let again = Verdict::Again(Duration::ZERO);
        assert_eq!(path.judge(Status::CHECK_CONDITION, Some(&attention)), again);
    }

    #[test]
    fn the_options_say_how_often_and_with_what_pauses() {
        let millis = Duration::from_millis;
        let options = RetryOptions::default()
            .with_first_pause(millis(100))
            .with_max_pause(millis(250))
            .with_max_pauses(4)
            .with_max_attentions(1)
            .with_aborted_patience(millis(700));
        let mut patience = Patience::of_a_unit(&options, Duration::ZERO);
        let verdicts: Vec<_> = (0..5).map(|_| patience.judge(Status::BUSY, None)).collect();
        let again = [100, 200, 250, 250].map(|pause| Verdict::Again(millis(pause)));
        assert_eq!(verdicts[..4], again);
        assert_eq!(verdicts[4], Verdict::Final);
        let attention = sense(false, 0x6, 0x29, 0);
        let mut attend = || patience.judge(Status::CHECK_CONDITION, Some(&attention));
        assert_eq!((attend(), attend()), (Verdict::Again(Duration::ZERO), Verdict::Final));
        let aborted = Error::CheckCondition {
            command: "READ (16)",
            sense: Box::new(sense(false, 0xb, 0x47, 0x03)),
        };
        let policy = Options::default().with_retry(options).policy(None);
        assert_eq!(endurance(&aborted, &policy), Some(millis(700)));
    }
}
