//! Records the durations of requests in a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Number of significant decimal digits. Values that agree in these digits are counted together.
const DIGITS: u8 = 2;
/// Longest duration that is distinguished. Longer durations count as this one.
const MAX: Duration = Duration::from_secs(3600);

/// Histogram of the durations of requests: from one microsecond to one hour, with an error of at most one
/// percent.
#[doc(alias("histogram", "percentile", "round-trip time"))]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Histogram in microseconds; `None` until a time is recorded.
    histogram: Option<Histogram<u64>>,
    sum: Duration,
}

impl Latency {
    /// Returns the number of requests that were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// Returns the exact sum of the durations of all requests.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the mean duration; zero if nothing was recorded.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let seconds = self.sum.as_secs_f64() / self.count().max(1) as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns the shortest duration; zero if nothing was recorded.
    #[must_use]
    pub fn min(&self) -> Duration {
        micros(self.histogram.as_ref().map_or(0, Histogram::min))
    }

    /// Returns the longest duration; zero if nothing was recorded.
    #[must_use]
    pub fn max(&self) -> Duration {
        micros(self.histogram.as_ref().map_or(0, Histogram::max))
    }

    /// Returns the duration within which a share of the requests ended; zero if nothing was recorded. `share`
    /// is 0 to 1.
    #[doc(alias = "percentile")]
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        micros(self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(share)))
    }

    /// Returns the number of requests that ended within `time`.
    #[must_use]
    pub fn count_within(&self, time: Duration) -> u64 {
        self.histogram
            .as_ref()
            .map_or(0, |histogram| histogram.count_between(0, whole_micros(time)))
    }

    /// Returns the buckets that contain requests, the shortest durations first. Each item is the longest
    /// duration of a bucket and its number of requests.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let recorded = self.histogram.iter().flat_map(Histogram::iter_recorded);
        recorded.map(|bucket| (micros(bucket.value_iterated_to()), bucket.count_at_value()))
    }

    /// Returns the requests recorded since an earlier snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut later = Self::default();
        // Beyond the longest duration of a histogram, `count_at` would return the count of the last bucket,
        // so it is not called there.
        for bucket in self.histogram.iter().flat_map(Histogram::iter_recorded) {
            let value = bucket.value_iterated_to();
            let before = earlier.histogram.as_ref().filter(|before| value <= before.max());
            let before = before.map_or(0, |before| before.count_at(value));
            later.record_micros(value, bucket.count_at_value().saturating_sub(before));
        }
        later.sum = self.sum.saturating_sub(earlier.sum);
        later
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.record_micros(whole_micros(time), 1);
        self.sum = self.sum.saturating_add(time);
    }

    /// Adds the requests recorded in another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        let Some(more) = &other.histogram else { return };
        let Some(histogram) = &mut self.histogram else {
            self.histogram = Some(more.clone());
            return;
        };
        // The histogram resizes itself for the longest duration, so the addition cannot fail.
        let added = histogram.add(more);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    fn record_micros(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        if self.histogram.is_none() {
            self.histogram = Histogram::new(DIGITS).ok();
        }
        let Some(histogram) = &mut self.histogram else { return };
        let recorded = histogram.record_n(value, count);
        debug_assert!(recorded.is_ok(), "{recorded:?}");
    }
}

const fn micros(value: u64) -> Duration {
    Duration::from_micros(value)
}

fn whole_micros(time: Duration) -> u64 {
    u64::try_from(time.min(MAX).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(feature = "serde")]
mod serialize {
    use std::time::Duration;

    use serde::ser::{Serialize, SerializeStruct, Serializer};

    use super::Latency;

    /// Serializes durations in seconds, and the buckets as pairs of longest duration and number of requests.
    impl Serialize for Latency {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let times = [
                ("sum", self.sum()),
                ("min", self.min()),
                ("mean", self.mean()),
                ("p50", self.quantile(0.5)),
                ("p90", self.quantile(0.9)),
                ("p99", self.quantile(0.99)),
                ("max", self.max()),
            ];
            let seconds = |(time, count): (Duration, u64)| (time.as_secs_f64(), count);
            let buckets: Vec<_> = self.buckets().map(seconds).collect();
            let mut latency = serializer.serialize_struct("Latency", times.len() + 2)?;
            latency.serialize_field("count", &self.count())?;
            for (name, time) in times {
                latency.serialize_field(name, &time.as_secs_f64())?;
            }
            latency.serialize_field("buckets", &buckets)?;
            latency.end()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::default();
        micros.into_iter().for_each(|value| latency.record(Duration::from_micros(value)));
        latency
    }

    fn is_about(time: Duration, micros: u64) -> bool {
        time.as_micros().abs_diff(micros.into()) * 100 <= micros.into()
    }

    #[test]
    fn quantiles_are_told_to_one_percent() {
        let latency = of(1..=10_000);
        assert_eq!((latency.count(), latency.sum()), (10_000, Duration::from_micros(50_005_000)));
        assert_eq!(latency.min(), Duration::from_micros(1));
        assert_eq!(latency.mean(), Duration::from_nanos(5_000_500));
        for (time, micros) in [(0.5, 5000), (0.9, 9000), (0.99, 9900), (1.0, 10_000)] {
            assert!(
                is_about(latency.quantile(time), micros),
                "{time}: {:?}",
                latency.quantile(time)
            );
        }
        assert!(is_about(latency.max(), 10_000));
        assert!(is_about(Duration::from_micros(latency.count_within(micros(2500))), 2500));
        assert_eq!(latency.buckets().map(|(_, count)| count).sum::<u64>(), 10_000);
    }

    #[test]
    fn nothing_recorded_is_zero_and_the_longest_is_an_hour() {
        let none = Latency::default();
        assert_eq!((none.count(), none.mean(), none.quantile(0.5)), (0, micros(0), micros(0)));
        assert_eq!(none.buckets().count(), 0);
        let mut endless = Latency::default();
        endless.record(Duration::MAX);
        assert!(is_about(endless.max(), 3_600_000_000));
        endless.record(Duration::MAX);
        assert_eq!((endless.count(), endless.sum()), (2, Duration::MAX));
    }

    /// The difference of two snapshots keeps the durations that are longer than all durations of the earlier
    /// snapshot.
    #[test]
    fn a_difference_keeps_what_took_longer_than_anything_before() {
        let longest = (11..40).map(|power| (1 << power) - 1);
        for micros in longest {
            let before = of([micros; 3]);
            let mut after = before.clone();
            after.record(Duration::from_micros(micros * 5));
            let between = after.since(&before);
            assert_eq!((between.count(), between.sum().as_micros()), (1, u128::from(micros * 5)));
        }
    }

    #[test]
    fn a_difference_and_what_was_before_add_up() {
        let (mut before, after) = (of([10, 1000, 1000]), of([10, 1000, 1000, 1000, 70_000]));
        let between = after.since(&before);
        assert_eq!(between, of([1000, 70_000]).since(&Latency::default()));
        before.add(&between);
        assert_eq!(before.count(), 5);
        assert_eq!(before.sum(), after.sum());
        assert!(before.buckets().eq(after.buckets()));
        assert_eq!(after.since(&after), Latency::default());
        assert_eq!(Latency::default().since(&after), Latency::default());
    }
}
