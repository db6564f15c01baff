//! How much read data a connection may be waiting for.
//!
//! What was asked for stands before all that the target sends afterwards, its pings among it, and a target that has no answer
//! to its ping in time gives the connection up (LIO: 30 seconds). A connection that asks for a mebibyte at 64 kbit/s has asked
//! for two minutes.
//!
//! ```text
//! bytes = 64 KiB + the most that has arrived within 5 seconds
//! ```
//! The rate is not needed: what has arrived grows as the window of TCP does in slow start, twofold in a round trip, and
//! begins with more. So a fast link is never held back, and a slow one has 13 seconds to bring what was asked for at 64
//! kbit/s.

use std::time::{Duration, Instant};

use crate::link::tcp_info::TcpInfo;

/// What may be awaited before anything has arrived, bytes: 8 seconds at 64 kbit/s.
const UNPROVEN: u64 = 64 << 10;
/// The time whose arrivals may be awaited again: with [`UNPROVEN`] well within the 30 seconds of LIO, and longer than any round
/// trip.
const WITHIN: Duration = Duration::from_secs(5);
/// Over a shorter round trip nothing is limited: such a link is fast, or its round trip has become longer.
const LOCAL: Duration = Duration::from_millis(2);
/// The read data that a connection may be waiting for: not more than it brings in good time for the target's pings.
///
/// A link that becomes slow while it is used is not noticed: the most that has ever arrived counts, so that nothing is
/// held back after a rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadLimit {
    /// Whether the kernel tells what has arrived, over a round trip that is worth a limit.
    is_known: bool,
    /// What had arrived when the present time began, bytes, and when that was.
    since: Option<(u64, Instant)>,
    /// What has arrived within the present time, bytes.
    present: u64,
    /// The most that has arrived within any, bytes.
    most: u64,
}

impl ReadLimit {
    /// No read is cut that is not longer, bytes: shorter ones cost more than they save.
    pub const SHORTEST: usize = 32 << 10;

    /// Takes in a reading of the connection. One that does not tell what has arrived leaves no limit.
    pub fn observe(&mut self, info: &TcpInfo, now: Instant) {
        let round_trip = info.min_rtt.or(info.smoothed_rtt);
        let Some(arrived) = info.bytes_received.filter(|_| round_trip >= Some(LOCAL)) else {
            self.is_known = false;
            return;
        };
        self.is_known = true;
        let (before, begun) = *self.since.get_or_insert((0, now));
        self.present = arrived.saturating_sub(before);
        self.most = self.most.max(self.present);
        if now.saturating_duration_since(begun) >= WITHIN {
            self.since = Some((arrived, now));
        }
    }

    /// The limit, bytes; `None` where it is not below the `max` that may be awaited at all.
    #[must_use]
    pub const fn bytes(&self, max: u64) -> Option<u64> {
        let bytes = UNPROVEN.saturating_add(self.most);
        if self.is_known && bytes < max { Some(bytes) } else { None }
    }

    /// Returns the best length of a read, bytes, a multiple of 4 KiB, so that one arrives while another one is requested;
    /// `None` without a limit.
    #[must_use]
    pub fn longest_read(&self, max: u64) -> Option<u64> {
        const PAGE: u64 = 4 << 10;
        Some((self.bytes(max)? / 2 / PAGE * PAGE).max(Self::SHORTEST as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(arrived: u64, round_trip: Duration) -> TcpInfo {
        TcpInfo { bytes_received: Some(arrived), min_rtt: Some(round_trip), ..TcpInfo::default() }
    }

    const FAR: Duration = Duration::from_millis(100);

    /// A link of so many bytes a second, which is asked for all that the limit allows: bytes outstanding after each tenth of
    /// a second.
    fn outstanding(rate: u64, tenths: u32) -> Vec<u64> {
        let (start, mut limit, mut arrived) = (Instant::now(), ReadLimit::default(), 0);
        (0..tenths)
            .map(|tenth| {
                limit.observe(&reading(arrived, FAR), start + FAR * tenth);
                let awaited = limit.bytes(u64::MAX).unwrap();
                arrived += awaited.min(rate / 10);
                awaited
            })
            .collect()
    }

    #[test]
    fn a_slow_link_brings_in_time_what_was_asked_for() {
        for kbit in [64, 128, 512, 5_000] {
            let rate = kbit * 1000 / 8;
            let most = outstanding(rate, 600).into_iter().max().unwrap();
            let seconds = most as f64 / rate as f64;
            assert!(seconds < 15.0, "{kbit} kbit/s: {seconds} s");
            assert!(seconds > 5.0, "{kbit} kbit/s: {seconds} s hold it up");
        }
    }

    /// TCP begins with ten segments, and doubles them in a round trip.
    #[test]
    fn slow_start_is_never_held_up() {
        let mut window = 14_480;
        for awaited in outstanding(u64::MAX / 100, 20) {
            assert!(awaited >= 2 * window, "{awaited} of {window}");
            window *= 2;
        }
    }

    #[test]
    fn a_rest_lowers_nothing() {
        let (start, mut limit) = (Instant::now(), ReadLimit::default());
        limit.observe(&reading(0, FAR), start);
        limit.observe(&reading(50_000_000, FAR), start + 4 * Duration::from_secs(1));
        for hour in 1..5 {
            limit.observe(&reading(50_000_000, FAR), start + hour * Duration::from_secs(3600));
            assert_eq!(limit.bytes(u64::MAX), Some(50_000_000 + UNPROVEN));
        }
        assert_eq!(limit.bytes(16 << 20), None, "more than may be awaited at all");
        assert_eq!(limit.longest_read(16 << 20), None);
    }

    #[test]
    fn what_is_near_or_not_told_has_no_limit() {
        let (start, mut limit) = (Instant::now(), ReadLimit::default());
        assert_eq!(limit.bytes(u64::MAX), None);
        for info in [reading(0, Duration::from_micros(200)), TcpInfo::default()] {
            limit.observe(&info, start);
            assert_eq!(limit.bytes(u64::MAX), None);
        }
        limit.observe(&reading(0, FAR), start);
        assert_eq!(limit.bytes(u64::MAX), Some(UNPROVEN));
        assert_eq!(limit.longest_read(u64::MAX), Some(ReadLimit::SHORTEST as u64));
        limit.observe(&reading(1 << 20, FAR), start);
        assert_eq!(limit.longest_read(u64::MAX), Some((UNPROVEN + (1 << 20)) / 2));
    }
}
