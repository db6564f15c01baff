//! `lab run`: measures a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;
use std::time::Duration;

use crate::agent::WEDGED;
use crate::args::RunArgs;
use crate::environment::{Ending, Environment, find, scripts};
use crate::error::Error;
use crate::exec::report_ending;
use crate::job::{Job, RunJob};
use crate::provenance::{self, ProcessorTime};
use crate::record::Record;
use crate::result::{Figure, Machine, Outcome, ResultFile};
use crate::scenario::{
    Contender, Direction, Joiner, Point, Scenario, Source, Through, Who, Writes,
};
use crate::size::Size;

/// Measures a scenario and returns the exit status.
///
/// # Errors
/// [`Error`] if the measurement cannot begin.
pub async fn run(args: &RunArgs) -> Result<u8, Error> {
    let mut scenario = Scenario::read(&args.scenario)?;
    scenario.keep_only(&args.only)?;
    scenario.keep_direction(args.direction)?;
    let environment = Environment::find(args.lab.environment)?;
    let tree = programs(args, &scenario)?;
    let out = result_path(args, environment)?;
    let points = scenario.points();
    let memory = args.lab.memory.unwrap_or_else(|| memory(&scenario, &points));
    let limit = args.lab.limit.map_or_else(|| longest(&points), Duration::from_secs);
    let file = empty_file(args, &scenario, environment, &tree);
    let job = RunJob { scenario, file, out: out.clone(), tree, scripts: scripts() };
    let job = Job::Run(Box::new(job));
    let begun = ProcessorTime::now();
    let ending = loop {
        let ending = environment.carry_out(&job, memory, limit).await?;
        // A target that cannot be removed disappears with its guest, so another guest measures the rest. On the
        // machine's own kernel it stays.
        if ending != Ending::Status(WEDGED) || environment == Environment::Host {
            break ending;
        }
        if is_complete(&out, points.len())? {
            break Ending::Status(0);
        }
        eprintln!("lab: the target does not go any more; another guest does the rest");
    };
    if out.is_file() {
        record_stolen_time(&out, begun)?;
        eprintln!("lab: the figures are in {}", out.display());
    }
    let status = report_ending(ending, limit);
    if status == 0 && args.strict { verdict(&out) } else { Ok(status) }
}

/// Adds to the result the share of time that the hypervisor took from this machine. A guest cannot see it.
fn record_stolen_time(out: &Path, begun: Option<ProcessorTime>) -> Result<(), Error> {
    let mut file = read(out)?;
    let share = |begun| Some(ProcessorTime::now()?.stolen_since(begun));
    file.machine.stolen = begun.and_then(share);
    Record::begin(out, file).map(drop)
}

fn read(out: &Path) -> Result<ResultFile, Error> {
    let text = fs::read(out).map_err(|cause| Error::File { path: out.into(), cause })?;
    Ok(serde_json::from_slice(&text)?)
}

/// Returns whether the result has all figures.
fn is_complete(out: &Path, figures: usize) -> Result<bool, Error> {
    Ok(read(out)?.figures.len() >= figures)
}

/// Returns 1 if a figure of the result failed or timed out, else 0. Skipped figures are printed, but are not
/// failures.
fn verdict(out: &Path) -> Result<u8, Error> {
    let file = read(out)?;
    for (who, reason) in skipped(&file.figures) {
        eprintln!("lab: skipped: {who}: {reason}");
    }
    Ok(u8::from(!file.figures.iter().all(|figure| is_good(&figure.outcome))))
}

/// Returns which programs were skipped and why, each pair once.
fn skipped(figures: &[Figure]) -> BTreeSet<(&str, &str)> {
    let skips = figures.iter().filter_map(|figure| match &figure.outcome {
        Outcome::Skipped(reason) => Some((figure.who.as_str(), reason.as_str())),
        Outcome::Complete | Outcome::TimedOut | Outcome::Failed(_) => None,
    });
    skips.collect()
}

fn is_good(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Complete | Outcome::Skipped(_) => true,
        Outcome::TimedOut | Outcome::Failed(_) => false,
    }
}

/// Returns the path of the result. Makes its folder, and renames an existing result to a name with `.before`.
fn result_path(args: &RunArgs, environment: Environment) -> Result<PathBuf, Error> {
    let path = args.out.clone().unwrap_or_else(|| {
        let name = args.scenario.file_stem().unwrap_or_default();
        provenance::workspace().join("target/lab").join(name).with_extension("json")
    });
    let file_error = |cause| Error::File { path: path.clone(), cause };
    let full = absolute(&path).map_err(file_error)?;
    if environment == Environment::Guest
        && OWN_TO_GUEST.iter().any(|folder| full.starts_with(folder))
    {
        return Err(Error::Usage(format!(
            "{}: a guest has a {} of its own; name a file elsewhere",
            path.display(),
            OWN_TO_GUEST.join(", "),
        )));
    }
    fs::create_dir_all(full.parent().unwrap_or_else(|| Path::new("/"))).map_err(file_error)?;
    match fs::rename(&full, full.with_extension("json.before")) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(file_error(cause)),
        _ => Ok(full),
    }
}

