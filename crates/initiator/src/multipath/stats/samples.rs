//! Converts statistics to samples of metrics.

use std::fmt;
use std::time::Duration;

use crate::multipath::stats::{DiskStats, SessionStats};
use crate::state::counters::{KindStats, RequestStats};

/// One value of a metric, named by the rules of Prometheus and OpenMetrics: base units, and
/// `_total` at the end of a counter.
///
/// [`Display`](fmt::Display) writes the sample as a line of their text format.
/// [`write_metrics`](crate::write_metrics) writes complete texts, with the description of each metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// Name of the metric.
    pub name: &'static str,
    /// Labels, each with its value, that distinguish the sample from others of the same name.
    pub labels: Vec<(&'static str, String)>,
    /// Kind of the metric: counter or gauge.
    pub kind: SampleKind,
    /// Value: a number, bytes, or seconds.
    pub value: f64,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SampleKind {
    /// A value that only grows.
    Counter,
    /// A value that can grow and shrink.
    Gauge,
}

/// Upper bounds of the buckets of a histogram, microseconds.
const BOUNDS: [u64; 16] = [
    100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 10_000_000, 60_000_000,
];

impl DiskStats {
    /// Returns the statistics as samples for a system that collects metrics:
    ///
    /// | metric | labels beside `target` and `lun` | |
    /// |---|---|---|
    /// | `iscsi_disk_read_bytes_total`, `iscsi_disk_written_bytes_total` | | counter |
    /// | `iscsi_disk_requests_total`, `iscsi_disk_errors_total` | `kind`: read, write, flush, other | counter |
    /// | `iscsi_disk_request_duration_seconds_bucket`, `_sum`, `_count` | `kind`; `le` of a bucket | histogram |
    /// | `iscsi_disk_requests_in_flight`, `iscsi_disk_bytes_in_flight` | | gauge |
    /// | `iscsi_disk_retries_total`, `iscsi_disk_duplicates_total` | | counter |
    /// | `iscsi_disk_sessions_lost_total`, `iscsi_disk_sessions_reopened_total` | | counter |
    /// | `iscsi_disk_budget_waits_total`, `iscsi_disk_budget_wait_seconds_total` | | counter |
    /// | `iscsi_disk_sessions`, `iscsi_disk_capacity_bytes` | | gauge |
    /// | `iscsi_session_read_bytes_total`, `iscsi_session_written_bytes_total` | `isid`, `portal` | counter |
    /// | `iscsi_session_commands_total`, `iscsi_session_errors_total` | `isid`, `portal`, `kind` | counter |
    /// | `iscsi_session_command_duration_seconds_sum`, `_count` | `isid`, `portal`, `kind` | summary |
    /// | `iscsi_session_retries_total` | `isid`, `portal` | counter |
    /// | `iscsi_session_commands_in_flight`, `iscsi_session_bytes_in_flight` | `isid`, `portal` | gauge |
    /// | `iscsi_session_round_trip_seconds`, once it was measured | `isid`, `portal` | gauge |
    ///
    /// A session that is reconnected counts from zero, under the same `isid`. The samples are sorted by
    /// `name`. To write the text that a collector reads, use [`write_metrics`](crate::write_metrics).
    #[doc(alias("Prometheus", "OpenMetrics", "metrics"))]
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        let labels = vec![("target", self.target.clone()), ("lun", self.lun.to_string())];
        let mut disk = Samples { labels, samples: Vec::new() };
        disk.of_disk(self);
        for session in &self.sessions {
            let isid = session.key.isid.to_string();
            let marks = [("isid", isid), ("portal", session.portal.clone())];
            disk.with(marks, |samples| samples.of_session(session));
        }
        disk.samples.sort_by_key(|sample| sample.name);
        disk.samples.into_iter()
    }
}

/// Samples that share labels.
struct Samples {
    labels: Vec<(&'static str, String)>,
    samples: Vec<Sample>,
}

impl Samples {
    fn of_disk(&mut self, stats: &DiskStats) {
        let RequestStats { reads, writes, requests_in_flight, bytes_in_flight, .. } =
            &stats.requests;
        self.counter("iscsi_disk_read_bytes_total", reads.bytes);
        self.counter("iscsi_disk_written_bytes_total", writes.bytes);
        for (name, kind) in stats.requests.kinds() {
            self.with([("kind", name.to_owned())], |samples| {
                samples.counter("iscsi_disk_requests_total", kind.requests);
                samples.counter("iscsi_disk_errors_total", kind.errors);
                samples.histogram(kind);
            });
        }
        self.gauge("iscsi_disk_requests_in_flight", *requests_in_flight);
        self.gauge("iscsi_disk_bytes_in_flight", *bytes_in_flight);
        self.counter("iscsi_disk_retries_total", stats.retries);
        self.counter("iscsi_disk_duplicates_total", stats.duplicates);
        self.counter("iscsi_disk_sessions_lost_total", stats.sessions_lost);
        self.counter("iscsi_disk_sessions_reopened_total", stats.sessions_reopened);
        self.counter("iscsi_disk_budget_waits_total", stats.budget_waits);
        self.seconds("iscsi_disk_budget_wait_seconds_total", stats.budget_wait_time);
        self.gauge("iscsi_disk_sessions", stats.sessions.len() as u64);
        self.gauge("iscsi_disk_capacity_bytes", stats.capacity);
    }

