//! Measures QEMU's mirror of a running machine's disk to a unit, while the disk is written: the time until
//! disk and unit are equal, how long the machine waits at the end, and whether the data is equal then.
//!
//! `qemu-storage-daemon` stands in for the machine: it is QEMU's block layer without a guest. In place of a
//! guest, fio writes to the daemon's NBD export of the disk.

mod job;
mod load;
mod qmp;
mod source;
mod unit;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::error::Error;
use crate::faults::Store;
use crate::peers::Bench;
use crate::provenance::ProcessorTime;
use crate::result::Outcome;
use crate::scenario::{Mirror, Point};
use crate::testbed::carried;
use job::{Job, Standing};
use load::Load;
use source::Source;
use unit::Unit;

pub use load::LoadFigure;

/// Interval at which the progress of the mirror is queried.
const STEP: Duration = Duration::from_millis(500);
/// How long the disk is written before the mirror begins.
const BEFORE: Duration = Duration::from_secs(3);
/// How long the mirror goes on after disk and unit were equal, before the writes are stopped and it is completed.
const AFTER_READY: Duration = Duration::from_secs(5);
/// Time limit for the end of the mirror, with the last writes on the unit.
const CUT_OVER: Duration = Duration::from_secs(120);

/// The result of a mirror.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorFigure {
    /// Seconds from the start of the mirror until disk and unit were equal for the first time
    /// (`BLOCK_JOB_READY`). `None` if that did not happen within the time limit.
    pub ready_seconds: Option<f64>,
    /// Seconds from the last moment at which a program might write until the end of the mirror
    /// (`BLOCK_JOB_COMPLETED`): the longest time that a moving machine would wait.
    pub cut_over_seconds: Option<f64>,
    /// The part of `cut_over_seconds` until the last write was acknowledged. `None` without a load.
    pub load_end_seconds: Option<f64>,
    /// Bytes copied in total. Data that was written again is counted each time it was copied.
    pub copied_bytes: u64,
    /// Bytes that differed at the end. 0 after a cut-over.
    pub left_bytes: u64,
    /// Bytes that crossed the link towards the unit until the end, with all headers.
    pub sent_bytes: Option<u64>,
    /// Whether the unit held the bytes of the disk after the mirror had completed. `None` if the mirror did
    /// not complete.
    pub equal: Option<bool>,
    /// Share of the time in which the lab's processor was busy until the mirror completed, 0 to 1. Near 1,
    /// the lab itself is the bottleneck. `None` if the system does not report it.
    pub busy: Option<f64>,
    /// Counts of the writes during the mirror. `None` without a load.
    pub load: Option<LoadFigure>,
    /// Samples: seconds after the start of the mirror, bytes copied, bytes that differed.
    pub samples: Vec<(f64, u64, u64)>,
}

/// Mirrors a disk to a unit. Requests in flight at the end are dropped.
///
/// # Errors
/// [`Outcome::Failed`], or [`Outcome::Skipped`] if a program is missing. A mirror that was never ready is no
/// error: its figure says so.
pub async fn measure(
    point: &Point,
    mirror: &Mirror,
    bench: &Bench,
    store: &Store,
) -> Result<MirrorFigure, Outcome> {
    let unit = Unit::serve(mirror, bench).await?;
    let mut source = Source::start(&bench.image)?;
    let mut job = source.job(mirror, &unit).await?;
    let mut load = match &mirror.load {
        Some(load) => Some(Load::start(load, source.uri(), point.bytes)?),
        None => None,
    };
    if load.is_some() {
        sleep(BEFORE).await;
    }
    let (sent, processor) = (carried(), ProcessorTime::now());
    let mut figure = until_ready(point, &mut job, load.as_mut()).await.map_err(failed)?;
    if figure.ready_seconds.is_some() {
        cut_over(&mut figure, &mut job, load.take()).await.map_err(failed)?;
        // Compare the bytes before any further flush: the mirror's own flush must be enough.
        let held = store.held_by_unit(&bench.image).map_err(|error| failed(error.into()))?;
        figure.equal = Some(held.equal);
    } else if let Some(load) = load {
        figure.load = Some(load.end().await.map_err(failed)?);
    }
    let sent = sent.zip(carried()).map(|(before, after)| after.since(before).sent);
    figure.sent_bytes = sent;
    figure.busy = processor.and_then(|begun| Some(ProcessorTime::now()?.busy_since(begun)));
    if figure.equal.is_some() {
        job.quit().await.map_err(failed)?;
        unit.end().await.map_err(failed)?;
    }
    Ok(figure)
}

fn failed(error: Error) -> Outcome {
    Outcome::Failed(error.to_string())
}

/// Judges a mirror by its figure.
pub fn judge(figure: &MirrorFigure) -> Outcome {
    match (figure.ready_seconds, figure.equal) {
        (None, _) => Outcome::TimedOut,
        (Some(_), Some(true)) => Outcome::Complete,
        (Some(_), _) => Outcome::Failed("the mirror ended well, but the bytes differ".to_owned()),
    }
}

/// Starts the mirror, and samples its progress until disk and unit were equal and for a short time after that.
async fn until_ready(
    point: &Point,
    job: &mut Job,
    mut load: Option<&mut Load>,
) -> Result<MirrorFigure, Error> {
    let mut figure = MirrorFigure::default();
    job.begin().await?;
    let begun = Instant::now();
    let mut end = point.limit;
    while begun.elapsed() < end {
        let is_ready = job.wait_for_ready(STEP).await?;
        if is_ready && figure.ready_seconds.is_none() {
            let now = begun.elapsed();
            figure.ready_seconds = Some(now.as_secs_f64());
            end = now + AFTER_READY;
        }
        let Standing { copied, left } = job.standing().await?;
        (figure.copied_bytes, figure.left_bytes) = (copied, left);
        figure.samples.push((begun.elapsed().as_secs_f64(), copied, left));
        if let Some(load) = &mut load {
            load.must_run()?;
        }
    }
    Ok(figure)
}

/// Stops the writes, then completes the mirror, as at the end of a live migration of a virtual machine. QEMU
/// completes it when disk and unit are equal.
async fn cut_over(
    figure: &mut MirrorFigure,
    job: &mut Job,
    load: Option<Load>,
) -> Result<(), Error> {
    let begun = Instant::now();
    if let Some(load) = load {
        figure.load = Some(load.end().await?);
        figure.load_end_seconds = Some(begun.elapsed().as_secs_f64());
    }
    let completed = timeout(CUT_OVER, job.complete()).await.unwrap_or_else(|_| {
        let message = format!("the mirror has not ended within {} s", CUT_OVER.as_secs());
        Err(Error::Tool { program: "block-job-complete".to_owned(), message })
    });
    figure.copied_bytes = completed?;
    figure.left_bytes = 0;
    figure.cut_over_seconds = Some(begun.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_bytes_are_a_good_end() {
        let never = MirrorFigure::default();
        assert_eq!(judge(&never), Outcome::TimedOut);
        let ended = |equal| MirrorFigure { ready_seconds: Some(1.0), equal, ..never.clone() };
        assert_eq!(judge(&ended(Some(true))), Outcome::Complete);
        assert!(matches!(judge(&ended(Some(false))), Outcome::Failed(_)));
        assert!(matches!(judge(&ended(None)), Outcome::Failed(_)));
    }
}
