//! Writes statistics as text for systems that collect metrics.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::multipath::stats::DiskStats;
use crate::multipath::stats::samples::Sample;

/// A text format for metrics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4, which every collector reads.
    #[default]
    Prometheus,
    /// OpenMetrics, version 1.0.0, for a collector that requests it in its `Accept` header.
    OpenMetrics,
}

impl MetricsFormat {
    /// Returns the value of the `Content-Type` header of an HTTP response in this format.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Type of a metric: how its samples belong together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Type {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }

    /// Returns the suffixes that samples of this type append to the name of their metric.
    const fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Counter => &["_total"],
            Self::Gauge => &[""],
            Self::Histogram => &["_bucket", "_count", "_sum"],
            Self::Summary => &["_count", "_sum"],
        }
    }
}

/// Name of each metric without a suffix, its type, and its description.
const METRICS: &[(&str, Type, &str)] = &[
    ("iscsi_disk_capacity_bytes", Type::Gauge, "Capacity of the logical unit."),
    ("iscsi_disk_read_bytes", Type::Counter, "Bytes that callers have read."),
    ("iscsi_disk_written_bytes", Type::Counter, "Bytes that callers have written."),
    ("iscsi_disk_requests", Type::Counter, "Requests of callers that ended well, by kind."),
    ("iscsi_disk_errors", Type::Counter, "Requests of callers that failed, by kind."),
    (
        "iscsi_disk_request_duration_seconds",
        Type::Histogram,
        "Time that callers waited for requests that ended well, by kind.",
    ),
    ("iscsi_disk_requests_in_flight", Type::Gauge, "Requests of callers that have not ended."),
    ("iscsi_disk_bytes_in_flight", Type::Gauge, "Bytes of the requests that have not ended."),
    ("iscsi_disk_retries", Type::Counter, "Commands that were sent again."),
    (
        "iscsi_disk_duplicates",
        Type::Counter,
        "Requests that were late on one session and sent over another one as well.",
    ),
    ("iscsi_disk_sessions", Type::Gauge, "Sessions with the target."),
    ("iscsi_disk_sessions_lost", Type::Counter, "Sessions that were lost."),
    ("iscsi_disk_sessions_reopened", Type::Counter, "Lost sessions that have reconnected."),
    ("iscsi_disk_budget_waits", Type::Counter, "Requests that had to wait for memory."),
    ("iscsi_disk_budget_wait_seconds", Type::Counter, "Time that requests have waited for memory."),
    ("iscsi_session_round_trip_seconds", Type::Gauge, "Round-trip time of the connection."),
    ("iscsi_session_read_bytes", Type::Counter, "Bytes read over the session."),
    ("iscsi_session_written_bytes", Type::Counter, "Bytes written over the session."),
    ("iscsi_session_commands", Type::Counter, "Commands that ended well, by kind."),
    ("iscsi_session_errors", Type::Counter, "Commands that failed, by kind."),
    (
        "iscsi_session_command_duration_seconds",
        Type::Summary,
        "Time that commands took which ended well, by kind.",
    ),
    ("iscsi_session_retries", Type::Counter, "Commands that were sent again over the session."),
    ("iscsi_session_commands_in_flight", Type::Gauge, "Commands that have not ended."),
    ("iscsi_session_bytes_in_flight", Type::Gauge, "Bytes of the commands that have not ended."),
];

/// Writes the statistics of any number of disks as text that Prometheus and other collectors of metrics can
/// read. [`DiskStats::samples`] lists the metrics and their labels.
///
/// Each metric is written once, with its `HELP` and `TYPE`, followed by the samples of all disks. If several
/// disks have the same target and LUN, the samples of the second and later ones have a further label
/// `handle`, which counts from 2 in the order of `disks`. So pass the disks in the same order in every call.
///
/// ```
/// use iscsi_initiator::{Disk, DiskStats, MetricsFormat, write_metrics};
///
/// fn metrics(disks: &[Disk]) -> String {
///     let stats: Vec<DiskStats> = disks.iter().map(Disk::stats).collect();
///     let mut text = String::new();
///     // Writing to a string cannot fail.
///     _ = write_metrics(&mut text, MetricsFormat::Prometheus, &stats);
///     text
/// }
/// # assert_eq!(metrics(&[]), "");
/// ```
///
/// # Errors
/// Errors of `out`.
#[doc(alias = "prometheus")]
#[doc(alias = "openmetrics")]
pub fn write_metrics(
    out: &mut dyn Write,
    format: MetricsFormat,
    disks: &[DiskStats],
) -> fmt::Result {
    let mut by_metric = grouped(disks);
    for (name, kind, help) in METRICS {
        let Some(samples) = by_metric.remove(name) else { continue };
        // In OpenMetrics, the `HELP` and `TYPE` lines name a counter without its suffix.
        let suffix = match (format, kind) {
            (MetricsFormat::Prometheus, Type::Counter) => "_total",
            (MetricsFormat::Prometheus | MetricsFormat::OpenMetrics, _) => "",
        };
        let kind = kind.name();
        writeln!(out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}")?;
        samples.values().flatten().try_for_each(|sample| writeln!(out, "{sample}"))?;
    }
    match format {
        MetricsFormat::Prometheus => Ok(()),
        MetricsFormat::OpenMetrics => out.write_str("# EOF\n"),
    }
}

