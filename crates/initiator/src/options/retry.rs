//! How a command is sent again that its unit does not take now.

use std::time::Duration;

use iscsi_multipath::reconnect::BackOff;

use crate::options::range::MAX_TIME;
use crate::options::setters::setters;

/// Options for retries of commands that a unit cannot take now: pauses and limits. Values outside of
/// their range count as the nearest end.
///
/// The table in the [crate documentation](crate#what-is-retried) lists what is retried.
///
/// [`Options::patience`](crate::Options::patience) limits how long a [`Disk`](crate::Disk) retries.
#[doc(alias = "backoff")]
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RetryOptions {
    /// Pause before the first retry, 1 ms to 1 day. Each later pause is twice as long as the one
    /// before.
    pub first_pause: Duration,
    /// The longest pause, at least [`first_pause`](Self::first_pause), up to 1 day. These pauses
    /// also apply between reconnects of sessions that end soon after each other.
    pub max_pause: Duration,
    /// Number of pauses after which a method of [`Session`](crate::Session) or
    /// [`LogicalUnit`](crate::LogicalUnit) gives up; 0 sends each command once.
    pub max_pauses: u32,
    /// Number of UNIT ATTENTIONs in a row after which a command is retried immediately.
    pub max_attentions: u32,
    /// Time limit within which a [`Disk`](crate::Disk) retries a command that ends in ABORTED COMMAND, or whose
    /// data arrives damaged, because the command itself may be the cause.
    /// [`Options::patience`](crate::Options::patience) applies as well.
    pub aborted_patience: Duration,
    /// Time limit within which a method of [`Session`](crate::Session) or [`LogicalUnit`](crate::LogicalUnit)
    /// waits while a port changes its state towards the unit, 0 to 1 day. It applies if the unit
    /// does not report how long that may take (IMPLICIT TRANSITION TIME, SPC-4 §6.37).
    #[doc(alias = "ALUA")]
    pub transition_patience: Duration,
}

impl Default for RetryOptions {
    /// Pauses from 10 ms to 1 s, 11 of them for a unit, about five seconds in total; 8 UNIT
    /// ATTENTIONs; 5 s after ABORTED COMMAND; 60 s while a port changes its state.
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(10),
            max_pause: Duration::from_secs(1),
            max_pauses: 11,
            max_attentions: 8,
            aborted_patience: Duration::from_secs(5),
            transition_patience: Duration::from_secs(60),
        }
    }
}

impl RetryOptions {
    setters! {
        with_first_pause(first_pause: Duration),
        with_max_pause(max_pause: Duration),
        with_max_pauses(max_pauses: u32),
        with_max_attentions(max_attentions: u32),
        with_aborted_patience(aborted_patience: Duration),
        with_transition_patience(transition_patience: Duration),
    }

    /// The pauses between the retries.
    pub(crate) const fn back_off(&self) -> BackOff {
        BackOff::new(self.first_pause, self.max_pause)
    }

    /// All values within their ranges.
    pub(crate) fn in_range(&self) -> Self {
        let first_pause = self.first_pause.clamp(Duration::from_millis(1), MAX_TIME);
        let transition_patience = self.transition_patience.min(MAX_TIME);
        let max_pause = self.max_pause.clamp(first_pause, MAX_TIME);
        Self { first_pause, max_pause, transition_patience, ..self.clone() }
    }
}
