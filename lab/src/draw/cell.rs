//! The result of a measurement, as medians over its repetitions.

use serde_json::Value;

use super::group::direction;
use super::text;
use crate::result::{Figure, Outcome};

/// Medians of the repetitions that completed, and the first failure among the others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    /// Payload rate over the whole run, 10^6 bits per second.
    pub(super) goodput: Option<f64>,
    /// Payload rate from the fifth second on, 10^6 bits per second.
    pub(super) steady: Option<f64>,
    /// Time of the run beyond the time that its bytes need at the link's rate, seconds.
    pub(super) start: Option<f64>,
    /// Time from the program's start to its end, seconds.
    pub(super) whole: Option<f64>,
    /// Data that crossed the link in the direction of the copy, MiB.
    pub(super) carried: Option<f64>,
    /// Memory that the unit takes afterwards, MiB.
    pub(super) allocated: Option<f64>,
    /// Number of sessions that were lost and reconnected, in the worst repetition.
    pub(super) reconnects: Option<f64>,
    /// Number of repetitions.
    pub(super) runs: usize,
    /// Number of repetitions that completed.
    pub(super) complete: usize,
    /// Reason of the first repetition that did not complete. `None` if all did.
    pub(super) trouble: Option<Trouble>,
}

/// The reason why a measurement has no figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trouble {
    /// The measurement reached its time limit: that limit in seconds, if the figure has it.
    TimedOut(Option<f64>),
    /// The measurement failed, for this reason.
    Failed(String),
    /// The measurement was not made, for this reason.
    Skipped(String),
}

/// A value that a table shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Quantity {
    /// Payload rate over the whole run.
    Goodput,
    /// Payload rate from the fifth second on.
    Steady,
    /// Time of the run beyond the time that its bytes need at the link's rate.
    Start,
    /// Time from the program's start to its end.
    Whole,
    /// Data that crossed the link in the direction of the copy, with all headers.
    Carried,
    /// Memory that the unit takes afterwards.
    Allocated,
    /// Number of sessions that were lost and reconnected.
    Reconnects,
}

impl Cell {
    /// Returns the cell of the repetitions of a measurement; `None` without any.
    pub(super) fn of(repetitions: &[&Figure]) -> Option<Self> {
        let whole: Vec<_> =
            repetitions.iter().filter(|figure| figure.outcome == Outcome::Complete).collect();
        let over = |value: fn(&Figure) -> Option<f64>| {
            median(whole.iter().filter_map(|figure| value(figure)).collect())
        };
        (!repetitions.is_empty()).then(|| Self {
            goodput: over(|figure| figure.goodput_mbit_per_s),
            steady: over(|figure| figure.steady_mbit_per_s),
            start: over(|figure| figure.start_seconds),
            whole: over(|figure| figure.seconds),
            carried: over(carried_mib),
            allocated: over(|figure| figure.allocated_bytes.map(mib)),
            reconnects: whole.iter().filter_map(|figure| reconnects(figure)).max_by(f64::total_cmp),
            runs: repetitions.len(),
            complete: whole.len(),
            trouble: repetitions.iter().find_map(|figure| Trouble::of(figure)),
        })
    }

    /// Returns the median of a quantity.
    pub(super) fn median(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::Goodput => self.goodput,
            Quantity::Steady => self.steady,
            Quantity::Start => self.start,
            Quantity::Whole => self.whole,
            Quantity::Carried => self.carried,
            Quantity::Allocated => self.allocated,
            Quantity::Reconnects => self.reconnects,
        }
    }

    /// Returns whether the measurement was made and no bytes arrived within the time limit.
    pub(super) fn timed_out(&self) -> bool {
        self.complete == 0 && matches!(self.trouble, Some(Trouble::TimedOut(_)))
    }

    /// Returns whether the measurement was made.
    pub(super) fn was_tried(&self) -> bool {
        !matches!(self.trouble, Some(Trouble::Skipped(_)))
    }

    /// Returns the text of a table's cell for one quantity.
    pub(super) fn text(&self, quantity: Quantity) -> String {
        match (&self.trouble, self.median(quantity)) {
            (_, Some(value)) => match quantity {
                Quantity::Start | Quantity::Whole => text::seconds(value),
                Quantity::Reconnects => text::plain(value),
                Quantity::Goodput | Quantity::Steady | Quantity::Carried | Quantity::Allocated => {
                    text::rate(value)
                }
            },
            (Some(trouble), None) if self.complete == 0 => trouble.text(),
            (_, None) => "-".into(),
        }
    }

    /// Returns the text of a footnote, if the cell needs one.
    pub(super) fn note(&self) -> Option<String> {
        let trouble = self.trouble.as_ref()?;
        match self.complete {
            0 => trouble.reason(),
            complete => Some(format!(
                "{complete} of {} repetitions came to their end; of the others the first: {}",
                self.runs,
                trouble.reason().unwrap_or_else(|| trouble.text())
            )),
        }
    }
}

