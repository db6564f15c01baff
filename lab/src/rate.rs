//! Rates out of bytes, times and samples.

use crate::result::Link;

/// From which second on a copy is in its stride: the fifth.
const STRIDE: usize = 4;
/// The part of a link's rate that payload can have: 1448 bytes of each 1514 on the wire (Ethernet,
/// IPv4, TCP with timestamps, packets of 1500 bytes).
const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

/// Bits by time, 10^6 bits a second; 0 for no time.
pub fn mbit_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { megabits(bytes) / seconds } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "no rate is that exact")]
fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8e-6
}

/// The mean of the samples, one a second, from the fifth second on. The last sample counts only if
/// bytes were left for after it: otherwise the end of the copy lies within it, and its flush.
pub fn steady(samples: &[f64], bytes: u64) -> Option<f64> {
    let left = megabits(bytes) - samples.iter().sum::<f64>();
    let ended_within = samples.last().is_some_and(|last| left < 0.01 * last.max(1.0));
    let full = samples.len() - usize::from(ended_within);
    let stride = samples.get(STRIDE..full).filter(|stride| !stride.is_empty())?;
    let count = u32::try_from(stride.len()).ok()?;
    Some(stride.iter().sum::<f64>() / f64::from(count))
}

/// What a run took beyond the time that its bytes need on the link, seconds.
pub fn start(link: &Link, bytes: u64, seconds: f64) -> Option<f64> {
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
        assert_eq!(steady(&[90.0; 5], 5 * 11_250_000), None);
    }

    #[test]
    fn the_start_is_what_the_bytes_do_not_need() {
        let mut link = Link { rtt_ms: 100.0, rate_mbit_per_s: Some(100.0), loss_percent: 0.0 };
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
