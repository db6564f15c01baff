//! Estimates the round-trip time: the smallest, the smoothed mean, and the deviation (RFC 6298).

use std::fmt;
use std::time::Duration;

use crate::link::tcp_info::TcpInfo;

/// The measured round-trip time of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rtt {
    /// The smallest sample: the round-trip time without queues.
    pub min: Duration,
    /// The smoothed mean.
    pub smoothed: Duration,
    /// The smoothed mean deviation.
    pub deviation: Duration,
    /// The number of samples.
    pub samples: u32,
}

impl Rtt {
    /// Number of samples from which on the variation can be judged: the first sample sets the deviation to
    /// half of itself, and later ones must outweigh it.
    pub const SAMPLES_TO_JUDGE: u32 = 8;
    /// Smaller deviations come from the hosts, not from the link, and are ignored.
    const HOST_JITTER: Duration = Duration::from_millis(1);

    /// Creates the estimate from a single sample (RFC 6298 §2.2).
    #[must_use]
    pub fn first(sample: Duration) -> Self {
        Self { min: sample, smoothed: sample, deviation: sample / 2, samples: 1 }
    }

    /// Adds another sample (RFC 6298 §2.3).
    pub fn observe(&mut self, sample: Duration) {
        self.min = self.min.min(sample);
        self.deviation = mix(self.deviation, self.smoothed.abs_diff(sample), 4);
        self.smoothed = mix(self.smoothed, sample, 8);
        self.samples = self.samples.saturating_add(1);
    }

    /// Creates the estimate from samples in the order in which they were measured; `None` without any sample.
    pub fn of(samples: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut samples = samples.into_iter();
        let mut rtt = Self::first(samples.next()?);
        samples.for_each(|sample| rtt.observe(sample));
        Some(rtt)
    }

    /// Returns the estimate of the kernel; `None` before its first sample.
    #[must_use]
    pub fn of_tcp(info: &TcpInfo) -> Option<Self> {
        let smoothed = info.smoothed_rtt.filter(|rtt| !rtt.is_zero())?;
        let min = info.min_rtt.filter(|min| *min <= smoothed && !min.is_zero()).unwrap_or(smoothed);
        Some(Self {
            min,
            smoothed,
            deviation: info.rtt_deviation.unwrap_or(smoothed / 2),
            // Each received segment may carry a sample; the handshake has the first one.
            samples: info.segments_received.unwrap_or(1).max(1),
        })
    }

    /// Returns whether the round-trip time varies: the mean deviation exceeds an eighth of the mean and one
    /// millisecond, over [`SAMPLES_TO_JUDGE`](Self::SAMPLES_TO_JUDGE) samples or more. With fewer samples it
    /// counts as stable.
    #[must_use]
    pub fn is_variable(&self) -> bool {
        self.samples >= Self::SAMPLES_TO_JUDGE
            && self.deviation > (self.smoothed / 8).max(Self::HOST_JITTER)
    }
}

/// Moves the old value towards the new one by 1/`share` of the difference. Computes in nanoseconds, because
/// the division of a [`Duration`] takes four times as many instructions, and each request is a sample.
fn mix(old: Duration, new: Duration, share: u64) -> Duration {
    let (old, new) = (nanos(old), nanos(new));
    Duration::from_nanos(old - old / share + new / share)
}

/// Returns the nanoseconds of a duration, at most 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Rtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let (min, mean, deviation) =
            (millis(self.min), millis(self.smoothed), millis(self.deviation));
        write!(f, "{min:.1} ms (mean {mean:.1}, deviation {deviation:.1}")?;
        match (self.samples, self.is_variable()) {
            (..Self::SAMPLES_TO_JUDGE, _) => f.write_str(")"),
            (_, true) => f.write_str(", variable)"),
            (_, false) => f.write_str(", stable)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(samples: &[u64]) -> Rtt {
        Rtt::of(samples.iter().map(|millis| Duration::from_millis(*millis))).unwrap()
    }

    #[test]
    fn the_estimator_is_that_of_rfc_6298() {
        let rtt = millis(&[100, 180]);
        assert_eq!(rtt.min, Duration::from_millis(100));
        assert_eq!(rtt.smoothed, Duration::from_millis(110));
        assert_eq!(rtt.deviation, Duration::from_micros(57_500));
        assert_eq!(rtt.samples, 2);
        assert_eq!(Rtt::of([]), None);
    }

    #[test]
    fn an_even_rhythm_is_stable() {
        assert!(!millis(&[100; 12]).is_variable());
        assert!(!millis(&[100, 104, 97, 101, 103, 99, 100, 102, 98, 101, 100, 103]).is_variable());
    }

    #[test]
    fn a_mean_deviation_of_a_quarter_is_variable() {
        assert!(millis(&[75, 125].repeat(8)).is_variable());
    }

    #[test]
    fn few_samples_and_short_paths_count_as_stable() {
        assert!(!millis(&[75, 125, 75]).is_variable());
        let short = [200, 900].repeat(8);
        assert!(!Rtt::of(short.into_iter().map(Duration::from_micros)).unwrap().is_variable());
    }

    #[test]
    fn the_kernel_is_believed_as_far_as_it_tells() {
        assert_eq!(Rtt::of_tcp(&TcpInfo::default()), None);
        let info = TcpInfo {
            smoothed_rtt: Some(Duration::from_millis(50)),
            rtt_deviation: Some(Duration::from_millis(2)),
            min_rtt: Some(Duration::from_millis(48)),
            segments_received: Some(40),
            ..TcpInfo::default()
        };
        let rtt = Rtt::of_tcp(&info).unwrap();
        assert_eq!((rtt.min.as_millis(), rtt.samples, rtt.is_variable()), (48, 40, false));
        // A kernel that does not report the later fields.
        let old = TcpInfo { min_rtt: None, segments_received: None, ..info };
        let rtt = Rtt::of_tcp(&old).unwrap();
        assert_eq!((rtt.min.as_millis(), rtt.samples), (50, 1));
    }

    #[test]
    fn nothing_overflows() {
        let mut rtt = Rtt::first(Duration::MAX);
        rtt.observe(Duration::ZERO);
        rtt.observe(Duration::MAX);
        assert_eq!(rtt.min, Duration::ZERO);
        let mut longest = Rtt::first(Duration::MAX);
        longest.observe(Duration::MAX);
        assert!(longest.smoothed >= Duration::from_nanos(u64::MAX));
    }
}
