//! Runs fio, which writes to the disk by NBD in place of a running machine.

use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::error::Error;
use crate::peers::not_started;
use crate::process::Group;
use crate::result::Outcome;
use crate::scenario;

/// Time limit for fio to exit after the signal.
const END: Duration = Duration::from_secs(60);
/// Run time that is given to fio: longer than any mirror, since the lab always ends fio.
const RUNTIME: Duration = Duration::from_secs(86_400);
const PROGRAM: &str = "fio";

/// Counts of fio's writes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoadFigure {
    /// Bytes written.
    pub bytes: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Mean latency of a write, milliseconds.
    pub mean_ms: f64,
    /// Latency that 99 % of the writes did not exceed, milliseconds.
    pub p99_ms: f64,
}

/// The running fio.
#[derive(Debug)]
pub(super) struct Load(Group);

impl Load {
    /// Begins to write to a disk of `bytes` bytes.
    pub(super) fn start(load: &scenario::Load, uri: String, bytes: u64) -> Result<Self, Outcome> {
        let mut command = Command::new(PROGRAM);
        command.args(words(load, &uri, bytes));
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        Group::start(&mut command).map(Self).map_err(|error| not_started(error, "fio"))
    }

    /// Checks that fio is still running.
    pub(super) fn must_run(&mut self) -> Result<(), Error> {
        match self.0.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(failure(format!("it has ended before its time: {status}"))),
        }
    }

    /// Waits for the writes in flight, and ends fio.
    pub(super) async fn end(mut self) -> Result<LoadFigure, Error> {
        self.0.ask_to_end();
        let mut told = String::new();
        if let Some(output) = &mut self.0.child.stdout {
            let read = timeout(END, output.read_to_string(&mut told)).await;
            read.map_err(|_| failure(format!("no end within {} s", END.as_secs())))??;
        }
        let figure = figure(&told).ok_or_else(|| failure(format!("it told {told:?}")))?;
        if figure.bytes == 0 {
            return Err(failure("it has written nothing".to_owned()));
        }
        Ok(figure)
    }
}

fn failure(message: String) -> Error {
    Error::Tool { program: PROGRAM.to_owned(), message }
}

fn words(load: &scenario::Load, uri: &str, bytes: u64) -> Vec<String> {
    let [shortest, longest] = load.sizes.map(|size| size.0);
    let words = [
        "--name=load".to_owned(),
        "--ioengine=nbd".to_owned(),
        format!("--uri={uri}"),
        "--rw=randwrite".to_owned(),
        format!("--bsrange={shortest}-{longest}"),
        format!("--blockalign={shortest}"),
        format!("--iodepth={}", load.depth),
        format!("--rate={}", load.rate.0),
        format!("--size={bytes}"),
        format!("--runtime={}", RUNTIME.as_secs()),
        "--time_based".to_owned(),
        "--randseed=1".to_owned(),
        "--output-format=json".to_owned(),
        "--eta=never".to_owned(),
    ];
    words.into()
}

/// Parses fio's report. There may be notes before the report.
fn figure(told: &str) -> Option<LoadFigure> {
    let (_, report) = told.split_at(told.find('{')?);
    let report: Value = serde_json::from_str(report).ok()?;
    let written = report.get("jobs")?.get(0)?.get("write")?;
    let latency = written.get("clat_ns")?;
    let ms = |ns: &Value| ns.as_f64().map(|ns| ns / 1e6);
    let percentile = latency.get("percentile").and_then(|all| all.get("99.000000"));
    Some(LoadFigure {
        bytes: written.get("io_bytes")?.as_u64()?,
        seconds: written.get("runtime")?.as_f64()? / 1e3,
        mean_ms: ms(latency.get("mean")?)?,
        p99_ms: ms(percentile?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;

    #[test]
    fn a_report_is_read_behind_what_stands_before_it() {
        let report = r#"note: both are set
            {"jobs": [{"jobname": "load", "write": {"io_bytes": 5242880, "runtime": 1500,
            "clat_ns": {"mean": 1250000.0, "percentile": {"50.000000": 1, "99.000000": 8000000}}}}]}"#;
        let figure = figure(report).unwrap();
        assert_eq!((figure.bytes, figure.seconds), (5 << 20, 1.5));
        assert_eq!((figure.mean_ms, figure.p99_ms), (1.25, 8.0));
    }

    #[test]
    fn what_is_no_report_is_none() {
        for text in ["", "fio: engine nbd not loadable", "{}", r#"{"jobs": [{"read": {}}]}"#] {
            assert_eq!(figure(text), None, "{text}");
        }
    }

    #[test]
    fn the_load_becomes_words_of_fio() {
        let load =
            scenario::Load { rate: Size(5 << 20), sizes: [Size(4096), Size(64 << 10)], depth: 4 };
        let words = words(&load, "nbd://disk", 1 << 20);
        for word in ["--rate=5242880", "--bsrange=4096-65536", "--iodepth=4", "--size=1048576"] {
            assert!(words.iter().any(|told| told == word), "{word} in {words:?}");
        }
    }
}
