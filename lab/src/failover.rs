//! Measures failovers. A program writes to a unit with two paths while the states of its target port groups
//! change and its links are cut. The figure has the times without progress, the errors that the user sees,
//! and whether the bytes are right at the end.

mod copy;
mod figure;
mod gaps;
mod random;
mod script;
mod watch;

use tokio::process::Command;

use crate::error::Error;
use crate::faults::Store;
use crate::peers::multipath::Multipath;
use crate::peers::{Bench, Server};
use crate::process::{Ended, run};
use crate::result::Outcome;
use crate::scenario::Multipath as Settings;
use crate::scenario::{Contender, Failover, FailoverRun, PATHS, Point, Writes};
use crate::testbed::{TARGET, Testbed, address};
use script::Script;
use watch::Watch;

pub use figure::{FailoverFigure, judge};

/// The parts of the lab that a failover uses.
#[derive(Debug)]
pub struct Site<'a> {
    /// Links and target.
    pub testbed: &'a mut Testbed,
    /// The file of the unit.
    pub store: &'a Store,
    /// The settings of the kernel's initiator and of multipathd.
    pub settings: &'a Settings,
    /// Paths of the programs and files.
    pub bench: &'a Bench,
}

/// Arguments of block-serve that switch write-behind off: a write that was acknowledged is on the unit, as
/// with the kernel's initiator.
const ANSWERS_LAST: [&str; 2] = ["--write-behind", "0"];

/// The running programs between the writer and the unit.
enum Paths {
    /// No program: block-copy has sessions of its own.
    Copy,
    Server(Box<Server>),
    Kernel(Box<Multipath>),
}

/// Returns the words for `lab/lio` that put a portal group on each link, and set the initial state of its
/// target port group.
pub fn words(failover: &Failover) -> Vec<String> {
    let portals = (1..PATHS).map(|link| format!("portal={}@{}", portal(link), link + 1));
    let groups = failover.states.iter().zip(1..);
    let states = groups.map(|(state, group)| format!("group={group}:{}", state.name()));
    portals.chain(states).collect()
}

fn portal(link: u8) -> String {
    format!("{}:3260", address(link))
}

/// Returns the unit's URL with all portals.
fn url(lun: u16) -> String {
    let others = (1..PATHS).map(|link| format!("portal={}", portal(link)));
    format!("iscsi://{}/{TARGET}/{lun}?{}", portal(0), others.collect::<Vec<_>>().join("&"))
}

/// Writes while the scripted changes happen.
///
/// # Errors
/// [`Outcome::TimedOut`] if the writer did not end in time, [`Outcome::Failed`] if a scripted change could
/// not be made, [`Outcome::Skipped`] if a program is missing.
pub async fn measure(
    point: &Point,
    failover: &Failover,
    run: FailoverRun,
    site: Site<'_>,
) -> Result<FailoverFigure, Outcome> {
    let failed = |error: Error| Outcome::Failed(error.to_string());
    let Site { testbed, store, settings, bench } = site;
    let paths = Paths::open(point, run, settings, bench).await?;
    let watch = Watch::of(store);
    let mut script = Script::of(failover, testbed);
    let ended = match writer(point, run, &paths, bench) {
        Ok(mut command) => write(point, &mut command, &watch, &mut script).await,
        Err(outcome) => Err(outcome),
    };
    // After a cut, late data of a link may still arrive, and must not change the unit. So the links are
    // restored before the check.
    let mended = script.undo().await;
    let happened = script.happened();
    let closed = paths.end().await;
    let ended = ended?;
    mended.map_err(failed)?;
    closed.map_err(failed)?;
    let told = match run.writes {
        Writes::Copy => copy::figure_of(&ended, watch.gaps()),
        Writes::Random => random::figure_of(&ended).map_err(failed)?,
    };
    let held = match run.writes {
        Writes::Copy => store.held_by_unit(&bench.image).map(|held| held.equal),
        Writes::Random => Ok(random::holds(store.unit(), point.bytes).await.map_err(failed)?),
    };
    let equal = held.map_err(|error| failed(error.into()))?;
    let deeds: Vec<_> = happened.iter().map(|(at, deed, _)| (*at, *deed)).collect();
    Ok(FailoverFigure {
        unserved_seconds: failover.unserved(&deeds, watch.now()),
        equal,
        orders: happened.into_iter().map(|(at, _, order)| (at, order)).collect(),
        ..told
    })
}

/// Returns the command of the program that writes.
fn writer(
    point: &Point,
    run: FailoverRun,
    paths: &Paths,
    bench: &Bench,
) -> Result<Command, Outcome> {
    Ok(match (paths, run.writes) {
        (Paths::Kernel(kernel), Writes::Copy) => {
            copy::to_device(&bench.image, &kernel.device, point)
        }
        (Paths::Kernel(kernel), Writes::Random) => random::to_device(&kernel.device, point.bytes),
        (_, Writes::Copy) => copy::to_url(&url(point.measure.lun), bench)?,
        (_, Writes::Random) => random::to_socket(&socket(), point.bytes),
    })
}

fn socket() -> std::path::PathBuf {
    "/run/lab-failover.sock".into()
}

/// Runs the writer to its end, and makes the scripted changes meanwhile.
async fn write(
    point: &Point,
    command: &mut Command,
    watch: &Watch<'_>,
    script: &mut Script<'_>,
) -> Result<Ended, Outcome> {
    let ended = tokio::select! {
        ended = run(command, point.limit) => ended,
        error = script.carry_out(watch) => Err(error),
        () = watch.poll_forever() => Ok(None),
    };
    match ended.map_err(|error| Outcome::Failed(error.to_string()))? {
        Some(ended) => Ok(ended),
        None => Err(Outcome::TimedOut),
    }
}

impl Paths {
    async fn open(
        point: &Point,
        run: FailoverRun,
        settings: &Settings,
        bench: &Bench,
    ) -> Result<Self, Outcome> {
        let lun = point.measure.lun;
        match (run.through, run.writes) {
            (Contender::Own, Writes::Copy) => Ok(Self::Copy),
            (Contender::Own, Writes::Random) => {
                let server = Server::start(&url(lun), &socket(), &ANSWERS_LAST, bench).await?;
                Ok(Self::Server(Box::new(server)))
            }
            (Contender::DmMultipath, _) => {
                let portals: Vec<_> = (0..PATHS).map(portal).collect();
                Multipath::start(settings, &portals, lun, bench)
                    .await
                    .map(|kernel| Self::Kernel(Box::new(kernel)))
            }
        }
    }

    /// Ends all sessions. Returns an error if a server reports one. Errors of the kernel's tools are only
    /// printed.
    async fn end(self) -> Result<(), Error> {
        match self {
            Self::Copy => {}
            Self::Server(server) => server.end().await?,
            Self::Kernel(kernel) => kernel.end().await,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_a_portal_and_a_group() {
        let text = "event = \"one\"\norders = []\nstates = [\"active/optimized\", \"standby\"]";
        let failover: Failover = toml::from_str(text).unwrap();
        let told = ["portal=10.99.1.2:3260@2", "group=1:active/optimized", "group=2:standby"];
        assert_eq!(words(&failover), told);
        assert_eq!(url(0), format!("iscsi://10.99.0.2:3260/{TARGET}/0?portal=10.99.1.2:3260"));
    }
}
