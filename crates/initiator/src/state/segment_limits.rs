//! Stores the limit of the length of segments to each address, found by trials.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_tuner::SegmentLimit;
use tokio::time::Instant;

/// Minimum pause before the next trial after full segments have passed. Trials are repeated because a path
/// may change.
const AFTER_PASSING: Duration = Duration::from_secs(600);
/// Minimum pause after a trial without a result, because a failed link may work again.
const AFTER_NOTHING: Duration = Duration::from_secs(10);

/// Limits of the paths of an initiator, by the address that the paths lead to. A limit applies to all later
/// connections to that address, of any session, for as long as the initiator exists.
#[derive(Debug, Default)]
pub(crate) struct SegmentLimits(Mutex<HashMap<IpAddr, Path>>);

#[derive(Debug, Default)]
struct Path {
    limit: Option<SegmentLimit>,
    is_being_tried: bool,
    next_trial: Option<Instant>,
}

/// Starts a trial of the path to an address in the background.
pub(crate) type StartTrial = Box<dyn Fn(TrialTurn) + Send>;

/// A running trial of a path. There is at most one per path. If it is dropped before
/// [`has_passed`](Self::has_passed) is called, the trial has no result.
#[derive(Debug)]
pub(crate) struct TrialTurn {
    limits: Arc<SegmentLimits>,
    address: SocketAddr,
    has_passed: bool,
}

impl SegmentLimits {
    /// Returns the limit of segments to an address.
    pub(crate) fn get(&self, address: IpAddr) -> Option<SegmentLimit> {
        self.lock().get(&address)?.limit
    }

    /// Sets the limit of segments to an address.
    pub(crate) fn set_limit(&self, address: IpAddr, limit: SegmentLimit) {
        self.lock().entry(address).or_default().limit = Some(limit);
    }

    /// Begins a trial of the path to an address. Returns `None` while another trial is in progress, and
    /// during the pause after a trial.
    pub(crate) fn begin_trial(self: &Arc<Self>, address: SocketAddr) -> Option<TrialTurn> {
        let mut paths = self.lock();
        let path = paths.entry(address.ip()).or_default();
        let is_due = path.next_trial.is_none_or(|next| next <= Instant::now());
        if path.is_being_tried || !is_due {
            return None;
        }
        path.is_being_tried = true;
        Some(TrialTurn { limits: Arc::clone(self), address, has_passed: false })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Path>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrialTurn {
    /// Returns the address that the trial is for.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records that full segments have arrived.
    pub(crate) const fn has_passed(&mut self) {
        self.has_passed = true;
    }
}

impl Drop for TrialTurn {
    fn drop(&mut self) {
        let pause = if self.has_passed { AFTER_PASSING } else { AFTER_NOTHING };
        let mut paths = self.limits.lock();
        let path = paths.entry(self.address.ip()).or_default();
        (path.is_being_tried, path.next_trial) = (false, Some(Instant::now() + pause));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn address(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_is_tried_once_at_a_time_and_seldom_where_it_passes() {
        let limits = Arc::new(SegmentLimits::default());
        let mut turn = limits.begin_trial(address(1, 3260)).unwrap();
        assert!(limits.begin_trial(address(1, 3261)).is_none(), "the same path");
        assert!(limits.begin_trial(address(2, 3260)).is_some());
        turn.has_passed();
        drop(turn);
        advance(AFTER_PASSING - Duration::from_secs(1)).await;
        assert!(limits.begin_trial(address(1, 3260)).is_none());
        advance(Duration::from_secs(1)).await;
        drop(limits.begin_trial(address(1, 3260)).unwrap());
        assert!(limits.begin_trial(address(1, 3260)).is_none());
        advance(AFTER_NOTHING).await;
        assert!(limits.begin_trial(address(1, 3260)).is_some());
    }

    #[test]
    fn a_limit_is_of_one_address() {
        let limits = SegmentLimits::default();
        let limit = SegmentLimit::new(1200, 1500, None);
        limits.set_limit(address(1, 3260).ip(), limit);
        assert_eq!(limits.get(address(1, 3261).ip()), Some(limit));
        assert_eq!(limits.get(address(2, 3260).ip()), None);
    }
}
