//! On the machine: finds a place for the lab, and starts this program there.

use std::env;
use std::ffi::OsStr;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use iscsi_lab::args::{ExecArgs, LabArgs, Where};
use iscsi_lab::exec::exec;
use iscsi_lab::facts;
use iscsi_lab::place::Place;
use iscsi_lab::result::{Machine, ResultFile};
use tokio::runtime::{Builder, Runtime};

use crate::Trouble;
use crate::grid::Grid;
use crate::work::RESULT;

/// Twice what the full grid may take, seconds.
const LIMIT: u64 = 9000;
/// What chooses the points; the result file tells them as part of its command.
const CHOICES: [&str; 4] = ["WAN_GRID", "WAN_RTT", "WAN_VARIANT", "WAN_BUFFER"];
/// Names another result file. Where it lies is no part of what was measured.
const OUT: &str = "WAN_OUT";

/// Measures the grid in the lab, or says why not. A machine without a place for it is no error.
pub(crate) fn go(grid: &Grid, words: &[String]) -> Result<u8, Trouble> {
    let points = grid.points().len();
    if is_rehearsal(words) {
        println!("wan: would measure {points} points in the lab");
        return Ok(0);
    }
    let place = match Place::find(Where::Auto) {
        Ok(place) => place,
        Err(reason) => {
            eprintln!("wan: skipped: {reason}");
            return Ok(0);
        }
    };
    eprintln!("wan: {points} points in the lab; the figures go to {}", result_path().display());
    let args = ExecArgs {
        lab: LabArgs { place: Where::Auto, limit: Some(LIMIT), memory: None },
        words: vec!["lun=0:64M".to_owned()],
        program: program(place, words)?,
    };
    Ok(runtime()?.block_on(exec(&args))?)
}

/// Where the figures go.
pub(crate) fn result_path() -> PathBuf {
    let chosen = env::var_os(OUT).filter(|path| !path.is_empty());
    chosen.map_or_else(|| facts::workspace().join("target/lab/wan.json"), |path| called_from(&path))
}

/// A path as the caller means it: cargo starts a bench in its package's folder, but leaves the
/// shell's own word for where it was called.
fn called_from(path: &OsStr) -> PathBuf {
    let folder = env::var_os("PWD").map(PathBuf::from).or_else(|| env::current_dir().ok());
    folder.unwrap_or_default().join(path)
}

pub(crate) fn runtime() -> Result<Runtime, Trouble> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Whether criterion would measure nothing: it measures only when cargo says `--bench`.
fn is_rehearsal(words: &[String]) -> bool {
    let has = |option: &str| words.iter().any(|word| word == option);
    has("--test") || has("--list") || !has("--bench")
}

/// This program with its arguments, and what it cannot find out in the lab.
fn program(place: Place, words: &[String]) -> Result<Vec<String>, Trouble> {
    let program = env::current_exe()?;
    let head = serde_json::to_string(&head(place))?;
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
    // The lab has a terminal of its own, whatever there is here.
    if !stdout().is_terminal() {
        line.push("--color=never".to_owned());
    }
    Ok(line)
}

/// Beside the folder of the profile this program was built with, where criterion's other benches
/// keep theirs.
fn criterion_home(program: &Path) -> PathBuf {
    let target = program.ancestors().nth(3).unwrap_or_else(|| Path::new("target"));
    target.join("criterion")
}

/// The result file before the first figure.
fn head(place: Place) -> ResultFile {
    let choices = CHOICES.iter().filter_map(|name| Some((name, env::var(name).ok()?)));
    let choices: String = choices.map(|(name, value)| format!("{name}={value} ")).collect();
    ResultFile {
        title: "Send buffers, Nagle and multi-page sends over long links".to_owned(),
        command: format!("{choices}cargo bench -p iscsi-benches --bench wan"),
        date: facts::now(),
        commit: facts::commit(),
        machine: Machine { place: place.name().to_owned(), ..facts::machine() },
        settings: Default::default(),
        figures: Vec::new(),
    }
}
