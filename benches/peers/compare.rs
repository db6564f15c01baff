//! Runs the whole comparison. The programs run in turn, repetition by repetition, so that other load of the
//! machine affects each program equally.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use iscsi_lab::provenance::{self, ProcessorTime, workspace};
use iscsi_lab::rate::mbit_per_s;
use iscsi_lab::record::Record;
use iscsi_lab::result::{Figure, LinkConditions, Machine, Outcome, ResultFile};
use iscsi_lab::signals::Signals;
use serde_json::Value;
use tokio::runtime::Builder;

use crate::Trouble;
use crate::args::CompareArgs;
use crate::null::{self, NullTarget};
use crate::programs::{Program, Programs, TargetKind};
use crate::rows::{Kind, Row, rows};
use crate::target::Target;

/// The result file in the repository.
const RESULT: &str = "benches/results/short-link.json";

/// Measures the loads that the arguments select. The result file is complete after each figure.
pub(crate) fn compare(args: &CompareArgs) -> Result<(), Trouble> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut signals = Signals::catch()?;
        // If a signal comes first, the measurement is dropped, which kills its child processes.
        tokio::select! {
            done = all(args) => done,
            signal = signals.next() => Err(format!("ended by {signal}").into()),
        }
    })
}

async fn all(args: &CompareArgs) -> Result<(), Trouble> {
    let rows = rows(args);
    if rows.is_empty() {
        return Err("no row has such a name".into());
    }
    let folder = workspace().join("target/short-link");
    fs::create_dir_all(&folder)?;
    let programs = Programs::build(&folder).await?;
    let units = rows.iter().map(Row::units).max().unwrap_or(1);
    let target = Target::start(&folder.join("tgtd.log"), units, &args.target_key).await?;
    let null = NullTarget::start().await?;
    let null_of_libiscsi = NullTarget::start().await?;
    let out = out(args, &folder);
    let record = Record::begin(&out, head(&target).await?)?;
    eprintln!("short_link: {} rows; the figures go to {}", rows.len(), out.display());
    let mut bench = Bench {
        args,
        programs,
        target,
        null,
        null_of_libiscsi,
        record,
        begun: ProcessorTime::now(),
    };
    for row in &rows {
        bench.runs(row).await?;
    }
    bench.calls(&rows).await?;
    if is_for_the_repository(args) {
        fs::copy(&out, workspace().join(RESULT))?;
        eprintln!("short_link: the figures are in {RESULT}");
    }
    let figures = &bench.record.file.figures;
    let failed = figures.iter().filter(|figure| is_failure(&figure.outcome)).count();
    let of = figures.len();
    bench.target.end().await?;
    bench.null.end().await?;
    if failed > 0 { Err(format!("{failed} of {of} runs did not end well").into()) } else { Ok(()) }
}

/// Returns whether a run failed. A load that a program does not support is no failure.
const fn is_failure(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_) | Outcome::TimedOut)
}

fn out(args: &CompareArgs, folder: &Path) -> PathBuf {
    match &args.out {
        Some(path) => path.clone(),
        None if args.test => folder.join("test.json"),
        None => folder.join("short-link.json"),
    }
}

/// Returns whether the figures replace the result file in the repository. Figures of a part or of a test do
/// not.
const fn is_for_the_repository(args: &CompareArgs) -> bool {
    args.out.is_none() && args.only.is_none() && !args.test
}

/// Returns the result file without figures.
async fn head(target: &Target) -> Result<ResultFile, Trouble> {
    let version = |package: &str| {
        provenance::first_line(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]))
    };
    let keys =
        target.keys().await?.into_iter().map(|(key, value)| (format!("target.{key}"), value));
    let mut settings: BTreeMap<_, _> = keys.collect();
    settings.extend(null::keys().map(|(key, value)| (format!("testkit.{key}"), value)));
    settings.extend(provenance::system());
    settings.insert("version.libiscsi".to_owned(), version("libiscsi-dev"));
    settings.insert("version.tgt".to_owned(), version("tgt"));
    let kernel = provenance::kernel();
    Ok(ResultFile {
        title: "The initiator beside libiscsi, without a link between".to_owned(),
        command: command(),
        date: provenance::now(),
        commit: provenance::commit(),
        machine: Machine {
            lab_kernel: kernel,
            environment: "host".to_owned(),
            ..provenance::machine()
        },
        settings,
        figures: Vec::new(),
    })
}

/// Returns the command that builds and runs this program. Its path shows the profile, and whether it was
/// built with profile-guided optimisation.
fn command() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let Ok(path) = program.strip_prefix(workspace())
        && path.starts_with("target/profile-guided")
    {
        let words = words.iter().map(|word| format!(" {word}"));
        return format!("benches/profile-guided\n{}{}", path.display(), words.collect::<String>());
    }
    let profile = program.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
    let words = if words.is_empty() { String::new() } else { format!(" -- {}", words.join(" ")) };
    let profile = profile.to_string_lossy();
    format!("cargo run --profile {profile} -p iscsi-benches --example short_link{words}")
}

