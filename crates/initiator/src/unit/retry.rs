//! Which ends of a command are worth another try; the table is in the crate documentation.

use std::time::Duration;

use iscsi_pdu::scsi::{AdditionalSense, Sense, SenseKey, Status};
use iscsi_session::TaskError;
use tokio::time::Instant;

use crate::error::Error;
use crate::error::sense::is_becoming_ready;
use crate::options::back_off::BackOff;
use crate::options::policy::RequestPolicy;

/// The pauses after which a method of a session or a unit gives up: about five seconds by default.
const MAX_PAUSES: u32 = 11;
/// UNIT ATTENTIONs in a row after which a command is sent again.
pub(crate) const MAX_ATTENTIONS: u32 = 8;
/// How long a disk sends a command again that ends in ABORTED COMMAND, or whose data arrives damaged: the command itself may
/// be the cause.
const ABORTED_LIMIT: Duration = Duration::from_secs(5);
/// How long a method of a session or a unit waits while a port changes its state, if the unit does not report how long that
/// may take (IMPLICIT TRANSITION TIME, SPC-4 §6.37).
pub(crate) const TRANSITION_LIMIT: Duration = Duration::from_secs(60);

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
    options: &'a BackOff,
    /// Unit attention conditions queue up in a unit; more than [`MAX_ATTENTIONS`] in a row are no news.
    attentions: u32,
    pauses: u32,
    /// Whether it is paused at all for a unit that is busy.
    waits: bool,
    /// How long a port may take to change its state.
    transition: Duration,
    /// Since when it is waited for that.
    transition_since: Option<Instant>,
}

/// Pauses that double, up to a limit.
#[derive(Debug)]
pub(crate) struct Pauses {
    first: Duration,
    max: Duration,
    count: u32,
}

impl<'a> Patience<'a> {
    /// That of a unit.
    pub(crate) const fn of_a_unit(options: &'a BackOff, transition: Duration) -> Self {
        Self { options, attentions: 0, pauses: 0, waits: true, transition, transition_since: None }
    }

    /// That of a disk's path: whoever has others waits for himself.
    pub(crate) const fn of_a_path(options: &'a BackOff) -> Self {
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
            let again = self.attentions <= MAX_ATTENTIONS;
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
        if !self.waits || self.pauses >= MAX_PAUSES {
            return Verdict::Final;
        }
        Verdict::Again(self.next_pause())
    }

    fn next_pause(&mut self) -> Duration {
        let pause = Pauses::new(self.options).after(self.pauses).next();
        self.pauses = self.pauses.saturating_add(1);
        pause
    }
}

impl Pauses {
    pub(crate) const fn new(options: &BackOff) -> Self {
        Self { first: options.first_pause, max: options.max_pause, count: 0 }
    }

    /// Those that come after so many.
    pub(crate) const fn after(self, count: u32) -> Self {
        Self { count, ..self }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.first.saturating_mul(2u32.saturating_pow(self.count));
        self.count = self.count.saturating_add(1);
        pause.min(self.max)
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
    (is_given_up || error.is_damage()).then(|| policy.patience.min(ABORTED_LIMIT))
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

    fn retry() -> BackOff {
        Options::default().advanced.retry_pauses
    }

    fn patient(patience: Duration) -> RequestPolicy {
        Options::default().policy(Some(patience))
    }

    fn first(status: Status, sense: Option<Sense>) -> Verdict {
        Patience::of_a_unit(&retry(), Duration::ZERO).judge(status, sense.as_ref())
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
        let options = retry();
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
    fn the_options_say_with_what_pauses() {
        let millis = Duration::from_millis;
        let pauses = BackOff::new(millis(100), millis(250));
        let mut patience = Patience::of_a_unit(&pauses, Duration::ZERO);
        let verdicts: Vec<_> = (0..12).map(|_| patience.judge(Status::BUSY, None)).collect();
        let again = [100, 200, 250, 250].map(|pause| Verdict::Again(millis(pause)));
        assert_eq!(
            (&verdicts[..4], verdicts[10], verdicts[11]),
            (&again[..], again[3], Verdict::Final)
        );
    }
}
