//! Combines the measurements of several sessions over one link.

use std::collections::HashMap;
use std::time::Duration;

use iscsi_pdu::Cid;
use iscsi_tuner::{Measurement, Rate, RecentLoss, TcpInfo, Tuning, plan};

use crate::driver::measure::reading::Reading;
use iscsi_multipath::PathId;

/// The last reading of each path, and the recent losses of all paths.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Last reading of each path, with the connection that the reading belongs to.
    seen: HashMap<PathId, (Cid, TcpInfo)>,
    loss: RecentLoss,
}

impl Traffic {
    /// Adds a reading of a path, `time` after the previous one. The reading is of the leading connection of the
    /// session. If that connection was lost, another one leads, and its counters are not compared with the
    /// previous reading. Returns whether there is a queue before the link.
    pub(super) fn count(&mut self, id: PathId, cid: Cid, info: &TcpInfo, time: Duration) -> bool {
        let sends_queue = info.has_queue(None, info.delivery_rate.unwrap_or(Rate::MIN));
        let before = self.seen.insert(id, (cid, *info)).filter(|(before, _)| *before == cid);
        let Some((_, before)) = before else { return sends_queue };
        self.loss.count(&before, info, time);
        sends_queue || info.has_queue_of_arrivals(&before, time)
    }

    /// Removes the readings of paths that are gone.
    pub(super) fn keep(&mut self, is_open: impl Fn(PathId) -> bool) {
        self.seen.retain(|id, _| is_open(*id));
    }

    /// Reduces the weight of earlier counts. Call it once per round of readings.
    pub(super) fn fade(&mut self) {
        self.loss.fade();
    }

    /// Returns the share of segments that were lost, 0 to 1.
    pub(super) fn loss(&self) -> f64 {
        self.loss.share()
    }
}

/// Measurements of the link by all sessions together.
#[derive(Debug)]
pub(super) struct SharedLink {
    measurement: Measurement,
    pub(super) round_trip: Duration,
}

impl SharedLink {
    pub(super) fn of(readings: &[Reading]) -> Self {
        let each = || readings.iter().map(Reading::measurement);
        let mut measurement = each().next().copied().unwrap_or_default();
        let shares: Vec<_> = each().map(|measurement| measurement.bandwidth).collect();
        measurement.bandwidth = rate_of_all(&shares);
        // The total rate already includes the effect of losses and of the measures against them.
        measurement.loss = None;
        measurement.peer_window = each().filter_map(|measurement| measurement.peer_window).max();
        let round_trip = measurement.rtt.map(|rtt| rtt.min).unwrap_or_default();
        Self { measurement, round_trip }
    }

    /// Returns how many connections the link needs, according to the measurements so far.
    pub(super) fn planned(&self, reading: Option<&Reading>, tuning: &Tuning) -> u32 {
        reading.map_or(1, |reading| {
            plan(&self.measurement, reading.limits(), tuning).connections.value
        })
    }
}

/// Returns the rate of a link of which each session measures its share. A session without a measurement
/// counts as the mean of the others. Returns `None` if no session has measured.
fn rate_of_all(shares: &[Option<Rate>]) -> Option<Rate> {
    let known: Vec<_> = shares.iter().flatten().map(|share| share.bits_per_second()).collect();
    let mean = known.iter().sum::<u64>().checked_div(known.len() as u64)?;
    Rate::from_bits_per_second(mean.saturating_mul(shares.len() as u64)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);

    fn reading(sent: u32, again: u32, arrived: u32, disordered: u32) -> TcpInfo {
        let mut info = TcpInfo::default();
        info.smoothed_rtt = Some(Duration::from_millis(100));
        info.min_rtt = Some(Duration::from_millis(100));
        info.data_segments_sent = Some(sent);
        info.segments_retransmitted = Some(again);
        info.data_segments_received = Some(arrived);
        info.segments_out_of_order = Some(disordered);
        info.bytes_received = Some(u64::from(arrived) * 1448);
        info
    }

    #[test]
    fn losses_count_on_either_way_and_over_all_paths() {
        let mut traffic = Traffic::default();
        for id in [1, 2] {
            traffic.count(PathId(id), Cid(0), &reading(100, 5, 0, 0), INTERVAL);
        }
        assert!(traffic.loss() < f64::EPSILON, "nothing is known of the time before");
        traffic.count(PathId(1), Cid(0), &reading(600, 10, 0, 0), INTERVAL);
        assert!((traffic.loss() - 0.01).abs() < 1e-9);
        // 200 segments arrive per round trip, so 100 out of order count as one loss.
        traffic.count(PathId(2), Cid(0), &reading(100, 5, 500, 500), INTERVAL);
        assert!((traffic.loss() - 0.01).abs() < 1e-9);
        for _ in 0..100 {
            traffic.fade();
        }
        traffic.count(PathId(1), Cid(0), &reading(2600, 10, 0, 0), INTERVAL);
        assert!(traffic.loss() < 1e-4);
    }

    /// The counters of one connection are not compared with those of another one, because each begins at
    /// zero.
    #[test]
    fn what_one_connection_of_a_session_counts_is_not_compared_with_another_one() {
        let mut traffic = Traffic::default();
        traffic.count(PathId(1), Cid(0), &reading(9000, 90, 9000, 90), INTERVAL);
        assert!(!traffic.count(PathId(1), Cid(1), &reading(1000, 0, 1000, 0), INTERVAL));
        assert!(traffic.loss() < f64::EPSILON, "{}", traffic.loss());
        traffic.count(PathId(1), Cid(1), &reading(1500, 5, 1000, 0), INTERVAL);
        assert!((traffic.loss() - 0.01).abs() < 1e-9);
    }

    /// A queue of arriving data counts as a queue before the link.
    #[test]
    fn what_arrives_queues_as_well() {
        let mut traffic = Traffic::default();
        let queued = |arrived| {
            let mut info = reading(0, 0, arrived, 0);
            info.receive_rtt = Some(Duration::from_millis(150));
            info
        };
        assert!(!traffic.count(PathId(0), Cid(0), &queued(0), INTERVAL));
        assert!(traffic.count(PathId(0), Cid(0), &queued(500), INTERVAL));
        assert!(!traffic.count(PathId(0), Cid(0), &reading(0, 0, 1000, 0), INTERVAL));
    }

    #[test]
    fn a_session_that_is_new_has_a_share_as_the_others() {
        let mbit = |rate: u64| Rate::from_bits_per_second(rate * 1_000_000).ok();
        assert_eq!(rate_of_all(&[mbit(20), mbit(30)]), mbit(50));
        assert_eq!(rate_of_all(&[mbit(20), None, mbit(30), None]), mbit(100));
        assert_eq!(rate_of_all(&[None, None]), None);
        assert_eq!(rate_of_all(&[]), None);
    }

    #[test]
    fn paths_that_are_gone_are_forgotten() {
        let mut traffic = Traffic::default();
        for id in 0..3 {
            traffic.count(PathId(id), Cid(0), &reading(0, 0, 0, 0), INTERVAL);
        }
        traffic.keep(|id| id == PathId(1));
        assert_eq!(traffic.seen.keys().collect::<Vec<_>>(), [&PathId(1)]);
    }
}
