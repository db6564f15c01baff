//! The part of the lab that runs in its environment: makes the testbed, measures, takes it down.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::environment::{Environment, code};
use crate::error::Error;
use crate::images::Images;
use crate::job::{ExecJob, Job, RunJob};
use crate::peers::{Bench, measure};
use crate::process::{Group, tool};
use crate::provenance;
use crate::record::Record;
use crate::result::{Figure, Outcome};
use crate::scenario::{Direction, Point, Scenario};
use crate::signals::Signals;
use crate::testbed::{self, Testbed, link_words};

/// Carries out a job and returns the exit status.
///
/// # Errors
/// [`Error`] for what is no measurement's own failure.
pub async fn carry_out(job: &str) -> Result<u8, Error> {
    match serde_json::from_str(job)? {
        Job::Run(job) => run(*job).await,
        Job::Exec(job) => exec(&job).await,
    }
}

async fn exec(job: &ExecJob) -> Result<u8, Error> {
    let mut signals = Signals::catch()?;
    let mut testbed = Testbed::up(&job.scripts, &job.link).await?;
    let done = tokio::select! {
        done = exec_on(&mut testbed, job) => done,
        _ = signals.next() => Ok(1),
    };
    take_down(testbed).await;
    done
}

async fn exec_on(testbed: &mut Testbed, job: &ExecJob) -> Result<u8, Error> {
    testbed.set_target(&job.target).await?;
    let url = testbed::url(job.lun);
    let words: Vec<_> = job.program.iter().map(|word| word.replace("{url}", &url)).collect();
    let (program, arguments) =
        words.split_first().ok_or_else(|| Error::Usage("no program".to_owned()))?;
    let mut command = Command::new(program);
    command.args(arguments).env("LAB_URL", &url);
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    Ok(code(Group::start(&mut command)?.child.wait().await?))
}

async fn run(job: RunJob) -> Result<u8, Error> {
    let mut signals = Signals::catch()?;
    let points = job.scenario.points();
    let Some(first) = points.first() else { return Ok(0) };
    load(&job.scenario.modules).await?;
    let mut testbed = Testbed::up(&job.scripts, &link_words(&first.link)).await?;
    let done = tokio::select! {
        done = measure_all(&mut testbed, job, &points) => done,
        _ = signals.next() => Ok(()),
    };
    take_down(testbed).await;
    done.map(|()| 0)
}

/// Takes the testbed down. Whatever comes of it, what was done before decides how all ends.
async fn take_down(testbed: Testbed) {
    if let Err(error) = testbed.down().await {
        eprintln!("lab: {error}");
    }
}

async fn load(modules: &[String]) -> Result<(), Error> {
    for module in modules {
        tool(Command::new("modprobe").arg(module)).await?;
    }
    Ok(())
}

async fn measure_all(testbed: &mut Testbed, job: RunJob, points: &[Point]) -> Result<(), Error> {
    let RunJob { scenario, mut file, out, tree, .. } = job;
    set_system(&scenario).await?;
    testbed.set_target(&scenario.target.words(&Default::default())).await?;
    file.machine.lab_kernel = provenance::kernel();
    file.settings.extend(provenance::system());
    file.settings.extend(provenance::target());
    let in_guest = file.machine.environment == Environment::Guest.name();
    let mut record = Record::begin(&out, file)?;
    let mut lab = Lab { testbed, scenario, images: Images::mount()?, tree, in_guest };
    for (index, point) in points.iter().enumerate() {
        let figure = lab.figure(point).await;
        eprintln!("[{}/{}] {}", index + 1, points.len(), figure.line());
        record.add(figure)?;
    }
    Ok(())
}

/// Sets the scenario's system limits on both hosts. What one network namespace alone has, such as
/// `net.core.wmem_max`, holds for all of them.
async fn set_system(scenario: &Scenario) -> Result<(), Error> {
    const SET: &str = "[ ! -e \"$1\" ] || printf %s \"$2\" >\"$1\"";
    for (name, value) in &scenario.sysctl {
        let path = provenance::sysctl_file(name);
        fs::write(&path, value)
            .map_err(|cause| Error::File { path: PathBuf::from(&path), cause })?;
        tool(testbed::far("sh").args(["-c", SET, "sh", &path, value])).await?;
    }
    Ok(())
}

/// All that a measurement needs.
struct Lab<'a> {
    testbed: &'a mut Testbed,
    scenario: Scenario,
    images: Images,
    tree: PathBuf,
    in_guest: bool,
}

impl Lab<'_> {
    async fn figure(&mut self, point: &Point) -> Figure {
        let reading = match self.prepare(point).await {
            Ok(bench) => measure(point, &bench, self.testbed).await,
            Err(error) => Err(Outcome::Failed(error.to_string())),
        };
        if reading.is_err() {
            self.recover().await;
        }
        Figure::new(point, reading)
    }

    async fn prepare(&mut self, point: &Point) -> Result<Bench, Error> {
        self.testbed.set_target(&self.scenario.target.words(&point.measure.keys)).await?;
        self.testbed.set_link(&link_words(&point.link)).await?;
        match point.measure.direction {
            Direction::Read => self.images.make_room(point.bytes)?,
            Direction::Write => self.images.clear_room(),
        }
        if point.measure.writes_image() {
            self.images.make(point.measure.source, point.bytes)?;
        }
        let (tree, image, copy) = (self.tree.clone(), self.images.image(), self.images.copy());
        Ok(Bench { tree, image, copy, in_guest: self.in_guest })
    }

    /// After a measurement that did not end well: a link that lets everything through, so that what
    /// is under way in the kernel comes to its end, and no session of before.
    async fn recover(&mut self) {
        for tried in [self.testbed.set_link(&[]).await, self.testbed.drop_target().await] {
            if let Err(error) = tried {
                eprintln!("lab: {error}");
            }
        }
    }
}
