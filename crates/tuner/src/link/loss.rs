//! Finds out whether segments are lost because a queue overflows, or by the link itself.
//!
//! Before a queue overflows, it makes the round trip longer than the smallest one. So loss while a queue
//! stands before the link counts as caused by the queue, any other loss as caused by the link. With BBR there
//! is no such distinction: its probes make queues, but never fill a queue until it overflows.

use std::time::Duration;

use crate::link::tcp_info::TcpInfo;
use iscsi_rate::Rate;

/// From this share of lost segments on, loss determines the rate of a connection, and BBR is worth it. The
/// share is low, because an unneeded BBR does no harm.
pub(crate) const MIN_LOSS_FOR_BBR: f64 = 1e-4;
/// From this share of lost segments on, loss may limit the rate of each of several sessions. The share is
/// higher than [`MIN_LOSS_FOR_BBR`], because it counts all lost segments, including those of overflowing
/// queues, and each session costs memory of the target.
pub(crate) const MIN_LOSS_FOR_SESSIONS: f64 = 5e-4;

/// Measures the loss of a link with one connection over it: the loss that no queue explains.
///
/// ```
/// use iscsi_tuner::{LossDetector, TcpInfo};
///
/// let mut detector = LossDetector::default();
/// let mut info = TcpInfo::default();
/// (info.data_segments_sent, info.segments_retransmitted) = (Some(2000), Some(10));
/// detector.watch_queue(&info);
/// assert_eq!(detector.observe(&info, false), Some(0.005));
/// ```
#[derive(Clone, Debug, Default)]
pub struct LossDetector {
    /// The reading from which segments are counted, and whether a queue was seen since then.
    since: TcpInfo,
    had_queue: bool,
    loss: Option<f64>,
}

impl LossDetector {
    /// Checks whether a queue stands before the link. Call it many times a second, because a queue that has
    /// overflowed is soon gone.
    pub fn watch_queue(&mut self, info: &TcpInfo) {
        self.had_queue |= info.has_queue(None, info.delivery_rate.unwrap_or(Rate::MIN));
    }

    /// Takes a reading, and returns the share of segments that the link itself loses, 0 to 1; `None` before
    /// enough segments were sent. `copes_with_loss` is whether the congestion control keeps queues short
    /// (BBR): then no queue explains a loss.
    pub fn observe(&mut self, info: &TcpInfo, copes_with_loss: bool) -> Option<f64> {
        if let Some(loss) = info.loss_since(&self.since) {
            let has_overflown = self.had_queue && !copes_with_loss;
            self.loss = Some(if has_overflown { 0.0 } else { loss });
            (self.since, self.had_queue) = (*info, false);
        }
        self.loss
    }

    /// Takes the loss that another connection over the same link has measured. Until this connection has
    /// measured its own loss, the larger value is used. Returns the value that is used.
    pub fn adopt_loss(&mut self, loss: f64) -> f64 {
        *self.loss.insert(self.loss.unwrap_or_default().max(loss))
    }
}

/// The recent share of lost segments of all connections over a link, in both directions and for any reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentLoss {
    moved: f64,
    lost: f64,
}

impl RecentLoss {
    /// Factor that a call of [`fade`](Self::fade) applies to the counts: with four calls a second, half of a
    /// count remains after three and a half seconds.
    const FADE: f64 = 0.95;

    /// Adds the segments that one connection moved and lost between two readings, `time` apart.
    pub fn count(&mut self, before: &TcpInfo, after: &TcpInfo, time: Duration) {
        let since = |count: fn(&TcpInfo) -> Option<u32>| {
            Some(f64::from(count(after)?.wrapping_sub(count(before)?)))
        };
        let sent = since(|info| info.data_segments_sent);
        // The peer may report a duplicate in a later reading than its retransmission, so a difference may be
        // negative.
        let lost = |info: &TcpInfo| info.segments_lost().map(f64::from);
        let lost = lost(after).zip(lost(before)).map(|(after, before)| after - before);
        let arrived = since(|info| info.data_segments_received);
        let missed = after.lost_before_arrival_since(before, time);
        for (moved, lost) in [sent.zip(lost), arrived.zip(missed)].into_iter().flatten() {
            self.moved += moved;
            self.lost += lost;
        }
    }

    /// Reduces the weight of the earlier counts. Call it once for each round of counting.
    pub fn fade(&mut self) {
        self.moved *= Self::FADE;
        self.lost *= Self::FADE;
    }

    /// Returns the share of lost segments, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.moved < 1.0 { 0.0 } else { (self.lost / self.moved).clamp(0.0, 1.0) }
    }
}

