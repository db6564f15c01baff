//! How much write data a target may have to wait for: as much as the connection brings it in time.
//!
//! A target asks for the data of all writes that it knows of, and gives up on the connection when
//! an answer takes too long (LIO: 3 seconds). On a link of known rate the plan's queue would do;
//! otherwise TCP finds the rate out, and the limit follows it: at any moment a congestion window
//! goes in a round trip, also while it grows, and also where the round trip grows with a queue.
//!
//! A link that is fast for its length never feels the limit: a write is under way for little more
//! than its round trips. Its limit would be more than may be under way at all, and then it has none:
//! several such connections share alike, whatever their round trips of the moment.

use std::time::Duration;

use iscsi_tuner::TcpInfo;

/// Enough for two short writes, on any link.
const LEAST: u64 = 512 << 10;
/// How long data may wait, beside its round trips.
const WAIT: Duration = Duration::from_millis(750);
/// The round trips: the R2T's way here, and the data's way there.
const ROUND_TRIPS: u32 = 2;
/// How long targets put up with waiting for the data of an R2T (LIO: 3 seconds).
const PATIENCE: Duration = Duration::from_secs(3);

/// The limit, bytes; `None` where it is not below the `most` that may be under way at all, and where
/// the kernel does not tell what the connection may send. A congestion control that `doubles` has a
/// window of twice what the link holds (BBR).
pub(crate) fn write_limit(info: &TcpInfo, doubles: bool, most: u64) -> Option<u64> {
    let rate = info.window_rate()?;
    let round_trip = info.min_rtt.or(info.smoothed_rtt)?;
    let trips = round_trip.saturating_mul(ROUND_TRIPS);
    // The rate may turn out half of what it seems, and then all takes twice as long: slow start sees
    // that a round trip late. A target counts from the R2T on, a round trip later; but a lost segment
    // costs as much again.
    let wait = (PATIENCE / 2).saturating_sub(trips).min(WAIT);
    let bytes = rate.bytes_in(trips.saturating_add(wait)) / if doubles { 2 } else { 1 };
    Some(bytes.max(LEAST)).filter(|limit| *limit < most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(window: u32, rtt_millis: u64, min_rtt_millis: u64) -> TcpInfo {
        TcpInfo {
            congestion_window: Some(window),
            send_mss: Some(1448),
            smoothed_rtt: Some(Duration::from_millis(rtt_millis)),
            min_rtt: Some(Duration::from_millis(min_rtt_millis)),
            ..TcpInfo::default()
        }
    }

    /// A write beyond its first burst takes two round trips: so much and a half must be under way.
    #[test]
    fn it_never_holds_up_slow_start() {
        for rtt in [4, 20, 100, 200] {
            for doublings in 0..12 {
                let window = 10 << doublings;
                let limit = write_limit(&info(window, rtt, rtt), false, u64::MAX).unwrap();
                assert!(limit >= 3 * u64::from(window) * 1448, "{rtt} ms, {window}: {limit}");
            }
        }
    }

    /// A queue before the link lets the window and the round trip grow alike.
    #[test]
    fn a_queue_does_not_raise_it() {
        let empty = write_limit(&info(10, 100, 100), false, u64::MAX).unwrap();
        assert_eq!(write_limit(&info(100, 1000, 100), false, u64::MAX), Some(empty));
    }

    #[test]
    fn on_a_slow_link_it_is_what_the_link_brings_in_time() {
        // 5 Mbit/s: 43 segments in 100 ms.
        let limit = write_limit(&info(43, 100, 100), false, u64::MAX).unwrap();
        let millis = limit * 8 / 5_000;
        assert!((500..3000).contains(&millis), "{limit}");
    }

    /// A rate that turns out half of what it seemed, and a lost segment: it comes in time all the same.
    #[test]
    fn on_a_far_link_it_is_in_time_for_the_target() {
        for rtt in [100, 200, 375, 450, 600] {
            let info = info(4000, rtt, rtt);
            let rate = info.window_rate().unwrap().bits_per_second() as f64 / 8.0;
            let limit = write_limit(&info, false, u64::MAX).unwrap() as f64;
            let round_trip = rtt as f64 / 1e3;
            assert!(limit >= rate * 2.0 * round_trip, "{rtt} ms: two round trips fill the link");
            let awaited = 2.0 * limit / rate - round_trip;
            assert!(awaited + round_trip < 3.01, "{rtt} ms: {awaited} s");
        }
    }

    #[test]
    fn what_cannot_be_reached_is_no_limit() {
        let limit = write_limit(&info(43, 100, 100), false, u64::MAX).unwrap();
        assert_eq!(write_limit(&info(43, 100, 100), false, limit), None);
        assert_eq!(write_limit(&info(43, 100, 100), false, limit + 1), Some(limit));
    }

    #[test]
    fn of_a_window_twice_as_large_half_counts() {
        let [doubled, plain] = [true, false]
            .map(|doubles| write_limit(&info(4000, 100, 100), doubles, u64::MAX).unwrap());
        assert_eq!(doubled, plain / 2);
    }

    #[test]
    fn without_a_word_of_the_kernel_there_is_none() {
        assert_eq!(write_limit(&TcpInfo::default(), false, u64::MAX), None);
        assert_eq!(write_limit(&info(10, 0, 0), false, u64::MAX), None);
    }
}