/// Folders that a guest does not share with the machine.
const OWN_TO_GUEST: [&str; 5] = ["/run", "/dev", "/proc", "/sys", "/mnt"];

/// Returns the folder of the built programs.
fn programs(args: &RunArgs, scenario: &Scenario) -> Result<PathBuf, Error> {
    if let Some(tree) = &args.tree {
        return absolute(tree).map_err(|cause| Error::File { path: tree.clone(), cause });
    }
    let copiers = scenario.measures.iter().map(|measure| measure.who);
    let mut copiers = copiers.chain(scenario.flows.iter().map(|flows| flows.who));
    let copies = copiers.any(|who| who == Who::BlockCopy);
    let own = [Writes::Copy, Writes::Random].map(|writes| fails_over(scenario, writes));
    if copies || own[0] || !scenario.faults.is_empty() {
        build("block-copy")?;
    }
    let joins = |who| scenario.stripes.iter().any(|stripe| stripe.who == who);
    if joins(Joiner::Volume) || joins(Joiner::Apart) {
        build("block-copy")?;
    }
    if joins(Joiner::Volume) {
        build("iscsi-util")?;
    }
    if own[1] || scenario.mirrors.iter().any(|mirror| mirror.through == Through::BlockServe) {
        build("block-serve")?;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Ok(provenance::workspace().join(target.unwrap_or_else(|| "target".into())).join("release"))
}

/// Returns whether the scenario has a failover in which a program of this project makes writes of this kind.
fn fails_over(scenario: &Scenario, writes: Writes) -> bool {
    let mut runs = scenario.failovers.iter().flat_map(|failover| &failover.runs);
    runs.any(|run| run.through == Contender::Own && run.writes == writes)
}

/// Builds a program of the workspace.
fn build(package: &str) -> Result<(), Error> {
    let words = ["build", "--release", "--quiet", "-p", package];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command.args(words).current_dir(provenance::workspace());
    let program = cargo.to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Tool {
            program: format!("cargo build -p {package}"),
            message: status.to_string(),
        }),
        Err(cause) => Err(Error::Start { program, cause }),
    }
}

/// Memory that the kernel and the programs need besides the images.
const BASE: u64 = 512 << 20;

/// Returns the memory of a guest that holds the units, the image and the file that is read to.
fn memory(scenario: &Scenario, points: &[Point]) -> Size {
    let most = |holds: &dyn Fn(&Point) -> bool| {
        points.iter().filter(|point| holds(point)).map(|point| point.bytes).max().unwrap_or(0)
    };
    let image = most(&|point| {
        (point.measure.writes_image() && point.measure.source != Source::Sparse)
            || point.failover.is_some()
            || point.stripe.is_some()
    });
    let copy = most(&|point| point.measure.direction == Direction::Read);
    let store = most(&|point| {
        point.ordeal.is_some()
            || point.mirror.is_some()
            || point.failover.is_some()
            || point.measure.is_thin()
    });
    Size(BASE + scenario.target.memory() + image + copy + store)
}

/// Time besides a measurement: the target is made, the image filled, and the kernel's initiator logs out.
const AROUND: Duration = Duration::from_secs(90);

fn longest(points: &[Point]) -> Duration {
    points.iter().map(|point| point.limit + AROUND).sum::<Duration>() + AROUND
}

fn empty_file(
    args: &RunArgs,
    scenario: &Scenario,
    environment: Environment,
    tree: &Path,
) -> ResultFile {
    ResultFile {
        title: scenario.title.clone(),
        command: command(args),
        date: provenance::now(),
        commit: provenance::commit(),
        machine: Machine { environment: environment.name().to_owned(), ..provenance::machine() },
        settings: versions(scenario, tree),
        figures: Vec::new(),
    }
}

/// Returns the command that makes this result file, from the workspace's folder. For a scenario outside of
/// the workspace, only the file's name is given: its folder has no meaning on another machine.
fn command(args: &RunArgs) -> String {
    let full = absolute(&args.scenario).unwrap_or_else(|_| args.scenario.clone());
    let inside = full.strip_prefix(provenance::workspace()).ok();
    let scenario =
        inside.unwrap_or_else(|| Path::new(args.scenario.file_name().unwrap_or_default()));
    let mut words = vec![format!("cargo run --release -p iscsi-lab -- run {}", scenario.display())];
    if !args.only.is_empty() {
        words.push(format!("--only {}", args.only.join(",")));
    }
    words.extend(args.direction.map(|direction| format!("--direction {}", direction.name())));
    words.join(" ")
}

/// Returns the versions of the measured programs.
fn versions(scenario: &Scenario, tree: &Path) -> BTreeMap<String, String> {
    let version = |program: &PathBuf| {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let found = program.to_str().and_then(find).unwrap_or_else(|| program.clone());
        let version = provenance::first_line(Command::new(found).arg("--version"));
        (format!("version.{name}"), version)
    };
    measured(scenario, tree).iter().map(version).collect()
}

