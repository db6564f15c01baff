//! Selects values of the programs' figures, and compares them with goals.

use crate::draw::group::parameter;
use crate::draw::table::Table;
use crate::result::{Figure, Outcome};
use crate::size::Size;

pub(super) const OURS: &str = "iscsi-initiator";
pub(super) const THEIRS: &str = "libiscsi";
pub(super) const BARE: &str = "TCP stream";

/// Selects a quantity of a figure; `None` if the figure lacks it.
pub(super) type What = fn(&Figure) -> Option<f64>;

pub(super) const MIB_PER_S: What =
    |figure| Some(figure.goodput_mbit_per_s? / 8.0 * 1e6 / f64::from(1 << 20));
pub(super) const PROCESSOR: What =
    |figure| Some(detail(figure, "cpu_seconds")? * 1e6 / requests(figure)?);
pub(super) const USER: What =
    |figure| Some(detail(figure, "user_seconds")? * 1e6 / requests(figure)?);
pub(super) const LATENCY: What = |figure| detail(figure, "latency_us");
pub(super) const FAULTS: What = |figure| Some(detail(figure, "minor_faults")? / requests(figure)?);
pub(super) const WAITS: What =
    |figure| Some(detail(figure, "voluntary_switches")? / requests(figure)?);
pub(super) const SWITCHES: What =
    |figure| Some(detail(figure, "involuntary_switches")? / requests(figure)?);
pub(super) const CALLS: What = |figure| Some(detail(figure, "system_calls")? / requests(figure)?);
pub(super) const TARGET: What = |figure| detail(figure, "target_busy");
pub(super) const IDLE: What = |figure| Some(detail(figure, "cpu_seconds")? / figure.seconds?);

fn detail(figure: &Figure, name: &str) -> Option<f64> {
    figure.detail.get(name)?.as_f64()
}

pub(super) fn requests(figure: &Figure) -> Option<f64> {
    let io: Size = parameter(figure, "io")?.parse().ok()?;
    Some(figure.bytes as f64 / io.0 as f64).filter(|requests| *requests > 0.0)
}

/// Returns the values of the figures, ascending.
fn values(figures: &[&Figure], what: What) -> Vec<f64> {
    let mut values: Vec<_> = figures.iter().filter_map(|figure| what(figure)).collect();
    values.sort_by(f64::total_cmp);
    values
}

pub(super) fn median(figures: &[&Figure], what: What) -> Option<f64> {
    let values = values(figures, what);
    let (low, high) =
        (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

pub(super) fn ratio((ours, theirs): (Option<f64>, Option<f64>)) -> Option<f64> {
    theirs.filter(|theirs| *theirs > 0.0).and_then(|theirs| Some(ours? / theirs))
}

/// The goal of a ratio.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// Returns the goal in words, and whether a ratio reached it.
    pub(super) fn judge(self, ratio: Option<f64>) -> String {
        let (words, met) = match self {
            Self::AtLeast(least) => {
                (format!("at least {least:.2}"), ratio.map(|ratio| ratio >= least))
            }
            Self::AtMost(most) => (format!("at most {most:.2}"), ratio.map(|ratio| ratio <= most)),
        };
        match met {
            Some(true) => format!("{words}: reached"),
            Some(false) => format!("{words}: missed"),
            None => words,
        }
    }
}

pub(super) fn ratio_words(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Returns the cell of a program: the median and the range of its runs, or the reason why it has no value.
pub(super) fn cell(table: &mut Table, figures: &[&Figure], what: What) -> String {
    if let Some(value) = median(figures, what) {
        return match values(figures, what).as_slice() {
            [least, .., most] => {
                format!("{} ({}..{})", number(value), number(*least), number(*most))
            }
            _ => number(value),
        };
    }
    match figures.first().map(|figure| &figure.outcome) {
        Some(Outcome::Skipped(reason)) => table.with_note("unsupported", reason.clone()),
        Some(Outcome::Failed(reason)) => table.with_note("failed", reason.clone()),
        Some(Outcome::TimedOut) => "no end in time".to_owned(),
        Some(Outcome::Complete) | None => "-".to_owned(),
    }
}

/// Formats a number with three significant digits.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.0995 => format!("{value:.2}"),
        _ if value > 0.0 => format!("{value:.4}"),
        _ => "0".to_owned(),
    }
}
