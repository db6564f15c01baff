//! The part of the lab that runs in its environment: it makes the testbed, measures, and removes the testbed.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::environment::{Environment, code};
use crate::error::Error;
use crate::failover::{self, FailoverFigure, Site};
use crate::faults::{self, FaultFigure, Store, Victims, judge};
use crate::flows;
use crate::images::Images;
use crate::job::{ExecJob, Job, RunJob};
use crate::mirror::{self, MirrorFigure};
use crate::peers::{Bench, Reading, measure};
use crate::process::{Group, tool};
use crate::provenance;
use crate::record::Record;
use crate::result::{Figure, Outcome};
use crate::scenario::{
    Direction, Failover, FailoverRun, FaultJob, Flows, Mirror, Ordeal, Point, Scenario, Source,
    Striped,
};
use crate::signals::Signals;
use crate::stripe;
use crate::testbed::{self, INITIATOR, Testbed, link_words};

/// Exit status when the target cannot be removed. The remaining measurements need another environment.
pub const WEDGED: u8 = 75;

/// Runs a job and returns the exit status.
///
/// # Errors
/// [`Error`] for failures other than failed measurements.
pub async fn carry_out(job: &str) -> Result<u8, Error> {
    match serde_json::from_str(job)? {
        Job::Run(job) => Box::pin(run(*job)).await,
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
    let link = link_words(&first.link);
    let mut testbed = Testbed::up(&job.scripts, &link).await?;
    testbed.add_links(job.scenario.count_of_links(), &link).await?;
    let done = tokio::select! {
        done = measure_all(&mut testbed, job, &points) => done,
        _ = signals.next() => Ok(()),
    };
    if testbed.is_wedged() {
        return done.map(|()| WEDGED);
    }
    take_down(testbed).await;
    done.map(|()| 0)
}

/// Removes the testbed. An error is only printed: the result of the job decides the exit status.
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
    let images = Images::mount()?;
    let store = store(&scenario).await?;
    testbed.set_target(&scenario.target.words(&Default::default())).await?;
    file.machine.lab_kernel = provenance::kernel();
    file.settings.extend(provenance::system());
    file.settings.extend(provenance::target());
    let in_guest = file.machine.environment == Environment::Guest.name();
    let mut record = Record::resume(&out, file)?;
    let done = record.file.figures.len();
    let mut lab = Lab { testbed, scenario, images, store, tree, in_guest };
    for (index, point) in points.iter().enumerate().skip(done) {
        let figure = lab.figure(point).await;
        eprintln!("[{}/{}] {}", index + 1, points.len(), figure.line());
        record.add(figure)?;
        if lab.testbed.is_wedged() {
            break;
        }
    }
    Ok(())
}

/// Mounts the store of the units that need a file system of their own: units of faults, mirrors and
/// failovers, and units to which holes are written. Returns `None` without such units.
async fn store(scenario: &Scenario) -> Result<Option<Store>, Error> {
    let thin = scenario.measures.iter().find(|measure| measure.is_thin());
    let faulty = scenario.faults.first().map(|fault| fault.lun);
    let mirrored = scenario.mirrors.first().map(|mirror| mirror.lun);
    let failing = scenario.failovers.first().map(|failover| failover.lun);
    let lun = faulty.or(mirrored).or(failing).or_else(|| thin.map(|measure| measure.lun));
    match lun.and_then(|lun| scenario.file_of(lun)) {
        Some(file) => Store::mount(file).await.map(Some),
        None => Ok(None),
    }
}

/// Sets the scenario's system limits on both hosts. A limit that exists in one network namespace only, such as
/// `net.core.wmem_max`, applies to all namespaces.
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

/// The parts of the lab that measurements use.
struct Lab<'a> {
    testbed: &'a mut Testbed,
    scenario: Scenario,
    images: Images,
    store: Option<Store>,
    tree: PathBuf,
    in_guest: bool,
}

