//! Runs this project's copy program.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use super::bench::Bench;
use super::end::{garbled, to_end};
use super::reading::Reading;
use crate::result::Outcome;
use crate::scenario::{Direction, Point};
use crate::testbed::url;

pub(super) async fn measure(point: &Point, bench: &Bench) -> Result<Reading, Outcome> {
    let unit = OsString::from(url(point.measure.lun));
    let (source, destination) = match point.measure.direction {
        Direction::Write => (bench.image.clone().into(), unit),
        Direction::Read => (unit, OsString::from(bench.copy.clone())),
    };
    let mut command = command(&bench.tree)?;
    command.args([source, destination]).args(["--json", "--progress", "none"]);
    command.args(&point.measure.args);
    let ended = to_end(&mut command, point.limit, "block-copy").await?;
    let reading = report(&ended.text())?;
    Ok(Reading { seconds: ended.time.as_secs_f64(), ..reading })
}

/// Parses the program's `--json` report. The reading lacks the time, which the caller sets.
pub(crate) fn report(text: &str) -> Result<Reading, Outcome> {
    parse(text).ok_or_else(|| garbled("block-copy", text))
}

/// Returns the command of the program, without arguments.
///
/// # Errors
/// [`Outcome::Failed`] with advice if the program is not built.
pub fn command(tree: &Path) -> Result<Command, Outcome> {
    let program = tree.join("block-copy");
    if !program.is_file() {
        let advice = "cargo build --release -p block-copy";
        return Err(Outcome::Failed(format!("{} is missing: {advice}", program.display())));
    }
    Ok(Command::new(program))
}

/// Parses the report of `--json`.
fn parse(text: &str) -> Option<Reading> {
    let mut detail: Value = serde_json::from_str(text).ok()?;
    let told = detail.as_object_mut()?;
    let samples = told.remove("samples_mbit_per_s")?;
    let goodput = told.remove("goodput_mbit_per_s").filter(Value::is_number)?;
    told.insert("told_mbit_per_s".to_owned(), goodput);
    Some(Reading { samples_mbit_per_s: numbers(&samples), detail, ..Reading::default() })
}

/// Returns the numbers of a JSON list.
fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"bytes":16777216,"cpu_seconds":0.19,"goodput_mbit_per_s":74.5,
        "io_size":1048576,"plan":{},"queue_depth":32,"reconnects":0,"retries":0,"rtt_ms":20.8,
        "samples_mbit_per_s":[58.7,92.3],"seconds":1.8,"sessions":1,"verified":false}"#;

    #[test]
    fn a_report_is_read() {
        let reading = parse(REPORT).unwrap();
        assert_eq!(reading.goodput_mbit_per_s, None);
        assert_eq!(reading.detail["told_mbit_per_s"], 74.5);
        assert_eq!(reading.samples_mbit_per_s, [58.7, 92.3]);
        assert_eq!(reading.detail["queue_depth"], 32);
        assert!(reading.detail.get("samples_mbit_per_s").is_none());
    }

    #[test]
    fn what_is_no_report_is_none() {
        for text in ["", "copied 16M", "{}", r#"{"goodput_mbit_per_s":1}"#] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
