//! Which ends of a command are worth another try; the table is in the crate documentation.

use std::time::Duration;

use iscsi_pdu::scsi::{Sense, SenseKey, Status};
use iscsi_session::TaskError;

use crate::error::Error;
use crate::error::sense::is_becoming_ready;

/// Unit attention conditions queue up in a unit; more than this in a row are no news.
const MAX_ATTENTIONS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// With these pauses, some five seconds.
const MAX_PAUSES: u32 = 11;
/// The same for a disk.
const BRIEF: Duration = Duration::from_secs(5);

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
pub(crate) struct Patience {
    attentions: u32,
    pauses: Pauses,
    max_pauses: u32,
}

/// Pauses that double, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Pauses(u32);

impl Patience {
    /// That of a unit: for some seconds.
    pub(crate) fn of_a_unit() -> Self {
        Self { attentions: 0, pauses: Pauses::default(), max_pauses: MAX_PAUSES }
    }

    /// That of a disk's path: whoever has others waits for himself.
    pub(crate) fn of_a_path() -> Self {
        Self { max_pauses: 0, ..Self::of_a_unit() }
    }

    /// Judges the end of one try.
    pub(crate) fn judge(&mut self, status: Status, sense: Option<&Sense>) -> Verdict {
        match (status, sense) {
            (Status::BUSY | Status::TASK_SET_FULL, _) => self.pause(),
            (Status::CHECK_CONDITION, Some(sense)) if !sense.deferred => self.judge_sense(sense),
            _ => Verdict::Final,
        }
    }

    fn judge_sense(&mut self, sense: &Sense) -> Verdict {
        if sense.key == SenseKey::UnitAttention {
            self.attentions += 1;
            let again = self.attentions <= MAX_ATTENTIONS;
            return if again { Verdict::Again(Duration::ZERO) } else { Verdict::Final };
        }
        if sense.key == SenseKey::AbortedCommand || is_becoming_ready(sense) {
            return self.pause();
        }
        Verdict::Final
    }

    fn pause(&mut self) -> Verdict {
        if self.pauses.0 >= self.max_pauses {
            return Verdict::Final;
        }
        Verdict::Again(self.pauses.next())
    }
}

impl Pauses {
    /// Those that come after so many.
    pub(crate) const fn after(count: u32) -> Self {
        Self(count)
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(self.0));
        self.0 += 1;
        pause.min(MAX_PAUSE)
    }
}

/// What the unit has answered, for people, in place of taking a command.
pub(crate) fn answer_of(error: &Error) -> String {
    if let Error::Status { status, .. } = error {
        return status.to_string();
    }
    error.sense().map_or_else(|| "nothing in time".to_owned(), ToString::to_string)
}

/// For how long a disk with so much patience sends a command again that ended so; `None` if another
/// try would end the same way. None of these ends leaves anything that could still be executed.
pub(crate) fn endurance(error: &Error, patience: Duration) -> Option<Duration> {
    let sense = error.sense().filter(|sense| !sense.deferred);
    let is_passing = matches!(
        error,
        Error::Status { status: Status::BUSY | Status::TASK_SET_FULL | Status::TASK_ABORTED, .. }
            | Error::Task { cause: TaskError::TimedOut, .. }
    );
    if is_passing || sense.is_some_and(is_becoming_ready) {
        return Some(patience);
    }
    // It may be the command's own fault.
    let is_given_up = sense.is_some_and(|sense| sense.key == SenseKey::AbortedCommand);
    is_given_up.then(|| patience.min(BRIEF))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sense(deferred: bool, key: u8, asc: u8, ascq: u8) -> Sense {
        let code = if deferred { 0x71 } else { 0x70 };
        let bytes = [code, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        Sense::decode(&bytes).unwrap()
    }

    fn first(status: Status, sense: Option<Sense>) -> Verdict {
        Patience::of_a_unit().judge(status, sense.as_ref())
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        let check = Status::CHECK_CONDITION;
        assert_eq!(first(Status::GOOD, None), Verdict::Final);
        assert_eq!(first(Status::RESERVATION_CONFLICT, None), Verdict::Final);
        assert_eq!(first(check, None), Verdict::Final);
        assert_eq!(first(check, Some(sense(false, 0x3, 0x11, 0))), Verdict::Final);
        assert_eq!(first(check, Some(sense(false, 0x2, 0x3a, 0))), Verdict::Final);
        assert_eq!(first(check, Some(sense(true, 0x6, 0x29, 0))), Verdict::Final);
        assert_eq!(first(check, Some(sense(false, 0x6, 0x29, 0))), Verdict::Again(Duration::ZERO));
        assert_eq!(first(check, Some(sense(false, 0x2, 0x04, 1))), Verdict::Again(FIRST_PAUSE));
        assert_eq!(first(check, Some(sense(false, 0xb, 0x47, 3))), Verdict::Again(FIRST_PAUSE));
        assert_eq!(first(Status::BUSY, None), Verdict::Again(FIRST_PAUSE));
        assert_eq!(first(Status::TASK_SET_FULL, None), Verdict::Again(FIRST_PAUSE));
    }

    #[test]
    fn a_disk_puts_up_with_what_passes_for_as_long_as_its_patience_lasts() {
        let long = Duration::from_secs(300);
        let lasts = |error| endurance(&error, long);
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
        for (key, asc, ascq) in [(0x2, 0x04, 0x01), (0x2, 0x04, 0x0a), (0xb, 0x47, 0x03)] {
            assert!(check(false, key, asc, ascq).is_transient(), "what is sent again is transient");
        }
        assert_eq!(lasts(check(false, 0x2, 0x04, 0x01)), Some(long));
        assert_eq!(lasts(check(false, 0x2, 0x04, 0x0a)), Some(long));
        let timed_out = TaskError::TimedOut;
        assert_eq!(lasts(Error::Task { request: "WRITE (16)", cause: timed_out }), Some(long));
        assert_eq!(lasts(check(false, 0xb, 0x47, 0x03)), Some(BRIEF));
        assert_eq!(lasts(status(Status::RESERVATION_CONFLICT)), None);
        assert_eq!(lasts(check(true, 0x2, 0x04, 0x01)), None);
        assert_eq!(lasts(check(false, 0x2, 0x3a, 0)), None);
        assert_eq!(lasts(check(false, 0x3, 0x11, 0)), None);
        assert_eq!(lasts(Error::Closed), None);
        let most = endurance(&check(false, 0xb, 0x47, 0x03), Duration::from_secs(1));
        assert_eq!(most, Some(Duration::from_secs(1)));
    }

    #[test]
    fn patience_ends() {
        let mut patience = Patience::of_a_unit();
        let mut total = Duration::ZERO;
        while let Verdict::Again(pause) = patience.judge(Status::BUSY, None) {
            assert!(pause <= MAX_PAUSE);
            total += pause;
        }
        assert!((4..6).contains(&total.as_secs()), "{total:?}");
        let attention = sense(false, 0x6, 0x29, 0);
        let tries = (0..100)
            .take_while(|_| {
                patience.judge(Status::CHECK_CONDITION, Some(&attention)) != Verdict::Final
            })
            .count();
        assert_eq!(tries, MAX_ATTENTIONS as usize);
        let mut path = Patience::of_a_path();
        assert_eq!(path.judge(Status::BUSY, None), Verdict::Final);
        let again = Verdict::Again(Duration::ZERO);
        assert_eq!(path.judge(Status::CHECK_CONDITION, Some(&attention)), again);
    }
}
