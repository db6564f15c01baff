//! Joins units in the kernel: its initiator has a disk for each unit, md joins the disks, and fio moves the bytes.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::process::Command;

use super::member::portal;
use crate::environment::find;
use crate::error::Error;
use crate::peers::{Bench, Reading, garbled, missing, open_iscsi};
use crate::process::{run, tool};
use crate::result::Outcome;
use crate::scenario::{Direction, Point, Striped};

const PACKAGE: &str = "mdadm";
const ARRAY: &str = "/dev/md0";
/// Requests of 1 MiB in flight per unit: more than a link of 100 ms and 100 Mbit/s holds.
const DEPTH: u32 = 16;

pub(super) async fn measure(
    point: &Point,
    striped: &Striped,
    bench: &Bench,
) -> Result<Reading, Outcome> {
    for (program, package) in [("mdadm", PACKAGE), ("fio", "fio")] {
        if find(program).is_none() {
            return Err(missing(program, package));
        }
    }
    let daemon = open_iscsi::daemon(bench).await?;
    let reading = match join(striped).await {
        Ok(device) => move_bytes(point, striped, &device).await,
        Err(error) => Err(Outcome::Failed(error.to_string())),
    };
    part(striped).await;
    open_iscsi::log_out_quietly().await;
    drop(daemon);
    reading
}

/// Returns the disk of one unit, or the array of several. The array has no superblock, so it has all bytes of
/// the disks.
async fn join(striped: &Striped) -> Result<PathBuf, Error> {
    let mut disks = Vec::new();
    for link in 0..striped.links {
        disks.push(open_iscsi::log_in_at(&portal(link), u16::from(link)).await?);
    }
    if let [disk] = &disks[..] {
        return Ok(disk.clone());
    }
    for module in ["md-mod", "raid0"] {
        tool(Command::new("modprobe").arg(module)).await?;
    }
    let mut command = Command::new("mdadm");
    command.args(["--build", ARRAY, "--level=0"]);
    command.arg(format!("--chunk={}K", striped.chunk >> 10));
    command.arg(format!("--raid-devices={}", striped.links)).args(&disks);
    tool(&mut command).await?;
    Ok(ARRAY.into())
}

/// Stops the array, if there is one. An error is only printed.
async fn part(striped: &Striped) {
    if striped.links > 1
        && Path::new(ARRAY).exists()
        && let Err(error) = tool(Command::new("mdadm").args(["--stop", ARRAY])).await
    {
        eprintln!("lab: {error}");
    }
}

async fn move_bytes(point: &Point, striped: &Striped, device: &Path) -> Result<Reading, Outcome> {
    let rw = match point.measure.direction {
        Direction::Write => "write",
        Direction::Read => "read",
    };
    let mut command = Command::new("fio");
    command.args(["--name=stripe", "--ioengine=libaio", "--direct=1", "--bs=1M", "--eta=never"]);
    command.args([format!("--rw={rw}"), format!("--size={}", point.bytes)]);
    command.arg(format!("--iodepth={}", DEPTH * u32::from(striped.links)));
    command.arg(format!("--filename={}", device.display()));
    command.args(["--end_fsync=1", "--output-format=json"]);
    match run(&mut command, point.limit).await {
        Ok(Some(ended)) if ended.output.status.success() => {
            let seconds = seconds(&ended.text(), rw);
            let seconds = seconds.ok_or_else(|| garbled("fio", &ended.text()))?;
            Ok(Reading { seconds, ..Reading::default() })
        }
        Ok(Some(ended)) => Err(Outcome::Failed(ended.complaint())),
        Ok(None) => Err(Outcome::TimedOut),
        Err(error) => Err(Outcome::Failed(error.to_string())),
    }
}

/// Returns the time in which requests were in flight, from fio's report. There may be notes before the report.
fn seconds(told: &str, rw: &str) -> Option<f64> {
    let (_, report) = told.split_at(told.find('{')?);
    let report: Value = serde_json::from_str(report).ok()?;
    let milliseconds = report.get("jobs")?.get(0)?.get(rw)?.get("runtime")?.as_f64()?;
    (milliseconds > 0.0).then_some(milliseconds / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_requests() {
        let report = r#"note
            {"jobs": [{"jobname": "stripe", "write": {"runtime": 5250}, "read": {"runtime": 0}}]}"#;
        assert_eq!(seconds(report, "write"), Some(5.25));
        assert_eq!(seconds(report, "read"), None);
        assert_eq!(seconds("fio: no such device", "write"), None);
    }
}