/// Returns the rate of a connection if a lost segment halves its window (M. Mathis et al., 1997: 1.22
/// segments / (round-trip time x sqrt(loss))); `None` without loss or without a round-trip time.
pub(crate) fn loss_ceiling(loss: f64, round_trip: Duration, mss: u32) -> Option<Rate> {
    let seconds = round_trip.as_secs_f64();
    if loss <= 0.0 || seconds <= 0.0 {
        return None;
    }
    let bits = f64::from(mss) * 8.0 * 1.22 / (seconds * loss.sqrt());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let bits = bits.clamp(1e3, 1e12) as u64;
    Rate::from_bits_per_second(bits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reading at a round trip of `millis` milliseconds, of which 100 are without a queue.
    fn info(millis: u64, sent: u32, again: u32) -> TcpInfo {
        TcpInfo {
            smoothed_rtt: Some(Duration::from_millis(millis)),
            min_rtt: Some(Duration::from_millis(100)),
            send_mss: Some(1448),
            data_segments_sent: Some(sent),
            segments_retransmitted: Some(again),
            delivery_rate: "90mbit".parse().ok(),
            ..TcpInfo::default()
        }
    }

    /// Each line: a name, whether the congestion control is BBR, the readings in ascending order of time
    /// (round trip in milliseconds, segments sent, segments retransmitted), and the loss of the link after
    /// them.
    #[test]
    fn loss_is_the_links_where_no_queue_explains_it() {
        const QUEUE: u64 = 180;
        const NONE: u64 = 100;
        type Row = (&'static str, bool, &'static [(u64, u32, u32)], Option<f64>);
        let rows: [Row; 8] = [
            ("nothing was sent", false, &[(NONE, 0, 0)], None),
            ("too little was sent to tell", false, &[(NONE, 500, 2)], None),
            ("nothing was lost", false, &[(NONE, 2000, 0)], Some(0.0)),
            ("no queue was there", false, &[(NONE, 2000, 10)], Some(0.005)),
            ("a queue was there", false, &[(QUEUE, 2000, 10)], Some(0.0)),
            ("BBR's own queue", true, &[(QUEUE, 2000, 10)], Some(0.005)),
            (
                "a queue counts until the next verdict only",
                false,
                &[(QUEUE, 2000, 10), (NONE, 4000, 30)],
                Some(0.01),
            ),
            (
                "a queue is remembered while there is too little to tell",
                false,
                &[(QUEUE, 500, 2), (NONE, 2000, 10)],
                Some(0.0),
            ),
        ];
        for (name, copes_with_loss, seen, expected) in rows {
            let mut detector = LossDetector::default();
            let mut loss = None;
            for (millis, sent, again) in seen {
                let info = info(*millis, *sent, *again);
                detector.watch_queue(&info);
                loss = detector.observe(&info, copes_with_loss);
            }
            assert_eq!(loss, expected, "{name}");
        }
    }

    #[test]
    fn what_another_has_found_counts_until_there_is_an_own_verdict() {
        let mut detector = LossDetector::default();
        assert_eq!([0.004, 0.002].map(|loss| detector.adopt_loss(loss)), [0.004, 0.004]);
        assert_eq!(detector.observe(&info(100, 500, 2), false), Some(0.004));
        assert_eq!(detector.observe(&info(100, 2000, 4), false), Some(0.002));
    }

    #[test]
    fn all_connections_count_and_what_is_old_fades() {
        let reading = |sent, again, arrived, disordered| TcpInfo {
            data_segments_received: Some(arrived),
            segments_out_of_order: Some(disordered),
            ..info(100, sent, again)
        };
        let (start, second) = (reading(0, 0, 0, 0), Duration::from_secs(1));
        let mut recent = RecentLoss::default();
        assert!(recent.share() < f64::EPSILON);
        recent.count(&start, &reading(500, 5, 0, 0), second);
        assert!((recent.share() - 0.01).abs() < 1e-9);
        // Fifty segments arrive in a round trip, so twenty-five segments behind a gap count as one lost
        // segment.
        recent.count(&start, &reading(0, 0, 500, 125), second);
        assert!((recent.share() - 0.01).abs() < 1e-9);
        (0..100).for_each(|_| recent.fade());
        recent.count(&start, &reading(2000, 0, 0, 0), second);
        assert!(recent.share() < 1e-4);
    }

    /// If a queue grows faster than the sender's timer, the sender retransmits segments that have arrived.
    /// These must not count as lost.
    #[test]
    fn what_the_peer_has_received_twice_was_not_lost() {
        let reading = |sent, again, duplicated| TcpInfo {
            segments_duplicated: Some(duplicated),
            ..info(100, sent, again)
        };
        let (start, second) = (reading(0, 0, 0), Duration::from_secs(1));
        let mut recent = RecentLoss::default();
        recent.count(&start, &reading(500, 5, 0), second);
        assert!(recent.share() > 0.0, "nothing is reported yet");
        recent.count(&reading(500, 5, 0), &reading(600, 5, 5), second);
        assert!(recent.share() < f64::EPSILON, "{}", recent.share());
        assert_eq!(reading(2000, 5, 5).loss_since(&start), Some(0.0));
        assert_eq!(reading(2000, 10, 5).loss_since(&start), Some(0.0025));
    }

    #[test]
    fn the_ceiling_is_that_of_the_literature() {
        let ceiling = |loss| loss_ceiling(loss, Duration::from_millis(100), 1448);
        assert_eq!(ceiling(0.0), None);
        let mbit = ceiling(0.001).unwrap().mbit_per_second();
        assert!((4.4..4.6).contains(&mbit), "{mbit}");
        assert_eq!(ceiling(1e-300), Some(Rate::MAX));
        assert_eq!(loss_ceiling(0.001, Duration::ZERO, 1448), None);
    }
}