    /// Adds a histogram. Each bucket counts all requests that ended within its bound.
    fn histogram(&mut self, kind: &KindStats) {
        const BUCKET: &str = "iscsi_disk_request_duration_seconds_bucket";
        for bound in BOUNDS.map(Duration::from_micros) {
            // OpenMetrics requires a decimal point.
            let le = format!("{:?}", bound.as_secs_f64());
            self.with([("le", le)], |samples| {
                samples.counter(BUCKET, kind.latency.count_within(bound));
            });
        }
        let all = kind.latency.count();
        self.with([("le", "+Inf".to_owned())], |samples| samples.counter(BUCKET, all));
        self.seconds("iscsi_disk_request_duration_seconds_sum", kind.latency.sum());
        self.counter("iscsi_disk_request_duration_seconds_count", all);
    }

    fn of_session(&mut self, session: &SessionStats) {
        let commands = &session.commands;
        self.counter("iscsi_session_read_bytes_total", commands.reads.bytes);
        self.counter("iscsi_session_written_bytes_total", commands.writes.bytes);
        for (name, kind) in commands.kinds() {
            self.with([("kind", name.to_owned())], |samples| {
                let KindStats { requests, errors, latency, .. } = kind;
                samples.counter("iscsi_session_commands_total", *requests);
                samples.counter("iscsi_session_errors_total", *errors);
                samples.seconds("iscsi_session_command_duration_seconds_sum", latency.sum());
                samples.counter("iscsi_session_command_duration_seconds_count", latency.count());
            });
        }
        self.counter("iscsi_session_retries_total", session.retries);
        self.gauge("iscsi_session_commands_in_flight", commands.requests_in_flight);
        self.gauge("iscsi_session_bytes_in_flight", commands.bytes_in_flight);
        if let Some(time) = session.round_trip {
            let (name, kind) = ("iscsi_session_round_trip_seconds", SampleKind::Gauge);
            self.push(name, kind, time.as_secs_f64());
        }
    }

    /// Adds samples that have further labels.
    fn with<const N: usize>(
        &mut self,
        labels: [(&'static str, String); N],
        add: impl FnOnce(&mut Self),
    ) {
        let before = self.labels.len();
        self.labels.extend(labels);
        add(self);
        self.labels.truncate(before);
    }

    fn counter(&mut self, name: &'static str, value: u64) {
        self.push(name, SampleKind::Counter, value as f64);
    }

    fn seconds(&mut self, name: &'static str, time: Duration) {
        self.push(name, SampleKind::Counter, time.as_secs_f64());
    }

    fn gauge(&mut self, name: &'static str, value: u64) {
        self.push(name, SampleKind::Gauge, value as f64);
    }

    fn push(&mut self, name: &'static str, kind: SampleKind, value: f64) {
        self.samples.push(Sample { name, labels: self.labels.clone(), kind, value });
    }
}

/// Writes `name{label="value",...} 1`.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (at, (label, value)) in self.labels.iter().enumerate() {
            let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            write!(f, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' })?;
        }
        write!(f, "{} {}", if self.labels.is_empty() { "" } else { "}" }, self.value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn stats() -> DiskStats {
        let mut stats = DiskStats {
            target: "iqn.2026-01.org.example:disk".to_owned(),
            sessions: vec![SessionStats::default()],
            ..DiskStats::default()
        };
        stats.requests.reads.requests = 2;
        stats.requests.reads.bytes = 8192;
        stats.requests.reads.latency.record(Duration::from_millis(3));
        stats.requests.reads.latency.record(Duration::from_secs(90));
        stats
    }

    #[test]
    fn a_histogram_counts_upwards_and_ends_with_all() {
        let lines: Vec<_> = stats().samples().map(|sample| sample.to_string()).collect();
        let disk = r#"target="iqn.2026-01.org.example:disk",lun="0""#;
        let has = |line: String| assert!(lines.contains(&line), "{line} is not in {lines:#?}");
        has(format!("iscsi_disk_read_bytes_total{{{disk}}} 8192"));
        has(format!(r#"iscsi_disk_requests_total{{{disk},kind="read"}} 2"#));
        for (le, count) in [("0.0001", 0), ("0.002", 0), ("0.005", 1), ("60.0", 1), ("+Inf", 2)] {
            let name = "iscsi_disk_request_duration_seconds_bucket";
            has(format!(r#"{name}{{{disk},kind="read",le="{le}"}} {count}"#));
        }
        has(format!(r#"iscsi_disk_request_duration_seconds_sum{{{disk},kind="read"}} 90.003"#));
        has(format!(r#"iscsi_session_retries_total{{{disk},isid="000000000000",portal=""}} 0"#));
    }

    #[test]
    fn no_sample_comes_twice_and_what_only_grows_is_named_so() {
        let mut seen = BTreeSet::new();
        for sample in stats().samples() {
            assert!(seen.insert((sample.name, sample.labels.clone())), "{sample} comes twice");
            let ends = ["_total", "_bucket", "_sum", "_count"];
            let is_named_so = ends.iter().any(|end| sample.name.ends_with(end));
            assert_eq!(sample.kind == SampleKind::Counter, is_named_so, "{sample}");
        }
    }

    #[test]
    fn the_samples_of_a_metric_stand_together_and_its_buckets_rise() {
        let samples: Vec<_> = stats().samples().collect();
        assert!(samples.is_sorted_by_key(|sample| sample.name));
        let buckets = samples.iter().filter(|sample| sample.name.ends_with("_bucket"));
        let reads = buckets.filter(|sample| sample.labels.contains(&("kind", "read".to_owned())));
        assert!(reads.is_sorted_by(|a, b| a.value <= b.value));
    }

    #[test]
    fn label_values_are_escaped() {
        let labels = vec![("a", "x\"y\\z\n".to_owned())];
        let sample = Sample { name: "n", labels, kind: SampleKind::Gauge, value: 1.5 };
        assert_eq!(sample.to_string(), r#"n{a="x\"y\\z\n"} 1.5"#);
    }
}
