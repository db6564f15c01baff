//! Makes figures: readings, with the values that follow from them.

use serde_json::{Value, json};

use crate::failover::{self, FailoverFigure};
use crate::faults::FaultFigure;
use crate::flows::FlowsFigure;
use crate::mirror::{self, MirrorFigure};
use crate::peers::Reading;
use crate::rate::{mbit_per_s, start, steady};
use crate::result::{Figure, LinkConditions, Outcome};
use crate::scenario::Point;

impl Figure {
    /// Returns the figure of one measurement.
    pub fn new(point: &Point, reading: Result<Reading, Outcome>) -> Self {
        let none = Self {
            link: point.link.clone(),
            who: point.measure.name().to_owned(),
            parameters: point.parameters.clone(),
            outcome: Outcome::Complete,
            bytes: point.bytes,
            seconds: None,
            goodput_mbit_per_s: None,
            steady_mbit_per_s: None,
            start_seconds: None,
            samples_mbit_per_s: Vec::new(),
            carried: None,
            allocated_bytes: None,
            detail: Value::Null,
        };
        match reading {
            Ok(reading) => none.with(reading),
            Err(outcome) => Self { detail: limit(&outcome, point), outcome, ..none },
        }
    }

    /// Returns the figure of a copy through a fault. It has no rate, since the fault determines how long the
    /// copy takes.
    pub fn of_fault(point: &Point, outcome: Outcome, told: Option<FaultFigure>) -> Self {
        let none = Self::new(point, Err(outcome));
        let Some(told) = told else { return none };
        let seconds = Some(told.copied.seconds);
        Self { seconds, detail: serde_json::to_value(told).unwrap_or_default(), ..none }
    }

    /// Returns the figure of flows with a limited rate.
    pub fn of_flows(point: &Point, told: Result<FlowsFigure, Outcome>) -> Self {
        match told {
            Ok(told) => {
                let none = Self::new(point, Err(Outcome::Complete));
                let seconds = told.seconds.last().copied();
                Self { seconds, detail: serde_json::to_value(told).unwrap_or_default(), ..none }
            }
            Err(outcome) => Self::new(point, Err(outcome)),
        }
    }

    /// Returns the figure of a mirror. If disk and unit were never equal, the figure says how far the mirror came.
    pub fn of_mirror(point: &Point, told: Result<MirrorFigure, Outcome>) -> Self {
        match told {
            Ok(told) => Self {
                outcome: mirror::judge(&told),
                seconds: told.ready_seconds,
                detail: serde_json::to_value(told).unwrap_or_default(),
                ..Self::new(point, Err(Outcome::Complete))
            },
            Err(outcome) => Self::new(point, Err(outcome)),
        }
    }

    /// Returns the figure of a failover.
    pub fn of_failover(point: &Point, told: Result<FailoverFigure, Outcome>) -> Self {
        match told {
            Ok(told) => Self {
                outcome: failover::judge(&told),
                seconds: Some(told.seconds),
                detail: serde_json::to_value(told).unwrap_or_default(),
                ..Self::new(point, Err(Outcome::Complete))
            },
            Err(outcome) => Self::new(point, Err(outcome)),
        }
    }

    /// Returns the figure of units that are joined to one device. It has no start time, since that would need
    /// the rate of a single link.
    pub fn of_stripe(point: &Point, reading: Result<Reading, Outcome>) -> Self {
        Self { start_seconds: None, ..Self::new(point, reading) }
    }

    fn with(self, reading: Reading) -> Self {
        let (bytes, seconds) = (reading.bytes.unwrap_or(self.bytes), reading.seconds);
        let goodput = reading.goodput_mbit_per_s.unwrap_or_else(|| mbit_per_s(bytes, seconds));
        Self {
            bytes,
            seconds: Some(seconds),
            goodput_mbit_per_s: Some(goodput),
            steady_mbit_per_s: steady(&reading.samples_mbit_per_s, bytes),
            start_seconds: start(&self.link, bytes, seconds),
            samples_mbit_per_s: reading.samples_mbit_per_s,
            detail: reading.detail,
            ..self
        }
    }

