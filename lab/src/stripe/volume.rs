//! Runs block-copy with several units: as one volume, or one block-copy per unit.

use std::ffi::OsString;
use std::fs;
use std::time::Instant;

use tokio::process::Command;

use super::member::url;
use crate::error::Error;
use crate::peers::{Bench, Reading, block_copy, block_copy_report};
use crate::process::{Ended, run, tool};
use crate::result::Outcome;
use crate::scenario::{Direction, Point, Striped};

/// The description of the volume, in the lab's own folder.
const DESCRIPTION: &str = "/run/lab-volume.toml";
/// Reads go to the null device, as with fio.
const NOWHERE: &str = "/dev/null";

/// Measures one block-copy with all units as a volume, or with a single unit.
pub(super) async fn measure(
    point: &Point,
    striped: &Striped,
    bench: &Bench,
) -> Result<Reading, Outcome> {
    let place = if striped.links == 1 {
        url(0)
    } else {
        describe(striped, bench).await?;
        format!("volume:{DESCRIPTION}")
    };
    let mut command = copy(point, &place, bench)?;
    let ended = ended_well(run(&mut command, point.limit).await)?;
    let reading = block_copy_report(&ended.text())?;
    Ok(Reading { seconds: ended.time.as_secs_f64(), ..reading })
}

/// Measures one block-copy per unit, concurrently. The time is that of the last one to exit.
pub(super) async fn measure_apart(
    point: &Point,
    striped: &Striped,
    bench: &Bench,
) -> Result<Reading, Outcome> {
    let begun = Instant::now();
    let mut running = Vec::new();
    for link in 0..striped.links {
        let mut command = copy(point, &url(link), bench)?;
        let limit = point.limit;
        // Spawn a task for each copy, so that all run concurrently although they are awaited in order.
        running.push(tokio::task::spawn(async move { run(&mut command, limit).await }));
    }
    for copy in running {
        let ended = copy.await.map_err(|error| Outcome::Failed(error.to_string()))?;
        ended_well(ended)?;
    }
    Ok(Reading { seconds: begun.elapsed().as_secs_f64(), ..Reading::default() })
}

fn copy(point: &Point, place: &str, bench: &Bench) -> Result<Command, Outcome> {
    let ends: [OsString; 2] = match point.measure.direction {
        Direction::Write => [bench.image.clone().into(), place.into()],
        Direction::Read => [place.into(), NOWHERE.into()],
    };
    let mut command = block_copy(&bench.tree)?;
    command.args(ends).args(["--json", "--progress", "none"]).args(&point.measure.args);
    Ok(command)
}

fn ended_well(ended: Result<Option<Ended>, Error>) -> Result<Ended, Outcome> {
    match ended {
        Ok(Some(ended)) if ended.output.status.success() => Ok(ended),
        Ok(Some(ended)) => Err(Outcome::Failed(ended.complaint())),
        Ok(None) => Err(Outcome::TimedOut),
        Err(error) => Err(Outcome::Failed(error.to_string())),
    }
}

/// Makes iscsi-util write the description of the volume's units.
async fn describe(striped: &Striped, bench: &Bench) -> Result<(), Outcome> {
    let program = bench.tree.join("iscsi-util");
    if !program.is_file() {
        let advice = "cargo build --release -p iscsi-util";
        return Err(Outcome::Failed(format!("{} is missing: {advice}", program.display())));
    }
    let mut command = Command::new(program);
    command.args(["volume", "create", "--chunk", &format!("{}K", striped.chunk >> 10)]);
    command.args((0..striped.links).map(url));
    let failed = |error: Error| Outcome::Failed(error.to_string());
    let description = tool(&mut command).await.map_err(failed)?;
    fs::write(DESCRIPTION, description)
        .map_err(|cause| failed(Error::File { path: DESCRIPTION.into(), cause }))
}
