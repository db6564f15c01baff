//! Finds an environment for the lab on the host, and starts this program in it.

use std::env;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use iscsi_lab::args::{ExecArgs, LabArgs, Where};
use iscsi_lab::environment::Environment;
use iscsi_lab::exec::exec;
use iscsi_lab::provenance;
use iscsi_lab::result::{Machine, ResultFile};
use tokio::runtime::{Builder, Runtime};

use crate::grid::{Grid, Trouble};
use crate::variables::{OUT, RESULT, result_path};

/// Time limit of the lab in seconds: twice the time of the full grid.
const LIMIT: u64 = 9000;
/// Environment variables that select which points of the grid are measured. The command in the result file includes them.
const CHOICES: [&str; 4] = ["WAN_GRID", "WAN_RTT", "WAN_VARIANT", "WAN_BUFFER"];
/// Measures the grid in the lab. On a machine that has no environment for the lab it prints the reason,
/// measures nothing and returns success.
pub(crate) fn go(grid: &Grid, words: &[String]) -> Result<u8, Trouble> {
    let points = grid.points().len();
    if is_rehearsal(words) {
        println!("wan: would measure {points} points in the lab");
        return Ok(0);
    }
    let environment = match Environment::find(Where::Auto) {
        Ok(environment) => environment,
        Err(reason) => {
            eprintln!("wan: skipped: {reason}");
            return Ok(0);
        }
    };
    eprintln!("wan: {points} points in the lab; the figures go to {}", result_path().display());
    let args = ExecArgs {
        lab: LabArgs { environment: Where::Auto, limit: Some(LIMIT), memory: None },
        words: vec!["lun=0:64M".to_owned()],
        program: program(environment, words)?,
    };
    Ok(runtime()?.block_on(exec(&args))?)
}

pub(crate) fn runtime() -> Result<Runtime, Trouble> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Returns whether criterion will measure nothing. It measures only if cargo passes `--bench`.
fn is_rehearsal(words: &[String]) -> bool {
    let has = |option: &str| words.iter().any(|word| word == option);
    has("--test") || has("--list") || !has("--bench")
}

/// Returns the command line of this program in the lab. It contains the facts that the program cannot find out
/// there.
fn program(environment: Environment, words: &[String]) -> Result<Vec<String>, Trouble> {
    let program = env::current_exe()?;
    let head = serde_json::to_string(&head(environment))?;
    let home = env::var("CRITERION_HOME").map_or_else(|_| criterion_home(&program), PathBuf::from);
    let mut line = vec![
        "env".to_owned(),
        format!("{RESULT}={head}"),
        format!("CRITERION_HOME={}", home.display()),
        format!("{OUT}={}", result_path().display()),
    ];
    let chosen = CHOICES.iter().filter_map(|name| Some((name, env::var(name).ok()?)));
    line.extend(chosen.map(|(name, value)| format!("{name}={value}")));
    line.push(program.display().to_string());
    line.extend_from_slice(words);
    // Standard output in the lab is always a terminal, so criterion needs an option if it is no terminal on the
    // host.
    if !stdout().is_terminal() {
        line.push("--color=never".to_owned());
    }
    Ok(line)
}

/// Returns the folder of criterion's results: beside the folder of the profile that this program was built
/// with, as cargo has it for other benches.
fn criterion_home(program: &Path) -> PathBuf {
    let target = program.ancestors().nth(3).unwrap_or_else(|| Path::new("target"));
    target.join("criterion")
}

/// Returns the result file without figures.
fn head(environment: Environment) -> ResultFile {
    let choices = CHOICES.iter().filter_map(|name| Some((name, env::var(name).ok()?)));
    let choices: String = choices.map(|(name, value)| format!("{name}={value} ")).collect();
    ResultFile {
        title: "Send buffers, Nagle and multi-page sends over long links".to_owned(),
        command: format!("{choices}cargo bench -p iscsi-benches --bench wan"),
        date: provenance::now(),
        commit: provenance::commit(),
        machine: Machine { environment: environment.name().to_owned(), ..provenance::machine() },
        settings: Default::default(),
        figures: Vec::new(),
    }
}