impl Lab<'_> {
    async fn figure(&mut self, point: &Point) -> Figure {
        if let Some(ordeal) = &point.ordeal {
            let (outcome, copied) = match self.ordeal(point, ordeal).await {
                Ok((outcome, copied)) => (outcome, Some(copied)),
                Err(outcome) => (outcome, None),
            };
            return Figure::of_fault(point, outcome, copied);
        }
        if let Some(flows) = &point.flows {
            let told = match self.prepare_flows(point, flows).await {
                Ok(bench) => flows::measure(point, flows, &bench, self.testbed).await,
                Err(error) => Err(Outcome::Failed(error.to_string())),
            };
            self.recover().await;
            return Figure::of_flows(point, told);
        }
        if let Some(mirror) = &point.mirror {
            let told = self.mirror(point, mirror).await;
            self.recover().await;
            return Figure::of_mirror(point, told);
        }
        if let Some((failover, run)) = &point.failover {
            let told = self.failover(point, failover, *run).await;
            self.recover().await;
            return Figure::of_failover(point, told);
        }
        if let Some(striped) = &point.stripe {
            let told = self.stripe(point, striped).await;
            if told.is_err() {
                self.recover().await;
            }
            return Figure::of_stripe(point, told);
        }
        let prepared = self.prepare(point).await;
        let before = testbed::carried();
        let reading = match prepared {
            Ok(bench) => measure(point, &bench, self.testbed).await,
            Err(error) => Err(Outcome::Failed(error.to_string())),
        };
        let after = testbed::carried();
        let reading = reading.and_then(|reading| self.check_bytes(point).map(|()| reading));
        if reading.is_err() {
            self.recover().await;
        }
        let is_complete = reading.is_ok();
        let mut figure = Figure::new(point, reading);
        if is_complete {
            figure.carried = before.zip(after).map(|(before, after)| after.since(before));
            figure.allocated_bytes = self.thin_store(point).and_then(Store::allocated);
        }
        figure
    }

    /// Returns the store of a unit to which holes are written; `None` for other measurements.
    fn thin_store(&self, point: &Point) -> Option<&Store> {
        self.store.as_ref().filter(|_| point.measure.is_thin())
    }

    /// Checks that a unit to which holes were written holds the bytes of the image.
    fn check_bytes(&self, point: &Point) -> Result<(), Outcome> {
        let Some(store) = self.thin_store(point) else { return Ok(()) };
        match store.held_by_unit(&self.images.image()) {
            Ok(held) if held.equal => Ok(()),
            Ok(_) => Err(Outcome::Failed("it ended well, but the bytes differ".to_owned())),
            Err(error) => Err(Outcome::Failed(error.to_string())),
        }
    }

    async fn prepare(&mut self, point: &Point) -> Result<Bench, Error> {
        if point.measure.is_thin() {
            self.renew_unit(point).await?;
        }
        self.testbed.set_target(&self.scenario.target.words(&point.measure.keys)).await?;
        self.testbed.set_link(&link_words(&point.link)).await?;
        match point.measure.direction {
            Direction::Read => self.images.make_room(point.bytes)?,
            Direction::Write => self.images.clear_room(),
        }
        if point.measure.writes_image() {
            self.images.make(point.measure.source, point.bytes)?;
        }
        Ok(self.bench())
    }

    /// Replaces the file of the unit by an empty one without allocated memory.
    async fn renew_unit(&mut self, point: &Point) -> Result<(), Error> {
        self.testbed.drop_target().await?;
        match (&mut self.store, self.scenario.file_of(point.measure.lun)) {
            (Some(store), Some(file)) => store.renew(file, point.bytes, None).await,
            _ => Ok(()),
        }
    }

    /// Makes the image, a target with a portal for each flow, and the link.
    async fn prepare_flows(&mut self, point: &Point, flows: &Flows) -> Result<Bench, Error> {
        self.images.clear_room();
        self.images.make(Source::Random, point.bytes)?;
        let mut words = self.scenario.target.words(&point.measure.keys);
        words.extend(flows::words(flows));
        self.testbed.set_target(&words).await?;
        self.testbed.set_link(&link_words(&point.link)).await?;
        Ok(self.bench())
    }

    /// Mirrors a disk of random bytes to a unit of zeros.
    async fn mirror(&mut self, point: &Point, mirror: &Mirror) -> Result<MirrorFigure, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        self.images.clear_room();
        self.renew_unit(point).await.map_err(failed)?;
        let bench = self.prepare(point).await.map_err(failed)?;
        let missing = || Outcome::Failed("no unit that keeps its bytes in a file".to_owned());
        let store = self.store.as_ref().ok_or_else(missing)?;
        mirror::measure(point, mirror, &bench, store).await
    }

    /// Writes to a unit of zeros whose paths fail.
    async fn failover(
        &mut self,
        point: &Point,
        failover: &Failover,
        run: FailoverRun,
    ) -> Result<FailoverFigure, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        self.images.clear_room();
        self.images.make(Source::Random, point.bytes).map_err(failed)?;
        self.renew_unit(point).await.map_err(failed)?;
        let mut words = self.scenario.target.words(&point.measure.keys);
        words.extend(failover::words(failover));
        self.testbed.set_target(&words).await.map_err(failed)?;
        self.testbed.set_link(&link_words(&point.link)).await.map_err(failed)?;
        let bench = self.bench();
        let missing = || Outcome::Failed("no unit that keeps its bytes in a file".to_owned());
        let store = self.store.as_ref().ok_or_else(missing)?;
        let settings = &self.scenario.multipath;
        let site = Site { testbed: &mut *self.testbed, store, settings, bench: &bench };
        failover::measure(point, failover, run, site).await
    }

    /// Moves bytes to or from several units that are joined to one device.
    async fn stripe(&mut self, point: &Point, striped: &Striped) -> Result<Reading, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        let mut words = self.scenario.target.words(&point.measure.keys);
        words.extend(stripe::words(striped));
        self.images.clear_room();
        if let Some(bytes) = stripe::image_bytes(point, striped) {
            self.images.make(Source::Random, bytes).map_err(failed)?;
        }
        self.testbed.set_target(&words).await.map_err(failed)?;
        self.testbed.set_link(&link_words(&point.link)).await.map_err(failed)?;
        stripe::measure(point, striped, &self.bench()).await
    }

    /// Runs a copy during which a fault happens. Returns the verdict and the figure.
    async fn ordeal(
        &mut self,
        point: &Point,
        ordeal: &Ordeal,
    ) -> Result<(Outcome, FaultFigure), Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        let words = self.prepare_ordeal(point, ordeal).await.map_err(failed)?;
        let missing = || Outcome::Failed("no unit that keeps its bytes in a file".to_owned());
        let store = self.store.as_ref().ok_or_else(missing)?;
        let bench = self.bench();
        let victims = Victims { testbed: &mut *self.testbed, point, target: &words, store };
        let copied = faults::copy(point, ordeal, &bench, victims).await;
        self.recover().await;
        let store = self.store.as_ref().ok_or_else(missing)?;
        let held = match ordeal.job {
            FaultJob::Write | FaultJob::Verify => store.held_by_unit(&bench.image),
            FaultJob::Read => store.held_by_file(&bench.copy, &bench.image),
        };
        let (copied, held) = (copied?, held.map_err(|error| failed(error.into()))?);
        let outcome = judge(&copied, held, ordeal.error.as_deref());
        Ok((outcome, FaultFigure { copied, held, expected: ordeal.error.clone() }))
    }

    /// Makes the image, the unit, the target and the link. Returns the arguments of the script `lab/lio` that
    /// describe the target.
    async fn prepare_ordeal(
        &mut self,
        point: &Point,
        ordeal: &Ordeal,
    ) -> Result<Vec<String>, Error> {
        self.testbed.drop_target().await?;
        self.images.make(Source::Random, point.bytes)?;
        self.images.clear_room();
        let file = self.scenario.file_of(point.measure.lun);
        if let (Some(store), Some(file)) = (&mut self.store, file) {
            let image = self.images.image();
            let image = (ordeal.job == FaultJob::Read).then_some(image.as_path());
            store.renew(file, point.bytes, image).await?;
        }
        let mut words = self.scenario.target.words(&point.measure.keys);
        words.push(format!("initiator={INITIATOR}"));
        self.testbed.set_target(&words).await?;
        self.testbed.set_link(&link_words(&point.link)).await?;
        Ok(words)
    }

    fn bench(&self) -> Bench {
        let (tree, image, copy) = (self.tree.clone(), self.images.image(), self.images.copy());
        Bench { tree, image, copy, in_guest: self.in_guest }
    }

    /// Cleans up after a measurement that failed or met a fault. Releases held packets and removes the limits
    /// of the link, so that requests in flight in the kernel can end. Then removes the target with all its
    /// sessions.
    async fn recover(&mut self) {
        let release = self.testbed.release().await;
        for tried in [release, self.testbed.set_link(&[]).await, self.testbed.drop_target().await] {
            if let Err(error) = tried {
                eprintln!("lab: {error}");
            }
        }
    }
}