struct Bench<'a> {
    args: &'a CompareArgs,
    programs: Programs,
    target: Target,
    null: NullTarget,
    /// A separate process for libiscsi: the target reports some acknowledgements that libiscsi sends during
    /// long writes as violations, and a violation by the initiator fails the run.
    null_of_libiscsi: NullTarget,
    record: Record,
    /// Counters of the machine's processors at the start, for the stolen time.
    begun: Option<ProcessorTime>,
}

impl Bench<'_> {
    /// Runs each program of a load repeatedly.
    async fn runs(&mut self, row: &Row) -> Result<(), Trouble> {
        let mut programs = Program::of(row, &self.args.runtime);
        let (what, runs) = match row.kind {
            Kind::Both | Kind::AndBare => ("run", self.args.runs),
            Kind::Disks(_) | Kind::OverOneSession(_) => ("disks", self.args.runs),
            Kind::Idle { .. } => ("idle", 1),
        };
        for repetition in 1..=if self.args.test { 1 } else { runs } {
            let mut skipped = Vec::new();
            for program in &programs {
                let (target, begun) = (self.target_time(*program), Instant::now());
                let mut told = self.programs.run(*program, row, &self.url(*program, row)).await;
                if let Ok(told) = &mut told {
                    let taken = self.target_time(*program).saturating_sub(target);
                    told["target_busy"] =
                        (taken.as_secs_f64() / begun.elapsed().as_secs_f64()).into();
                }
                if matches!(told, Err(Outcome::Skipped(_))) {
                    skipped.push(*program);
                }
                let mut figure = figure(what, *program, row, told);
                figure.parameters.insert("repetition".to_owned(), repetition.to_string());
                self.add(figure)?;
            }
            programs.retain(|program| !skipped.contains(program));
        }
        Ok(())
    }

    /// Returns the unit for a program.
    fn url(&self, program: Program, row: &Row) -> String {
        match program.target() {
            TargetKind::Testkit => self.null_of(program).url.clone(),
            TargetKind::Tgtd => self.target.url(row.digests),
        }
    }

    /// Returns the processor time of a program's target.
    fn target_time(&self, program: Program) -> Duration {
        match program.target() {
            TargetKind::Testkit => self.null_of(program).processor_time(),
            TargetKind::Tgtd => self.target.processor_time(),
        }
    }

    /// Returns the process of the testkit's target that a program uses.
    const fn null_of(&self, program: Program) -> &NullTarget {
        if matches!(program, Program::Libiscsi(_)) { &self.null_of_libiscsi } else { &self.null }
    }

    /// Runs each program once more against tgtd to count its system calls. Counting takes time, so no other
    /// figure is taken from these runs.
    async fn calls(&mut self, rows: &[Row]) -> Result<(), Trouble> {
        if let Some(why) = self.programs.cannot_count().await {
            eprintln!(
                "short_link: SKIPPED: system calls ({why}; ci/packages short-link installs perf)"
            );
            return Ok(());
        }
        for row in rows.iter().filter(|row| matches!(row.kind, Kind::Both | Kind::AndBare)) {
            for program in Program::of(row, &self.args.runtime) {
                if matches!(
                    program,
                    Program::Initiator(_, TargetKind::Tgtd) | Program::Libiscsi(TargetKind::Tgtd)
                ) {
                    let url = self.url(program, row);
                    let told = self.programs.calls(program, row, &url).await;
                    self.add(figure("calls", program, row, told))?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, figure: Figure) -> Result<(), Trouble> {
        println!("{}", figure.line());
        let stolen = self.begun.and_then(|begun| Some(ProcessorTime::now()?.stolen_since(begun)));
        self.record.file.machine.stolen = stolen;
        Ok(self.record.add(figure)?)
    }
}

fn figure(what: &str, program: Program, row: &Row, told: Result<Value, Outcome>) -> Figure {
    let mut parameters = vec![
        ("short_link", what.to_owned()),
        ("direction", row.direction.to_string()),
        ("io", row.io.to_string()),
        ("depth", row.depth.to_string()),
        ("digests", row.digests.to_string()),
    ];
    if let Program::Initiator(runtime, _) = program {
        parameters.push(("runtime", runtime.to_string()));
    }
    if program.target() == TargetKind::Testkit {
        parameters.push(("target", "testkit".to_owned()));
    }
    if !matches!(row.kind, Kind::Both | Kind::AndBare) {
        parameters.push(("disks", row.disks().to_string()));
    }
    if let Kind::OverOneSession(_) = row.kind {
        parameters.push(("sessions", "1".to_owned()));
    }
    let bytes = if matches!(row.kind, Kind::Idle { .. }) { 0 } else { row.bytes.0 };
    let (outcome, detail) = match told {
        Ok(detail) => (Outcome::Complete, detail),
        Err(outcome) => (outcome, Value::Null),
    };
    let seconds = detail["seconds"].as_f64();
    Figure {
        link: LinkConditions::default(),
        who: program.name().to_owned(),
        parameters: parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        outcome,
        bytes,
        seconds,
        goodput_mbit_per_s: seconds.filter(|_| bytes > 0).map(|seconds| mbit_per_s(bytes, seconds)),
        steady_mbit_per_s: None,
        start_seconds: None,
        samples_mbit_per_s: Vec::new(),
        carried: None,
        allocated_bytes: None,
        detail,
    }
}
