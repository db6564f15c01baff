//! The half of the lab that runs in its place: makes the rig, measures, takes it down.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::error::Error;
use crate::facts;
use crate::images::Images;
use crate::order::{ExecOrder, Order, RunOrder};
use crate::peers::{Bench, measure};
use crate::place::{Place, code};
use crate::process::{Group, tool};
use crate::record::Record;
use crate::result::{Figure, Outcome};
use crate::rig::{self, Rig, link_words};
use crate::scenario::{Direction, Point, Scenario};
use crate::signals::Signals;

/// Carries out an order and returns the exit status.
///
/// # Errors
/// [`Error`] for what is no measurement's own failure.
pub async fn inside(order: &str) -> Result<u8, Error> {
    match serde_json::from_str(order)? {
        Order::Run(order) => run(*order).await,
        Order::Exec(order) => exec(&order).await,
    }
}

async fn exec(order: &ExecOrder) -> Result<u8, Error> {
    let mut signals = Signals::catch()?;
    let mut rig = Rig::up(&order.scripts, &order.link).await?;
    let done = tokio::select! {
        done = exec_on(&mut rig, order) => done,
        _ = signals.next() => Ok(1),
    };
    take_down(rig).await;
    done
}

async fn exec_on(rig: &mut Rig, order: &ExecOrder) -> Result<u8, Error> {
    rig.set_target(&order.target).await?;
    let url = rig::url(order.lun);
    let words: Vec<_> = order.program.iter().map(|word| word.replace("{url}", &url)).collect();
    let (program, arguments) =
        words.split_first().ok_or_else(|| Error::Usage("no program".to_owned()))?;
    let mut command = Command::new(program);
    command.args(arguments).env("LAB_URL", &url);
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    Ok(code(Group::start(&mut command)?.child.wait().await?))
}

async fn run(order: RunOrder) -> Result<u8, Error> {
    let mut signals = Signals::catch()?;
    let points = order.scenario.points();
    let Some(first) = points.first() else { return Ok(0) };
    load(&order.scenario.modules).await?;
    let mut rig = Rig::up(&order.scripts, &link_words(&first.link)).await?;
    let done = tokio::select! {
        done = measure_all(&mut rig, order, &points) => done,
        _ = signals.next() => Ok(()),
    };
    take_down(rig).await;
    done.map(|()| 0)
}

/// Takes the rig down. Whatever comes of it, what was done before decides how all ends.
async fn take_down(rig: Rig) {
    if let Err(error) = rig.down().await {
        eprintln!("lab: {error}");
    }
}

async fn load(modules: &[String]) -> Result<(), Error> {
    for module in modules {
        tool(Command::new("modprobe").arg(module)).await?;
    }
    Ok(())
}

async fn measure_all(rig: &mut Rig, order: RunOrder, points: &[Point]) -> Result<(), Error> {
    let RunOrder { scenario, mut file, out, tree, .. } = order;
    set_system(&scenario).await?;
    rig.set_target(&scenario.target.words(&Default::default())).await?;
    file.machine.lab_kernel = facts::kernel();
    file.settings.extend(facts::system());
    file.settings.extend(facts::target());
    let in_guest = file.machine.place == Place::Guest.name();
    let mut record = Record::begin(&out, file)?;
    let mut lab = Lab { rig, scenario, images: Images::mount()?, tree, in_guest };
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
        let path = facts::sysctl_file(name);
        fs::write(&path, value)
            .map_err(|cause| Error::File { path: PathBuf::from(&path), cause })?;
        tool(rig::far("sh").args(["-c", SET, "sh", &path, value])).await?;
    }
    Ok(())
}

/// All that a measurement needs.
struct Lab<'a> {
    rig: &'a mut Rig,
    scenario: Scenario,
    images: Images,
    tree: PathBuf,
    in_guest: bool,
}

impl Lab<'_> {
    async fn figure(&mut self, point: &Point) -> Figure {
        let reading = match self.prepare(point).await {
            Ok(bench) => measure(point, &bench, self.rig).await,
            Err(error) => Err(Outcome::Failed(error.to_string())),
        };
        if reading.is_err() {
            self.recover().await;
        }
        Figure::new(point, reading)
    }

    async fn prepare(&mut self, point: &Point) -> Result<Bench, Error> {
        self.rig.set_target(&self.scenario.target.words(&point.measure.keys)).await?;
        self.rig.set_link(&link_words(&point.link)).await?;
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
        for tried in [self.rig.set_link(&[]).await, self.rig.drop_target().await] {
            if let Err(error) = tried {
                eprintln!("lab: {error}");
            }
        }
    }
}
