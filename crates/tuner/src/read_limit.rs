//! Limits the read data that a connection has requested and not received.
//!
//! Requested data arrives before anything that the target sends later, including its pings. A target that
//! receives no answer to its ping in time closes the connection (LIO: 30 seconds). At 64 kbit/s a mebibyte
//! takes two minutes.
//!
//! ```text
//! bytes = 64 KiB + the most that has arrived within 5 seconds
//! ```
//! The rate need not be known: the bytes that arrive grow as the TCP window does in slow start, twofold in a
//! round trip, and the limit begins above the initial window. So a fast link is never slowed down, and a link
//! of 64 kbit/s delivers the requested data within 13 seconds.

use std::time::{Duration, Instant};

use crate::link::tcp_info::TcpInfo;

/// Bytes that may be requested before anything has arrived: 8 seconds at 64 kbit/s.
const UNPROVEN: u64 = 64 << 10;
/// The number of bytes that have arrived within this time may be requested again. Together with [`UNPROVEN`]
/// this is well below the 30 seconds of LIO, and it is longer than any round trip.
const WITHIN: Duration = Duration::from_secs(5);
/// Below this round-trip time nothing is limited: such a link is fast, or its round trip becomes longer than
/// this.
const LOCAL: Duration = Duration::from_millis(2);
/// Limit of the read data that a connection has requested and not received, so that the target's pings arrive
/// in time.
///
/// The limit does not fall if a link becomes slower during use: the largest number of bytes that has ever
/// arrived counts, so that reads are not slowed down after a pause.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadLimit {
    /// Whether the kernel reports the bytes received, and the round trip is long enough for a limit.
    is_known: bool,
    /// Bytes received when the current interval began, and the time of its beginning.
    since: Option<(u64, Instant)>,
    /// Bytes received within the current interval.
    present: u64,
    /// The largest number of bytes received within any interval.
    most: u64,
}

impl ReadLimit {
    /// Reads are not split into parts shorter than this, bytes: shorter ones cost more than they save.
    pub const SHORTEST: usize = 32 << 10;

    /// Takes a reading of the connection. A reading without the number of bytes received removes the limit.
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

    /// Returns the limit, bytes; `None` where the limit is not below `max`, the largest number of bytes in
    /// flight.
    #[must_use]
    pub const fn bytes(&self, max: u64) -> Option<u64> {
        let bytes = UNPROVEN.saturating_add(self.most);
        if self.is_known && bytes < max { Some(bytes) } else { None }
    }

    /// Returns the best length of a read, bytes, a multiple of 4 KiB: one read arrives while another one is
    /// requested. Returns `None` without a limit.
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

    /// Simulates a link of `rate` bytes a second on which the caller requests all that the limit allows.
    /// Returns the bytes outstanding after each tenth of a second.
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

    /// TCP begins with ten segments, and doubles its window in each round trip. The limit must never be lower.
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
