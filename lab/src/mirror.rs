//! The disk of a running machine, moved to a unit by QEMU's mirror while it is written: how long until both
//! are equal, how long the machine waits at the end, and whether they are equal then.
//!
//! `qemu-storage-daemon` stands in for the machine: it is QEMU's block layer without a guest. What a guest
//! would write, fio writes to the daemon's NBD export of the disk.

mod job;
mod load;
mod qmp;
mod socket;
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

/// How often the mirror is asked how far it is.
const STEP: Duration = Duration::from_millis(500);
/// How long the disk is written before the mirror begins.
const BEFORE: Duration = Duration::from_secs(3);
/// How long the two are kept equal before the machine moves.
const AFTER_READY: Duration = Duration::from_secs(5);
/// How long the last writes may take to reach the unit.
const CUT_OVER: Duration = Duration::from_secs(120);

/// What came of a mirror.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorFigure {
    /// From the order to the moment at which both were equal for the first time (`BLOCK_JOB_READY`),
    /// seconds; none if there was no such moment in time.
    pub ready_seconds: Option<f64>,
    /// Seconds from the last moment at which a program might write to the end of the mirror
    /// (`BLOCK_JOB_COMPLETED`): the longest time that a moving machine would wait.
    pub cut_over_seconds: Option<f64>,
    /// What of that passed until the last write was answered, seconds; none without a load.
    pub load_end_seconds: Option<f64>,
    /// What was copied in all, bytes; what was written again was copied again.
    pub copied_bytes: u64,
    /// What differed at the end, bytes; after a cut-over nothing.
    pub left_bytes: u64,
    /// What crossed the link towards the unit until the end, bytes with all headers.
    pub sent_bytes: Option<u64>,
    /// Whether the unit held what the disk did when the mirror had ended; none if it did not.
    pub equal: Option<bool>,
    /// The share of its time that the lab's processor was busy until then, 0 to 1: near 1 it is the lab that
    /// was measured. None if the system does not tell.
    pub busy: Option<f64>,
    /// What was written meanwhile; none without a load.
    pub load: Option<LoadFigure>,
    /// How it stood: seconds after the order, bytes copied, bytes that differed.
    pub samples: Vec<(f64, u64, u64)>,
}

/// Mirrors a disk to a unit. Requests in flight at its end are given up.
///
/// # Errors
/// [`Outcome::Failed`], or [`Outcome::Skipped`] where a program is missing. A mirror that was never ready is
/// none: its figure says so.
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
        // Before anybody flushes once more: the mirror's own flush must have been enough.
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

/// How a mirror of this figure ended.
pub fn judge(figure: &MirrorFigure) -> Outcome {
    match (figure.ready_seconds, figure.equal) {
        (None, _) => Outcome::TimedOut,
        (Some(_), Some(true)) => Outcome::Complete,
        (Some(_), _) => Outcome::Failed("the mirror ended well, but the bytes differ".to_owned()),
    }
}

/// Orders the mirror, and looks at it until both were equal, and a little longer.
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

/// What a machine does that moves: it stops writing, and goes on when both are equal.
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
