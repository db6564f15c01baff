//! Limits the retries of a command within its session: how many, and for how long. What is retried:
//! [`iscsi_multipath::requests::disposition`]; the table is in the crate documentation.

use std::time::Duration;

use iscsi_multipath::requests::disposition::{Disposition, Facts, Scope, dispose};
use iscsi_multipath::requests::end::End;
use iscsi_pdu::scsi::AccessState;
use tokio::time::Instant;

use crate::options::back_off::BackOff;

/// Number of pauses after which a method of a session or a unit stops retrying: about five seconds by default.
const MAX_PAUSES: u32 = 11;
/// Most retries of a command after UNIT ATTENTION conditions.
pub(crate) const MAX_ATTENTIONS: u32 = 8;
/// How long a disk retries a command that ends in ABORTED COMMAND, or whose data arrives damaged: the command
/// itself may be the cause.
pub(crate) const ABORTED_LIMIT: Duration = Duration::from_secs(5);
/// How long a method of a session or a unit waits while a port changes its state, if the unit does not report
/// how long that may take (IMPLICIT TRANSITION TIME, SPC-4 §6.37).
pub(crate) const TRANSITION_LIMIT: Duration = Duration::from_secs(60);

/// Consequence of the result of a command within its session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// No retry: the command has succeeded, or failed.
    Final,
    /// The command is sent again in its form of ten bytes.
    Shorter,
    /// The command is sent again after this pause.
    Again(Duration),
}

/// Limits the retries of a command within its session.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    options: &'a BackOff,
    /// Number of retries after UNIT ATTENTION. Several conditions may be pending in a unit; after
    /// [`MAX_ATTENTIONS`] of them the command fails.
    attentions: u32,
    pauses: u32,
    /// Whether the command is retried, after pauses, while the unit is busy.
    waits: bool,
    /// How long a port may take to change its state.
    transition: Duration,
    /// Time at which the wait for the port began; `None` before it.
    transition_since: Option<Instant>,
}

impl<'a> Patience<'a> {
    /// Creates the retry rules for a unit that is used without a disk.
    pub(crate) const fn of_a_unit(options: &'a BackOff, transition: Duration) -> Self {
        Self { options, attentions: 0, pauses: 0, waits: true, transition, transition_since: None }
    }

    /// Creates the retry rules for a path of a disk, without pauses: the disk retries, perhaps over another
    /// path.
    pub(crate) const fn of_a_path(options: &'a BackOff) -> Self {
        Self { waits: false, ..Self::of_a_unit(options, Duration::ZERO) }
    }

    /// Decides what follows from the result of one attempt.
    pub(crate) fn judge(&mut self, end: End, can_shorten: bool) -> Verdict {
        let facts = Facts {
            can_shorten,
            attentions_left: self.attentions < MAX_ATTENTIONS,
            pauses_left: self.waits && self.pauses < MAX_PAUSES,
            transition_left: end == End::Port(AccessState::Transitioning) && self.may_transition(),
            ..Facts::default()
        };
        match dispose(end, Scope::Unit, &facts) {
            Disposition::RetryImmediately => {
                self.attentions = self.attentions.saturating_add(1);
                Verdict::Again(Duration::ZERO)
            }
            Disposition::RetryShorter => Verdict::Shorter,
            Disposition::Pause(_) => Verdict::Again(self.next_pause()),
            Disposition::Complete
            | Disposition::Fail
            | Disposition::FailByReservation
            | Disposition::Failover
            | Disposition::SetPathAside
            | Disposition::NextPath => Verdict::Final,
        }
    }

    /// Returns whether the port has time left to change its state, within the time that the unit reports (SPC-4
    /// §5.11.2.7).
    fn may_transition(&mut self) -> bool {
        let since = *self.transition_since.get_or_insert_with(Instant::now);
        let pause = self.options.pauses().after(self.pauses).next();
        since.elapsed().saturating_add(pause) <= self.transition
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.options.pauses().after(self.pauses).next();
        self.pauses = self.pauses.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_PAUSE: Duration = Duration::from_millis(10);

    fn retry() -> BackOff {
        BackOff::new(FIRST_PAUSE, Duration::from_secs(1))
    }

    fn first(end: End) -> Verdict {
        Patience::of_a_unit(&retry(), Duration::ZERO).judge(end, true)
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        for end in [End::Good, End::ReservationConflict, End::Refused, End::TaskAborted] {
            assert_eq!(first(end), Verdict::Final, "{end:?}");
        }
        for end in [End::BecomingReady, End::AbortedCommand, End::Busy] {
            assert_eq!(first(end), Verdict::Again(FIRST_PAUSE), "{end:?}");
        }
        assert_eq!(first(End::Attention), Verdict::Again(Duration::ZERO));
        assert_eq!(first(End::UnknownCommand), Verdict::Shorter);
    }

    #[test]
    fn a_unit_is_waited_for_some_seconds_and_a_path_not_at_all() {
        let options = retry();
        let mut patience = Patience::of_a_unit(&options, Duration::ZERO);
        let mut waited = Duration::ZERO;
        while let Verdict::Again(pause) = patience.judge(End::Busy, true) {
            waited += pause;
        }
        assert!((4..7).contains(&waited.as_secs()), "{waited:?}");
        let mut attends = || patience.judge(End::Attention, true) != Verdict::Final;
        assert_eq!((0..20).filter(|_| attends()).count(), 8);
        let mut path = Patience::of_a_path(&options);
        assert_eq!(path.judge(End::Busy, true), Verdict::Final);
        assert_eq!(path.judge(End::Attention, true), Verdict::Again(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_changes_its_state_is_waited_for_as_long_as_the_unit_says() {
        let (options, limit) = (retry(), Duration::from_secs(30));
        let changing = End::Port(AccessState::Transitioning);
        let mut patience = Patience::of_a_unit(&options, limit);
        let begun = Instant::now();
        while let Verdict::Again(pause) = patience.judge(changing, true) {
            tokio::time::sleep(pause).await;
        }
        let waited = begun.elapsed();
        assert!(waited <= limit && waited + options.max_pause > limit, "{waited:?}");
        assert_eq!(Patience::of_a_path(&options).judge(changing, true), Verdict::Final);
    }

    #[test]
    fn pauses_are_those_of_the_options() {
        let millis = Duration::from_millis;
        let options = BackOff::new(millis(100), millis(250));
        let mut patience = Patience::of_a_unit(&options, Duration::ZERO);
        let verdicts = [(); 4].map(|()| patience.judge(End::Busy, true));
        assert_eq!(verdicts, [100, 200, 250, 250].map(|pause| Verdict::Again(millis(pause))));
    }
}
