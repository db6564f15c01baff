//! A page of metrics: those of the program, and those of its units.

use std::fmt::Write as _;

use iscsi_initiator::{Disk, DiskStats, MetricsFormat, write_metrics};

/// The metrics of a program at one moment.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The metrics of the program itself.
    pub families: Vec<MetricFamily>,
    /// The statistics of its units.
    pub disks: Vec<DiskStats>,
}

impl Page {
    /// Returns the text of the page. A quantity without samples is left out.
    pub(super) fn text(&self, format: MetricsFormat) -> String {
        let mut text = self.families.iter().map(|family| family.text(format)).collect();
        // Writing to a string cannot fail.
        _ = write_metrics(&mut text, format, &self.disks);
        text
    }
}

/// Returns how many TCP segments were sent again, over the open sessions of a unit.
pub async fn retransmitted_segments(disk: &Disk) -> u64 {
    let mut segments = 0;
    for session in disk.sessions() {
        // A session that has ended cannot be read, and is skipped.
        if let Ok(reading) = session.reading().await {
            segments += u64::from(reading.tcp_info().segments_retransmitted.unwrap_or_default());
        }
    }
    segments
}

/// The type of a metric, by which its samples are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricType {
    /// A number that rises and falls.
    Gauge,
    /// A number that only rises, from 0 at the start of the program. Its samples have the suffix `_total`.
    Counter,
}

/// Labels of a sample: their names, and their values.
pub type Labels = Vec<(&'static str, String)>;

/// A metric of a program, with a sample for each thing that has it, such as each copy.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    name: String,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(String, f64)>,
}

impl MetricFamily {
    /// Creates a quantity without samples. The name contains the unit, and no suffix `_total`.
    pub fn new(name: impl Into<String>, kind: MetricType, help: &'static str) -> Self {
        Self { name: name.into(), help, kind, samples: Vec::new() }
    }

    /// Adds the number that a thing has.
    #[must_use]
    pub fn with(self, labels: &Labels, value: f64) -> Self {
        self.with_text(&braced(labels), value)
    }

    /// Adds a number if it is known.
    #[must_use]
    pub fn with_known(self, labels: &Labels, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(labels, value),
            None => self,
        }
    }

    /// Adds a number with labels in their form on the page, `{name="value"}`, or with none.
    #[must_use]
    pub fn with_text(mut self, labels: &str, value: f64) -> Self {
        self.samples.push((labels.to_owned(), value));
        self
    }

    /// Returns the lines of the quantity; nothing if it has no samples.
    #[must_use]
    pub fn text(&self, format: MetricsFormat) -> String {
        let Self { name, help, kind, samples } = self;
        if samples.is_empty() {
            return String::new();
        }
        let (kind, suffix) = match kind {
            MetricType::Gauge => ("gauge", ""),
            MetricType::Counter => ("counter", "_total"),
        };
        // In OpenMetrics, these two lines name a counter without its suffix.
        let named = if format == MetricsFormat::OpenMetrics { "" } else { suffix };
        let mut text = format!("# HELP {name}{named} {help}\n# TYPE {name}{named} {kind}\n");
        for (labels, value) in samples {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{name}{suffix}{labels} {value}");
        }
        text
    }
}

/// Returns labels in their form on the page.
fn braced(labels: &Labels) -> String {
    let escaped =
        |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let pairs = pairs.collect::<Vec<_>>().join(",");
    if pairs.is_empty() { pairs } else { format!("{{{pairs}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_either_format() {
        let side = |side: &str| vec![("side", side.to_owned())];
        let families = vec![
            MetricFamily::new("a_bytes", MetricType::Counter, "Bytes.").with(&Vec::new(), 5.0),
            MetricFamily::new("a_sessions", MetricType::Gauge, "Sessions.")
                .with(&side("source"), 2.0)
                .with(&side("a \"b\\\nc"), 0.5)
                .with_known(&side("none"), None),
            MetricFamily::new("a_nothing", MetricType::Gauge, "Nothing."),
        ];
        let sessions = "# HELP a_sessions Sessions.\n\
                        # TYPE a_sessions gauge\n\
                        a_sessions{side=\"source\"} 2\n\
                        a_sessions{side=\"a \\\"b\\\\\\nc\"} 0.5\n";
        let page = Page { families, disks: Vec::new() };
        assert_eq!(
            page.text(MetricsFormat::OpenMetrics),
            format!(
                "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\na_bytes_total 5\n{sessions}# EOF\n"
            )
        );
        assert_eq!(
            page.text(MetricsFormat::Prometheus),
            format!(
                "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_bytes_total 5\n{sessions}"
            )
        );
    }

    #[test]
    fn a_unit_is_on_the_page_of_the_program() {
        let mut stats = DiskStats::default();
        stats.capacity = 7;
        let page = Page { families: Vec::new(), disks: vec![stats] };
        assert!(
            page.text(MetricsFormat::Prometheus).contains("iscsi_disk_capacity_bytes{"),
            "{page:?}"
        );
    }
}
