//! Measures copies through faults: block-copy copies, a fault of the link, the target or the unit comes in
//! the middle, and the verdict says whether the copy ended as expected.

mod progress;
mod store;
mod verdict;

use std::ffi::OsString;
use std::time::Instant;

use serde_json::Value;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::error::Error;
use crate::peers::{Bench, block_copy};
use crate::process::{Ended, run_with_lines};
use crate::result::{LinkConditions, Outcome};
use crate::scenario::{FaultJob, FaultKind, Ordeal, Point};
use crate::testbed::{INITIATOR, Testbed, link_words, url};
use progress::Progress;

pub use store::Store;
pub use verdict::{Copied, FaultFigure, Held, judge};

/// The parts of the lab that a fault affects.
#[derive(Debug)]
pub struct Victims<'a> {
    /// Link and target.
    pub testbed: &'a mut Testbed,
    /// The measurement, with the conditions of the link without the fault.
    pub point: &'a Point,
    /// The target, as words for `lab/lio up`.
    pub target: &'a [String],
    /// The file of the unit.
    pub store: &'a Store,
}

/// Runs a copy through its fault. Leaves link and target in the state that the fault has caused.
///
/// # Errors
/// [`Outcome::TimedOut`] if the copy did not end in time. [`Outcome::Failed`] if the fault could not be made,
/// or if the copy ended before the fault.
pub async fn copy(
    point: &Point,
    ordeal: &Ordeal,
    bench: &Bench,
    victims: Victims<'_>,
) -> Result<Copied, Outcome> {
    let mut command = command(point, ordeal, bench)?;
    let (reached, at) = oneshot::channel();
    let mut progress = Progress::new(ordeal.job.stage(), reached, Instant::now());
    let fault = async {
        match at.await {
            Ok(()) => victims.meet(ordeal).await,
            Err(_) => Ok(()),
        }
    };
    let ended = {
        let parse = |line: &str| progress.parse_line(line, Instant::now());
        tokio::select! {
            ended = run_with_lines(&mut command, point.limit, parse) => ended,
            Err(error) = fault => Err(error),
        }
    };
    match ended.map_err(|error| Outcome::Failed(error.to_string()))? {
        Some(ended) => copied_from(&ended, &progress),
        None => Err(Outcome::TimedOut),
    }
}

fn command(point: &Point, ordeal: &Ordeal, bench: &Bench) -> Result<Command, Outcome> {
    let patience = ordeal.patience.map(|seconds| format!("?retry_timeout={seconds}"));
    let unit = OsString::from(url(point.measure.lun) + &patience.unwrap_or_default());
    let ends = match ordeal.job {
        FaultJob::Write | FaultJob::Verify => [bench.image.clone().into(), unit],
        FaultJob::Read => [unit, bench.copy.clone().into()],
    };
    let mut command = block_copy(&bench.tree)?;
    command.args(ends).args(["--json", "--progress", "plain", "--stats", "1s"]);
    command.args(["--initiator-name", INITIATOR]);
    command.args(&point.measure.args);
    Ok(command)
}

/// Returns what the copy has reported.
fn copied_from(ended: &Ended, progress: &Progress) -> Result<Copied, Outcome> {
    let Some(fault_at_percent) = progress.reached_percent() else {
        let complaint = ended.complaint();
        return Err(Outcome::Failed(format!("it ended before the fault came: {complaint}")));
    };
    let report: Value = serde_json::from_str(&ended.text()).unwrap_or_default();
    Ok(Copied {
        status: ended.output.status.code(),
        error: report.get("error").and_then(Value::as_str).map(str::to_owned),
        reconnects: report.get("reconnects").and_then(Value::as_u64),
        fault_at_percent,
        stalled_seconds: progress.longest_stall(Instant::now()).as_secs_f64(),
        seconds: ended.time.as_secs_f64(),
    })
}

impl FaultJob {
    /// Returns block-copy's name for the stage of the copy in which the fault comes.
    fn stage(self) -> &'static str {
        match self {
            Self::Write | Self::Read => "copied",
            Self::Verify => "verified",
        }
    }
}

impl Victims<'_> {
    async fn meet(mut self, ordeal: &Ordeal) -> Result<(), Error> {
        self.begin(ordeal.what).await?;
        if let Some(lasts) = ordeal.lasts {
            sleep(lasts).await;
            self.end(ordeal.what).await?;
        }
        Ok(())
    }

    async fn begin(&mut self, what: FaultKind) -> Result<(), Error> {
        let (lun, size) = (self.point.measure.lun, self.point.bytes);
        let unit = |size: u64| vec![format!("lun={lun}:{size}")];
        match what {
            FaultKind::LinkDark => {
                let dark = LinkConditions { loss_percent: 100.0, ..self.point.link.clone() };
                self.testbed.set_link(&link_words(&dark)).await
            }
            FaultKind::TargetDisabled => self.testbed.change_target("disable", &[]).await,
            FaultKind::TargetRestarted => {
                self.testbed.drop_target().await?;
                self.testbed.set_target(self.target).await
            }
            FaultKind::TargetKilled => self.testbed.drop_target().await,
            FaultKind::TargetStopped => self.testbed.hold().await,
            FaultKind::UnitRemoved => self.testbed.change_target("remove-unit", &unit(size)).await,
            FaultKind::UnitReplaced => {
                let file = self.store.other();
                let words = [format!("lun={lun}:{size}:512:{}", file.display())];
                self.testbed.change_target("replace-unit", &words).await
            }
            FaultKind::UnitShrunk => {
                self.testbed.change_target("resize-unit", &unit(size / 2)).await
            }
            FaultKind::UnitReadOnly => {
                self.testbed.change_target("protect-unit", &unit(size)).await
            }
            FaultKind::UnitFull => self.store.take_room().await,
        }
    }

    /// Ends the fault, if faults of this kind can end.
    async fn end(&mut self, what: FaultKind) -> Result<(), Error> {
        match what {
            FaultKind::LinkDark => self.testbed.set_link(&link_words(&self.point.link)).await,
            FaultKind::TargetDisabled => self.testbed.change_target("enable", &[]).await,
            FaultKind::TargetKilled => self.testbed.set_target(self.target).await,
            FaultKind::TargetStopped => self.testbed.release().await,
            FaultKind::TargetRestarted
            | FaultKind::UnitRemoved
            | FaultKind::UnitReplaced
            | FaultKind::UnitShrunk
            | FaultKind::UnitReadOnly
            | FaultKind::UnitFull => Ok(()),
        }
    }
}