impl Trouble {
    fn of(figure: &Figure) -> Option<Self> {
        match &figure.outcome {
            Outcome::Complete => None,
            Outcome::TimedOut => Some(Self::TimedOut(limit_seconds(figure))),
            Outcome::Failed(reason) => Some(Self::Failed(reason.clone())),
            Outcome::Skipped(reason) => Some(Self::Skipped(reason.clone())),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::TimedOut(Some(limit)) => format!("none in {} s", text::plain(limit.round())),
            Self::TimedOut(None) => "none in time".into(),
            Self::Failed(_) => "failed".into(),
            Self::Skipped(_) => "-".into(),
        }
    }

    fn reason(&self) -> Option<String> {
        match self {
            Self::TimedOut(_) => None,
            Self::Failed(reason) => Some(format!("failed: {}", reason.trim())),
            Self::Skipped(reason) => Some(format!("skipped: {}", reason.trim())),
        }
    }
}

/// Returns the data that crossed the link in the direction of the copy, MiB.
fn carried_mib(figure: &Figure) -> Option<f64> {
    let carried = figure.carried?;
    Some(mib(if direction(figure) == "read" { carried.received } else { carried.sent }))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns the number of sessions that the program reports as lost and reconnected.
fn reconnects(figure: &Figure) -> Option<f64> {
    figure.detail.get("reconnects").and_then(Value::as_f64)
}

/// Returns the time of a figure, seconds: its own time if it has one, else `limit_seconds` of its detail.
fn limit_seconds(figure: &Figure) -> Option<f64> {
    let told = figure.detail.get("limit_seconds").and_then(Value::as_f64);
    figure.seconds.or(told)
}

/// Returns the middle value, or the mean of the two in the middle; `None` without values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{figure, outcome};
    use super::*;
    use crate::result::Carried;

    fn cell(figures: &[Figure]) -> Cell {
        Cell::of(&figures.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_there() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![5.0]), Some(5.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn repetitions_become_their_median() {
        let cell = cell(&[90.0, 10.0, 80.0].map(|rate| figure("block-copy", 40.0, rate)));
        assert_eq!(cell.text(Quantity::Goodput), "80.0");
        assert_eq!(cell.text(Quantity::Steady), "-");
        assert_eq!(cell.note(), None);
    }

    #[test]
    fn nothing_in_time_is_told_with_the_limit() {
        let late = outcome("qemu-img", 100.0, Outcome::TimedOut);
        assert_eq!(cell(std::slice::from_ref(&late)).text(Quantity::Goodput), "none in time");
        let limited = Figure { detail: serde_json::json!({ "limit_seconds": 150 }), ..late };
        let cell = cell(&[limited]);
        assert!(cell.timed_out());
        assert_eq!(cell.text(Quantity::Steady), "none in 150 s");
        assert_eq!(cell.note(), None);
    }

    #[test]
    fn failed_and_skipped_tell_their_reasons() {
        let failed = cell(&[outcome("iperf3", 4.0, Outcome::Failed("no route\n".into()))]);
        let skipped = cell(&[outcome("iperf3", 4.0, Outcome::Skipped("not installed".into()))]);
        assert_eq!([&failed, &skipped].map(|c| c.text(Quantity::Goodput)), ["failed", "-"]);
        assert_eq!(failed.note().unwrap(), "failed: no route");
        assert_eq!(skipped.note().unwrap(), "skipped: not installed");
        assert!(!failed.timed_out() && !skipped.timed_out());
    }

    #[test]
    fn a_lost_repetition_leaves_the_median_and_a_note() {
        let cell = cell(&[figure("iperf3", 4.0, 95.0), outcome("iperf3", 4.0, Outcome::TimedOut)]);
        assert_eq!(cell.text(Quantity::Goodput), "95.0");
        assert!(!cell.timed_out());
        assert!(cell.note().unwrap().starts_with("1 of 2 repetitions"));
    }

    #[test]
    fn what_crossed_the_link_is_told_the_way_the_data_goes() {
        let carried = Some(Carried { sent: 3 << 20, received: 1 << 20 });
        let mut read = Figure { carried, ..figure("qemu-img", 4.0, 10.0) };
        read.allocated_bytes = Some(2 << 20);
        let write = cell(std::slice::from_ref(&read));
        read.parameters.insert("direction".into(), "read".into());
        let read = cell(&[read]);
        assert_eq!(
            [&write, &read].map(|cell| cell.median(Quantity::Carried)),
            [Some(3.0), Some(1.0)]
        );
        assert_eq!(write.median(Quantity::Allocated), Some(2.0));
    }
}