    /// Returns the figure as one line of text.
    pub fn line(&self) -> String {
        let special = self.parameters.iter().filter(|(key, value)| {
            // A figure without a direction is a write.
            (key.as_str(), value.as_str()) != ("direction", "write")
        });
        let special: Vec<_> = special.map(|(key, value)| format!("{key}={value}")).collect();
        let mut line = format!("{}: {} {}", link(&self.link), self.who, special.join(" "));
        line.truncate(line.trim_end().len());
        line + ": " + &self.outcome_text()
    }

    /// Returns the longest time without progress, if it was measured.
    fn stalled_seconds(&self) -> Option<f64> {
        self.detail.get("stalled_seconds").and_then(Value::as_f64)
    }

    fn outcome_text(&self) -> String {
        match &self.outcome {
            Outcome::Complete => [
                self.goodput_mbit_per_s.map(|rate| format!("{rate:.1} Mbit/s")),
                self.steady_mbit_per_s.map(|rate| format!("steady {rate:.1}")),
                self.start_seconds.map(|start| format!("start {start:.2} s")),
                self.seconds.map(|seconds| format!("in {seconds:.2} s")),
                self.stalled_seconds().map(|seconds| format!("stalled {seconds:.2} s")),
            ]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
            Outcome::TimedOut => "no end within its time".to_owned(),
            Outcome::Failed(reason) => format!("failed: {reason}"),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
        }
    }
}

/// Returns the time limit as the detail of a measurement that reached it; null for all others.
fn limit(outcome: &Outcome, point: &Point) -> Value {
    match outcome {
        Outcome::TimedOut => json!({ "limit_seconds": point.limit.as_secs() }),
        Outcome::Complete | Outcome::Failed(_) | Outcome::Skipped(_) => Value::Null,
    }
}

fn link(link: &LinkConditions) -> String {
    let rate = link.rate_mbit_per_s.map_or_else(String::new, |rate| format!(", {rate} Mbit/s"));
    let loss = if link.loss_percent > 0.0 {
        format!(", {} % lost", link.loss_percent)
    } else {
        String::new()
    };
    format!("{} ms{rate}{loss}", link.rtt_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn point() -> Point {
        let text = r#"
            title = "one"
            target = { luns = ["0:10M"] }
            link = [{ rtt_ms = [100], rate = ["100mbit"], loss = [0.1] }]
            measure = [{ who = "qemu-img" }]
        "#;
        Scenario::parse(text).unwrap().points().remove(0)
    }

    #[test]
    fn the_rate_of_a_measure_by_time_stands() {
        let reading =
            Reading { seconds: 15.5, goodput_mbit_per_s: Some(95.0), ..Reading::default() };
        assert_eq!(Figure::new(&point(), Ok(reading)).goodput_mbit_per_s, Some(95.0));
    }

    #[test]
    fn a_reading_without_a_rate_gets_one_from_its_time() {
        let reading = Reading { seconds: 2.0, ..Reading::default() };
        let figure = Figure::new(&point(), Ok(reading));
        assert!(figure.goodput_mbit_per_s.is_some_and(|rate| (rate - 41.943_04).abs() < 1e-6));
        assert!(figure.start_seconds.is_some_and(|start| start > 1.0 && start < 1.2));
        assert_eq!(figure.steady_mbit_per_s, None);
        assert_eq!(figure.outcome, Outcome::Complete);
    }

    #[test]
    fn the_line_of_a_failover_tells_how_long_nothing_moved() {
        let told = FailoverFigure {
            stalled_seconds: 1.5,
            seconds: 12.0,
            equal: true,
            ..FailoverFigure::default()
        };
        let figure = Figure::of_failover(&point(), Ok(told));
        assert!(figure.line().ends_with(": in 12.00 s, stalled 1.50 s"), "{}", figure.line());
    }

    #[test]
    fn no_reading_is_no_figure_but_an_outcome() {
        let figure = Figure::new(&point(), Err(Outcome::TimedOut));
        assert_eq!((figure.seconds, figure.outcome.clone()), (None, Outcome::TimedOut));
        assert_eq!(figure.detail["limit_seconds"], 300);
        assert_eq!(
            figure.line(),
            "100 ms, 100 Mbit/s, 0.1 % lost: qemu-img: no end within its time"
        );
    }
}
