//! How a command is sent again that its unit does not take now.

use std::time::Duration;

use crate::options::range::MAX_TIME;
use crate::options::setters::setters;

/// How a command is sent again that its unit does not take now; the table in the
/// [crate documentation](crate#what-is-tried-again) says which ones are. Values beyond their range
/// count as its nearest end.
///
/// How long a [`Disk`](crate::Disk) goes on is for [`Options::patience`](crate::Options::patience).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RetryOptions {
    /// The pause before the second try, 1 ms to 1 day. Each one after it is twice as long as the one
    /// before.
    pub first_pause: Duration,
    /// No pause is longer; at least [`first_pause`](Self::first_pause), up to 1 day. Sessions that
    /// end soon after each other are opened anew after these pauses, too.
    pub max_pause: Duration,
    /// After how many pauses a method of [`Session`](crate::Session) or
    /// [`LogicalUnit`](crate::LogicalUnit) gives up; 0 sends each command once.
    pub max_pauses: u32,
    /// How many UNIT ATTENTIONs in a row a command is sent again after, at once.
    pub max_attentions: u32,
    /// How long a [`Disk`](crate::Disk) repeats a command that ends in ABORTED COMMAND, or whose data come damaged, which
    /// may be the command's own fault; [`Options::patience`](crate::Options::patience) counts as well.
    pub aborted_patience: Duration,
    /// How long a method of [`Session`](crate::Session) or [`LogicalUnit`](crate::LogicalUnit) waits while a port
    /// changes its state towards the unit, where the unit does not say how long that may take (IMPLICIT TRANSITION
    /// TIME, SPC-4 §6.37), 0 to 1 day.
    pub transition_patience: Duration,
}

impl Default for RetryOptions {
    /// Pauses from 10 ms to 1 s, of which a unit makes 11, some five seconds in all; 8 UNIT
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

    /// All values within their ranges.
    pub(crate) fn in_range(&self) -> Self {
        let first_pause = self.first_pause.clamp(Duration::from_millis(1), MAX_TIME);
        let transition_patience = self.transition_patience.min(MAX_TIME);
        let max_pause = self.max_pause.clamp(first_pause, MAX_TIME);
        Self { first_pause, max_pause, transition_patience, ..self.clone() }
    }
}
