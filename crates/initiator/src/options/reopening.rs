//! How a lost session of a disk is opened anew.

use std::time::Duration;

use crate::options::range::MAX_TIME;
use crate::options::setters::setters;

/// How a lost session of a [`Disk`](crate::Disk) is opened anew. Values beyond their range count as
/// its nearest end.
///
/// The first try is made when the target's Time2Wait is over (RFC 7143 §7.4). Each try goes to the
/// portal of the lost session, and then to all other portals of the URL until one leads to the unit.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReopeningOptions {
    /// The longest pause between the first try and the second, 1 ms to 1 day. It doubles from try to
    /// try.
    pub first_pause: Duration,
    /// The longest pause of all: at least [`first_pause`](Self::first_pause), up to 1 day.
    pub max_pause: Duration,
    /// How much of each pause is left to chance, percent, 0 to 100: sessions that a target or a line
    /// has lost together shall not come back in step. With 0 all pauses are as long as they may be.
    pub jitter: u8,
    /// After how many tries, each at all portals, the session is given up, at least 1; `None` tries for as long as
    /// [`Options::patience`](crate::Options::patience) says, which counts in any case.
    pub max_tries: Option<u32>,
    /// Whether a disk goes on when its last session has not come back for as long as
    /// [`Options::patience`](crate::Options::patience) says, as a server's should. Requests fail then, those that
    /// wait and those that come ([`Error::NotReopened`](crate::Error::NotReopened)), while the session is tried
    /// on, until it is back. Without it, and where [`max_tries`](Self::max_tries) is there, the disk ends; so it does in
    /// any case where another try is of no use: the target refuses the credentials seven times over that time, or the unit has
    /// another size, or is another one, or another host has fenced this one off.
    pub outlasts_patience: bool,
}

impl Default for ReopeningOptions {
    /// Pauses of up to 1 s at first and 5 s later, half of each left to chance, no limit of tries, and an
    /// end of the disk with its patience.
    fn default() -> Self {
        Self {
            first_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(5),
            jitter: 50,
            max_tries: None,
            outlasts_patience: false,
        }
    }
}

impl ReopeningOptions {
    setters! {
        with_first_pause(first_pause: Duration),
        with_max_pause(max_pause: Duration),
        with_jitter(jitter: u8),
        with_max_tries(max_tries: Option<u32>),
        with_outlasts_patience(outlasts_patience: bool),
    }

    /// All values within their ranges.
    pub(crate) fn in_range(&self) -> Self {
        let first_pause = self.first_pause.clamp(Duration::from_millis(1), MAX_TIME);
        Self {
            first_pause,
            max_pause: self.max_pause.clamp(first_pause, MAX_TIME),
            jitter: self.jitter.min(100),
            max_tries: self.max_tries.map(|tries| tries.max(1)),
            outlasts_patience: self.outlasts_patience && self.max_tries.is_none(),
        }
    }
}
