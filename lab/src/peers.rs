//! Those who are measured: how each is run, and how it tells what came of it.

mod block_copy;
mod iperf3;
mod libiscsi;
mod open_iscsi;
mod program;
mod qemu_img;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::error::Error;
use crate::process::{Ended, run};
use crate::result::Outcome;
use crate::scenario::{Direction, Measure, Point, Who};
use crate::testbed::{Testbed, traffic};

/// What lies ready for a measurement.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Where the built programs are.
    pub tree: PathBuf,
    /// What is to be written, for those who write a file.
    pub image: PathBuf,
    /// Where to read to.
    pub copy: PathBuf,
    /// Whether the kernel is the lab's own.
    pub in_guest: bool,
}

/// What came of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// From the start of the program to its end.
    pub seconds: f64,
    /// Bytes that were moved, if others than were to be.
    pub bytes: Option<u64>,
    /// Of a measure by time, the rate at which bytes arrived in that time, 10^6 bits a second; of
    /// all others `None`: theirs is the bytes by the seconds.
    pub goodput_mbit_per_s: Option<f64>,
    /// The rate of each full second.
    pub samples_mbit_per_s: Vec<f64>,
    /// What the program itself told.
    pub detail: Value,
}

/// Measures one point.
///
/// # Errors
/// The [`Outcome`] that is not [`Outcome::Complete`].
pub async fn measure(point: &Point, bench: &Bench, testbed: &Testbed) -> Result<Reading, Outcome> {
    let before = traffic(point.measure.lun);
    let reading = match point.measure.who {
        Who::BlockCopy => block_copy::measure(point, bench).await,
        Who::Iperf3 => return iperf3::measure(point).await,
        Who::Libiscsi => libiscsi::measure(point).await,
        Who::QemuImg => qemu_img::measure(point, bench).await,
        Who::OpenIscsi => open_iscsi::measure(point, bench, testbed).await,
        Who::Program => return program::measure(point, bench).await,
    }?;
    let after = traffic(point.measure.lun);
    came_through(point, before, after)?;
    Ok(reading)
}

/// The target's own count of MiB, written and read.
type Traffic = Option<(u64, u64)>;

/// A program's word is good; the target's word for it is better.
fn came_through(point: &Point, before: Traffic, after: Traffic) -> Result<(), Outcome> {
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Outcome::Failed("the target has no count of the traffic".to_owned()));
    };
    let seen = match point.measure.direction {
        Direction::Write => after.0.saturating_sub(before.0),
        Direction::Read => after.1.saturating_sub(before.1),
    };
    let whole = point.bytes >> 20;
    if seen < whole {
        return Err(Outcome::Failed(format!("only {seen} of {whole} MiB came through the target")));
    }
    Ok(())
}

impl Measure {
    /// Whether it needs an image to write.
    pub fn writes_image(&self) -> bool {
        let from_file = match self.who {
            Who::BlockCopy | Who::QemuImg | Who::OpenIscsi | Who::Program => true,
            Who::Iperf3 | Who::Libiscsi => false,
        };
        from_file && self.direction == Direction::Write
    }
}

/// Runs a program of a Debian package to its good end.
async fn to_end(command: &mut Command, limit: Duration, package: &str) -> Result<Ended, Outcome> {
    match run(command, limit).await {
        Ok(Some(ended)) if ended.output.status.success() => Ok(ended),
        Ok(Some(ended)) => Err(Outcome::Failed(ended.complaint())),
        Ok(None) => Err(Outcome::TimedOut),
        Err(error) => Err(not_started(error, package)),
    }
}

/// Tells a program that is not there from one that cannot be.
fn not_started(error: Error, package: &str) -> Outcome {
    if let Error::Start { program, cause } = &error
        && cause.kind() == ErrorKind::NotFound
    {
        return missing(program, package);
    }
    Outcome::Failed(error.to_string())
}

fn missing(program: &str, package: &str) -> Outcome {
    Outcome::Skipped(format!(
        "`{program}` is missing, which the Debian package `{package}` brings \
         (`ci/packages peers` installs it)"
    ))
}

/// A program that told something else than it used to.
fn garbled(program: &str, said: &str) -> Outcome {
    let start: String = said.chars().take(200).collect();
    Outcome::Failed(format!("{program} told what the lab cannot read: {start:?}"))
}

/// The samples in a list of JSON.
fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}