/// Returns the measured programs.
fn measured(scenario: &Scenario, tree: &Path) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let of_faults = scenario.faults.first().map(|_| Who::BlockCopy);
    let of_flows = scenario.flows.iter().map(|flows| flows.who);
    let of_measures = scenario.measures.iter().map(|measure| measure.who);
    for who in of_measures.chain(of_faults).chain(of_flows) {
        let program = match who {
            Who::BlockCopy => tree.join("block-copy"),
            Who::Iperf3 => "iperf3".into(),
            Who::Libiscsi | Who::QemuImg => "qemu-img".into(),
            Who::OpenIscsi => "iscsiadm".into(),
            Who::Program => continue,
        };
        programs.push(program);
    }
    if !scenario.mirrors.is_empty() {
        programs.push("qemu-storage-daemon".into());
    }
    if scenario.mirrors.iter().any(|mirror| mirror.load.is_some()) {
        programs.push("fio".into());
    }
    if scenario.mirrors.iter().any(|mirror| mirror.through == Through::BlockServe)
        || fails_over(scenario, Writes::Random)
    {
        programs.push(tree.join("block-serve"));
    }
    programs.extend(measured_over_paths(scenario, tree));
    programs.extend(measured_as_one(scenario, tree));
    programs
}

/// Returns the programs that write over failing paths, except block-serve.
fn measured_over_paths(scenario: &Scenario, tree: &Path) -> Vec<PathBuf> {
    let runs: Vec<_> = scenario.failovers.iter().flat_map(|failover| &failover.runs).collect();
    let mut programs = Vec::new();
    if fails_over(scenario, Writes::Copy) {
        programs.push(tree.join("block-copy"));
    }
    if runs.iter().any(|run| run.through == Contender::DmMultipath) {
        programs.extend(["iscsiadm".into()]);
    }
    if runs.iter().any(|run| run.writes == Writes::Random) {
        programs.push("fio".into());
    }
    programs
}

/// Returns the programs that join units to one device.
fn measured_as_one(scenario: &Scenario, tree: &Path) -> Vec<PathBuf> {
    let joiners = scenario.stripes.iter().map(|stripe| stripe.who);
    let programs = joiners.flat_map(|who| match who {
        Joiner::Volume | Joiner::Apart => vec![tree.join("block-copy")],
        Joiner::MdRaid0 => vec!["mdadm".into(), "iscsiadm".into(), "fio".into()],
    });
    programs.collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn command_of(scenario: &Path) -> String {
        let line = ["lab", "run", scenario.to_str().unwrap(), "--only", "iperf3"];
        command_for(&line)
    }

    fn command_for(line: &[&str]) -> String {
        let Command::Run(args) = Cli::parse_from(line).command else { panic!("another command") };
        command(&args)
    }

    #[test]
    fn the_command_names_no_folder_beyond_the_workspace() {
        let told = "cargo run --release -p iscsi-lab -- run";
        let own = provenance::workspace().join("lab/scenarios/quick.toml");
        assert_eq!(command_of(&own), format!("{told} lab/scenarios/quick.toml --only iperf3"));
        let other = Path::new("/elsewhere/own.toml");
        assert_eq!(command_of(other), format!("{told} own.toml --only iperf3"));
    }

    #[test]
    fn the_command_tells_the_direction() {
        let told = command_for(&["lab", "run", "/elsewhere/own.toml", "--direction", "read"]);
        assert!(told.ends_with("own.toml --direction read"), "{told}");
    }

    #[test]
    fn a_result_of_earlier_is_kept_until_the_next() {
        let folder = std::env::temp_dir().join(format!("lab-run-{}", std::process::id()));
        let out = folder.join("one.json");
        let line = ["lab", "run", "one.toml", "--out", out.to_str().unwrap()];
        let Command::Run(args) = Cli::parse_from(line).command else { panic!("another command") };
        for text in ["first", "second"] {
            assert_eq!(result_path(&args, Environment::Host).unwrap(), out);
            fs::write(&out, text).unwrap();
        }
        assert_eq!(result_path(&args, Environment::Host).unwrap(), out);
        assert_eq!(fs::read_to_string(folder.join("one.json.before")).unwrap(), "second");
        assert!(!out.exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn who_was_skipped_is_named_once() {
        let text = r#"
            title = "one"
            target = { luns = ["0:10M"] }
            link = [{ rtt_ms = [1] }]
            measure = [{ who = "open-iscsi" }]
        "#;
        let point = Scenario::parse(text).unwrap().points().remove(0);
        let figure = |outcome| Figure::new(&point, Err(outcome));
        let missing = || figure(Outcome::Skipped("it is missing".to_owned()));
        let figures = [missing(), figure(Outcome::TimedOut), missing()];
        assert_eq!(Vec::from_iter(skipped(&figures)), [("open-iscsi", "it is missing")]);
    }
}
