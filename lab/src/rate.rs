//! Calculates rates from bytes, times and samples.

use crate::result::LinkConditions;

/// Seconds at the start of a copy that do not count for its steady rate.
const STRIDE: usize = 4;
/// Share of all bytes after which samples do not count for the steady rate.
const NEARLY_ALL: f64 = 0.99;
/// The share of a link's rate that is available to payload: 1448 bytes of each 1514 on the wire (Ethernet,
/// IPv4, TCP with timestamps, packets of 1500 bytes).
const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

/// Returns a rate in 10^6 bits per second; 0 if the time is 0.
pub fn mbit_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { megabits(bytes) / seconds } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "no rate is that exact")]
fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8e-6
}

/// Returns the rate from the fifth second on: the slope of the least-squares line through the sums of the
/// samples. There is one sample per second, and each sum is the amount done by the end of that second. Sums
/// of 99 % of the bytes or more are left out, since they belong to the last requests of the copy and its
/// flush. `None` with fewer than three points.
///
/// Writes complete in lumps, each as large as one request. A mean between two times is wrong by the lump that
/// completes just before or after one of them. In the line each point has little weight, and early and late
/// lumps average out.
pub fn steady(samples: &[f64], bytes: u64) -> Option<f64> {
    let nearly_all = NEARLY_ALL * megabits(bytes);
    let done = samples.iter().scan(0.0, |done, sample| {
        *done += sample;
        Some(*done)
    });
    let points: Vec<_> = (1_u32..).map(f64::from).zip(done).skip(STRIDE - 1).collect();
    let in_stride = points.partition_point(|(_, done)| *done < nearly_all);
    points.get(..in_stride).filter(|stride| stride.len() >= 3).and_then(slope)
}

/// Returns the slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = f64::from(u32::try_from(points.len()).ok()?);
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let (x, y) = (x / count, y / count);
    let along: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    Some(along / spread)
}

/// Returns the time of a run beyond the time that its bytes need on the link, seconds. `None` without a rate.
pub fn start(link: &LinkConditions, bytes: u64, seconds: f64) -> Option<f64> {
    let rate = link.rate_mbit_per_s? * PAYLOAD_SHARE;
    Some(seconds - megabits(bytes) / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9)
    }

    #[test]
    fn the_first_four_seconds_are_no_part_of_the_stride() {
        let samples = [1.0, 2.0, 3.0, 4.0, 90.0, 92.0];
        let (moved, left) = (24_000_000, 10_000_000);
        assert!(close(steady(&samples, moved + left), 91.0));
    }

    /// Returns the samples of a copy at 95 Mbit/s whose writes complete in lumps of 8 MiB. The first lump
    /// completes after the share `part` of its time.
    fn lumps(bytes: u64, part: f64) -> Vec<f64> {
        let lump = megabits(8 << 20);
        let done = |second: u32| {
            let lumps = (95.0 * f64::from(second) / lump + part).floor();
            (lumps * lump).min(megabits(bytes))
        };
        let seconds = (1..).take_while(|second| done(second - 1) < megabits(bytes));
        seconds.map(|second| done(second) - done(second - 1)).collect()
    }

    #[test]
    fn lumps_do_not_shift_the_rate() {
        let bytes = 512 << 20;
        for part in (0..20).map(|twentieth| f64::from(twentieth) / 20.0) {
            let rate = steady(&lumps(bytes, part), bytes);
            assert!(rate.is_some_and(|rate| (rate - 95.0).abs() <= 0.7), "{part}: {rate:?}");
        }
    }

    #[test]
    fn a_sample_in_which_the_copy_ended_is_none_of_the_stride() {
        let samples = [90.0, 90.0, 90.0, 90.0, 90.0, 90.0, 30.0];
        let moved = 71_250_000;
        assert!(close(steady(&samples, moved), 90.0));
    }

    #[test]
    fn a_short_run_has_no_stride() {
        assert_eq!(steady(&[], 1 << 20), None);
        assert_eq!(steady(&[90.0; 4], 1 << 30), None);
        assert_eq!(steady(&[90.0; 5], 1 << 30), None);
        assert_eq!(steady(&[90.0; 6], 6 * 11_250_000), None);
        assert!(close(steady(&[90.0; 6], 1 << 30), 90.0));
    }

    #[test]
    fn the_start_is_what_the_bytes_do_not_need() {
        let mut link =
            LinkConditions { rtt_ms: 100.0, rate_mbit_per_s: Some(100.0), loss_percent: 0.0 };
        let needed = 1e7 * 8.0 / (1e8 * 1448.0 / 1514.0);
        assert!(close(start(&link, 10_000_000, needed + 2.0), 2.0));
        link.rate_mbit_per_s = None;
        assert_eq!(start(&link, 10_000_000, 2.0), None);
    }

    #[test]
    fn no_time_has_no_rate() {
        assert!(close(Some(mbit_per_s(1_000_000, 2.0)), 4.0));
        assert!(close(Some(mbit_per_s(1_000_000, 0.0)), 0.0));
    }
}