/// Samples by their labels. The label `le` is ignored, so all samples of a histogram have one entry.
type ByLabels = BTreeMap<Vec<(&'static str, String)>, Vec<Sample>>;

/// Returns the samples of all disks by metric.
fn grouped(disks: &[DiskStats]) -> BTreeMap<&'static str, ByLabels> {
    let mut by_metric: BTreeMap<&str, ByLabels> = BTreeMap::new();
    let mut handles = BTreeMap::new();
    for stats in disks {
        let handle = handles.entry((&stats.target, stats.lun.to_string())).or_insert(0_u64);
        *handle += 1;
        for mut sample in stats.samples() {
            if *handle > 1 {
                sample.labels.push(("handle", handle.to_string()));
            }
            let Some(metric) = metric_of(sample.name) else { continue };
            let mut labels = sample.labels.clone();
            labels.retain(|(name, _)| *name != "le");
            by_metric.entry(metric).or_default().entry(labels).or_default().push(sample);
        }
    }
    by_metric
}

/// Returns the metric that a sample with this name belongs to.
fn metric_of(sample: &str) -> Option<&'static str> {
    let is_of = |(name, kind, _): &&(&str, Type, &str)| {
        let suffix = sample.strip_prefix(*name);
        suffix.is_some_and(|suffix| kind.suffixes().contains(&suffix))
    };
    METRICS.iter().find(is_of).map(|(name, ..)| *name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::multipath::stats::SessionStats;

    fn disk(target: &str) -> DiskStats {
        let session = SessionStats {
            portal: "192.0.2.1:3260".to_owned(),
            round_trip: Some(Duration::from_millis(80)),
            ..SessionStats::default()
        };
        let mut stats = DiskStats { target: target.to_owned(), ..DiskStats::default() };
        (stats.capacity, stats.sessions) = (1 << 40, vec![session]);
        stats.requests.reads.requests = 3;
        for milliseconds in [1, 30, 90_000] {
            stats.requests.reads.latency.record(Duration::from_millis(milliseconds));
        }
        stats
    }

    fn text(format: MetricsFormat, disks: &[DiskStats]) -> String {
        let mut text = String::new();
        write_metrics(&mut text, format, disks).unwrap();
        text
    }

    type Labels = Vec<(String, String)>;

    /// Parses a line of a sample: the name, the labels, the value.
    fn sample(line: &str) -> (String, Labels, f64) {
        let (name, mut rest) = line.split_once('{').unwrap();
        let mut labels = Labels::new();
        while !rest.starts_with('}') {
            let (label, quoted) = rest.trim_start_matches(',').split_once("=\"").unwrap();
            let (mut value, mut letters) = (String::new(), quoted.char_indices());
            let end = loop {
                match letters.next().unwrap() {
                    (at, '"') => break at + 1,
                    (_, '\\') => value.push(match letters.next().unwrap().1 {
                        'n' => '\n',
                        letter @ ('"' | '\\') => letter,
                        other => panic!("an escape of {other}"),
                    }),
                    (_, letter) => value.push(letter),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &quoted[end..];
        }
        (name.to_owned(), labels, rest.strip_prefix("} ").unwrap().parse().unwrap())
    }

    /// Parses a text as strictly as its format is defined: HELP and TYPE once, before the samples of a
    /// metric; no sample twice; no sample of another metric in between; and the buckets of a histogram in
    /// ascending order, up to the count.
    fn parse(format: MetricsFormat, text: &str) -> Vec<(String, Labels, f64)> {
        let is_open = format == MetricsFormat::OpenMetrics;
        let text = if is_open { text.strip_suffix("# EOF\n").unwrap() } else { text };
        let (mut metrics, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let (mut metric, mut kind, mut samples) = ("", "", Vec::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(described) = line.strip_prefix("# HELP ") {
                metric = described.split_once(' ').unwrap().0;
                assert!(metrics.insert(metric), "{metric} comes twice");
                let typed = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
                kind = typed.and_then(|typed| typed.strip_prefix(metric)).unwrap().trim_start();
                continue;
            }
            let (name, labels, value) = sample(line);
            let suffixes: &[&str] = match kind {
                "counter" if is_open => &["_total"],
                "counter" | "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                "summary" => &["_sum", "_count"],
                other => panic!("a type {other}"),
            };
            let suffix = name.strip_prefix(metric).unwrap();
            assert!(suffixes.contains(&suffix), "{line} is not of the {kind} {metric}");
            assert!(seen.insert((name.clone(), labels.clone())), "{line} comes twice");
            samples.push((name, labels, value));
        }
        samples
    }

    fn is_labelled(labels: &Labels, label: (&str, &str)) -> bool {
        labels.iter().any(|(name, value)| (&**name, &**value) == label)
    }

    #[test]
    fn any_number_of_disks_is_one_text_that_a_collector_reads() {
        let odd = "iqn.2026-01.a:\"x\\y\nz";
        for format in [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics] {
            // The third disk is a second handle of the first disk's unit.
            let disks = [disk("iqn.2026-01.a:b"), disk(odd), disk("iqn.2026-01.a:b")];
            let samples = parse(format, &text(format, &disks));
            assert_eq!(samples.len(), disks.iter().flat_map(DiskStats::samples).count());
            for (name, expected) in [
                ("iscsi_disk_capacity_bytes", f64::from(1 << 20) * f64::from(1 << 20)),
                ("iscsi_session_round_trip_seconds", 0.08),
            ] {
                let found: Vec<_> = samples.iter().filter(|(of, ..)| of == name).collect();
                assert_eq!(found.len(), 3, "{name}");
                assert!(
                    found.iter().all(|(.., value)| (value - expected).abs() < 1e-9),
                    "{found:?}"
                );
                assert!(found.iter().any(|(_, labels, _)| is_labelled(labels, ("target", odd))));
                let seconds =
                    found.iter().filter(|(_, labels, _)| is_labelled(labels, ("handle", "2")));
                assert_eq!(seconds.count(), 1);
            }
            assert_eq!(parse(format, &text(format, &[])), []);
        }
    }

    /// The buckets, the count and the sum of one kind of request stand together, as OpenMetrics requires.
    #[test]
    fn a_histogram_is_whole_and_counts_upwards() {
        let format = MetricsFormat::OpenMetrics;
        let samples = parse(format, &text(format, &[disk("iqn.2026-01.a:b")]));
        let of_reads = |(name, labels, _): &&(String, Labels, f64)| {
            name.starts_with("iscsi_disk_request_duration") && is_labelled(labels, ("kind", "read"))
        };
        let first = samples.iter().position(|sample| of_reads(&sample)).unwrap();
        let run: Vec<_> = samples[first..].iter().take_while(of_reads).collect();
        assert_eq!(run.len(), samples.iter().filter(of_reads).count(), "it is not interrupted");
        let buckets: Vec<_> = run.iter().filter(|(name, ..)| name.ends_with("_bucket")).collect();
        let bound = |labels: &Labels| labels.last().unwrap().1.parse::<f64>().unwrap();
        assert!(buckets.is_sorted_by(|a, b| bound(&a.1) < bound(&b.1) && a.2 <= b.2));
        let (_, labels, last) = buckets.last().unwrap();
        assert_eq!((is_labelled(labels, ("le", "+Inf")), *last), (true, 3.0));
        let value = |suffix: &str| run.iter().find(|(name, ..)| name.ends_with(suffix)).unwrap().2;
        assert_eq!(value("_count"), 3.0);
        assert!((value("_sum") - 90.031).abs() < 1e-9);
    }

    #[test]
    fn each_sample_has_a_description_and_each_description_a_sample() {
        let samples: BTreeSet<_> = disk("a").samples().map(|sample| sample.name).collect();
        let described: BTreeSet<_> = samples.iter().filter_map(|name| metric_of(name)).collect();
        assert_eq!(described.len(), METRICS.len());
        assert!(samples.iter().all(|name| metric_of(name).is_some()), "{samples:?}");
    }
}
