//! Makes random writes by fio: each block is written once, with a checksum in it. Afterwards fio checks which
//! blocks the unit holds.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::figure::FailoverFigure;
use super::gaps::Gaps;
use crate::error::Error;
use crate::process::{Ended, run};

const PROGRAM: &str = "fio";
/// Log of the times at which writes were acknowledged: the name given to fio, and the file that fio makes for
/// its first job.
const LOG: &str = "/run/lab-failover";
const LOG_FILE: &str = "/run/lab-failover_lat.1.log";
/// Rate of the writes, bytes per second.
const RATE: u64 = 5 << 20;
/// Seconds that the writes take without an event.
const SECONDS: u64 = 16;
/// Time limit for reading the blocks back.
const READ: Duration = Duration::from_secs(120);

/// Returns the command that writes through an NBD server at a Unix socket.
pub(super) fn to_socket(socket: &Path, bytes: u64) -> Command {
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    writes(&["--ioengine=nbd".to_owned(), uri], bytes)
}

/// Returns the command that writes to a device, bypassing the page cache.
pub(super) fn to_device(device: &Path, bytes: u64) -> Command {
    let words = ["--ioengine=libaio".to_owned(), "--direct=1".to_owned(), file(device)];
    writes(&words, bytes)
}

fn file(path: &Path) -> String {
    format!("--filename={}", path.display())
}

fn writes(place: &[String], bytes: u64) -> Command {
    // Remove the log of an earlier run: it could be read as the log of this run.
    let _absent = std::fs::remove_file(LOG_FILE);
    let mut command = fio(place, bytes);
    command.args(["--do_verify=0", "--continue_on_error=all", &format!("--rate={RATE}")]);
    command.args(["--end_fsync=1", &format!("--write_lat_log={LOG}")]);
    command
}

/// Returns the command of fio. Each run writes the same blocks, and no block twice.
fn fio(place: &[String], bytes: u64) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["--name=load", "--rw=randwrite", "--bs=16k", "--iodepth=16", "--randseed=1"]);
    command.args(["--verify=crc32c", "--verify_state_save=0", "--verify_fatal=1"]);
    command.args([format!("--size={bytes}"), format!("--io_size={}", bytes.min(RATE * SECONDS))]);
    command.args(["--output-format=json", "--eta=never"]).args(place);
    command
}

/// Returns the figure of the writes from fio's report and log.
pub(super) fn figure_of(ended: &Ended) -> Result<FailoverFigure, Error> {
    let text = ended.text();
    let counted =
        errors(&text).ok_or_else(|| failure(format!("it told {:?}", ended.complaint())))?;
    let log = std::fs::read_to_string(LOG_FILE)
        .map_err(|cause| Error::File { path: LOG_FILE.into(), cause })?;
    let gaps = answered(&log);
    let errors = counted.max(u64::from(!ended.output.status.success()));
    Ok(FailoverFigure {
        stalled_seconds: gaps.longest,
        seconds: gaps.span(),
        errors,
        error: (errors > 0).then(|| format!("{errors} writes failed: {}", ended.complaint())),
        gaps: gaps.long,
        ..FailoverFigure::default()
    })
}

/// Returns whether the unit's file holds all written blocks.
pub(super) async fn holds(unit: &Path, bytes: u64) -> Result<bool, Error> {
    let place = ["--ioengine=psync".to_owned(), file(unit)];
    let mut command = fio(&place, bytes);
    command.arg("--verify_only");
    match run(&mut command, READ).await? {
        Some(ended) => Ok(ended.output.status.success()),
        None => Err(failure(format!("no end within {} s", READ.as_secs()))),
    }
}

fn failure(message: String) -> Error {
    Error::Tool { program: PROGRAM.to_owned(), message }
}

/// Returns the number of failed requests from fio's report. There may be notes before the report.
fn errors(told: &str) -> Option<u64> {
    let (_, report) = told.split_at(told.find('{')?);
    let report: Value = serde_json::from_str(report).ok()?;
    report.get("jobs")?.get(0)?.get("total_err")?.as_u64()
}

/// Returns the times between acknowledged writes from fio's log, which has lines `MILLISECONDS, LATENCY, ...`.
fn answered(log: &str) -> Gaps {
    let time = |line: &str| line.split(',').next()?.trim().parse::<f64>().ok();
    let mut times: Vec<_> = log.lines().filter_map(time).collect();
    times.sort_by(f64::total_cmp);
    let mut gaps = Gaps::default();
    times.into_iter().for_each(|at| gaps.progress(at / 1e3));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_when_nothing_was_answered() {
        let gaps = answered("1200, 900, 1, 16384, 0, 0\n1000, 100, 1, 16384\n4700, 1, 1, 16384\n");
        assert_eq!((gaps.longest, gaps.span()), (3.5, 3.7));
        assert_eq!(answered("").span(), 0.0);
    }

    #[test]
    fn errors_are_counted_by_the_report() {
        let report = r#"note {"jobs": [{"jobname": "load", "error": 5, "total_err": 3}]}"#;
        assert_eq!(errors(report.trim_start_matches("note ")), Some(3));
        assert_eq!(errors(report), Some(3));
        assert_eq!(errors("fio: engine nbd not loadable"), None);
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let words = |command: &Command| {
            let words = command.as_std().get_args();
            words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let (device, unit) = (Path::new("/dev/mapper/unit"), Path::new("/mnt/unit"));
        let written = words(&to_device(device, 64 << 20));
        for word in words(&fio(&[file(unit)], 64 << 20)) {
            assert!(written.contains(&word) || word == file(unit), "{word} in {written:?}");
        }
        assert!(written.contains(&"--io_size=67108864".to_owned()), "{written:?}");
    }
}
