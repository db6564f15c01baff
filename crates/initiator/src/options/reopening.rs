//! How a lost session of a disk is reconnected.

use std::time::Duration;

use iscsi_multipath::reconnect::{JitteredBackOff, ReconnectLimits};
use iscsi_session::Entropy;

use crate::options::policy::RequestPolicy;
use crate::options::range::MAX_TIME;
use crate::options::setters::setters;

/// Options for reconnects: when and how often a [`Disk`](crate::Disk) tries to reconnect a lost
/// session. Values outside of their range count as the nearest end.
///
/// The first attempt is made when the target's Time2Wait is over (RFC 7143 §7.4). Each attempt goes
/// to the portal of the lost session, and then to all other portals of the URL until one leads to
/// the unit.
#[doc(alias("reconnect", "ReconnectOptions", "recovery"))]
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReopeningOptions {
    /// The longest pause between the first attempt and the second, 1 ms to 1 day. It doubles with
    /// each attempt.
    #[doc(alias = "backoff")]
    pub first_pause: Duration,
    /// The longest pause between two attempts: at least [`first_pause`](Self::first_pause), up to 1
    /// day.
    pub max_pause: Duration,
    /// Random share of each pause, in percent, 0 to 100, so that sessions which were lost together
    /// do not reconnect in step. With 0 all pauses have their full length.
    pub jitter: u8,
    /// Number of attempts, each at all portals, after which the session is given up, at least 1.
    /// `None` sets no limit but [`Options::patience`](crate::Options::patience), which applies in
    /// any case.
    pub max_tries: Option<u32>,
    /// Whether a disk stays open when its last session could not be reconnected within
    /// [`Options::patience`](crate::Options::patience), as a server needs. Requests then fail, both
    /// those that wait and new ones ([`Error::NotReopened`](crate::Error::NotReopened)), while the
    /// disk continues its attempts until one succeeds.
    ///
    /// With `false`, and if [`max_tries`](Self::max_tries) is set, the disk ends. It also ends in
    /// each case where another attempt is of no use: the target refuses the credentials seven times
    /// over that time, the unit has another size or is another unit, or another host has fenced
    /// this host off.
    #[doc(alias = "queue_if_no_path")]
    pub outlasts_patience: bool,
}

impl Default for ReopeningOptions {
    /// Pauses of up to 1 s at first and 5 s later, half of each random; no limit of attempts; the
    /// disk ends when its patience is over.
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

    /// The pauses between the attempts.
    pub(crate) fn back_off<E: Entropy>(&self, entropy: E) -> JitteredBackOff<E> {
        let Self { first_pause, max_pause, jitter, .. } = self.in_range();
        JitteredBackOff::new(entropy, first_pause, max_pause, jitter)
    }

    /// The limits of the attempts for a session whose requests have this policy.
    pub(crate) fn limits(&self, policy: &RequestPolicy) -> ReconnectLimits {
        let Self { first_pause, max_pause, jitter, max_tries, .. } = self.in_range();
        let (retry_timeout, after_quick_ends) = (policy.patience, policy.retry.back_off());
        ReconnectLimits {
            first_pause,
            max_pause,
            jitter,
            max_tries,
            retry_timeout,
            after_quick_ends,
        }
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
