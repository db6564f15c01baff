//! Runs the steps of a page in one shell.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use guide::expect::is_as_shown;
use guide::page::{Page, Run, Step};
use tokio::process::Command;
use tokio::time::timeout;

use crate::world::World;

/// Time limit of a page, much longer than any page takes.
const PATIENCE: Duration = Duration::from_secs(240);
/// The programs of this workspace.
pub(crate) const PROGRAMS: [&str; 4] = ["block-copy", "block-serve", "iscsi-util", "link-doctor"];

/// The folders of one run.
struct Place {
    /// The folder in which the commands of the page run.
    work: PathBuf,
    /// Output and status of each step.
    results: PathBuf,
    /// The built programs.
    programs: PathBuf,
}

/// Runs a page. Panics with all steps that do not do what the page shows.
pub(crate) async fn run(name: &str, page: &Page) {
    let complaints = complaints(name, page).await;
    assert!(complaints.is_empty(), "{name}.md:\n\n{}", complaints.join("\n\n"));
}

/// Runs a page. Returns the steps that do not do what the page shows.
pub(crate) async fn complaints(name: &str, page: &Page) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let place = Place {
        work: folder.path().join("work"),
        results: folder.path().join("results"),
        programs: programs(),
    };
    fs::create_dir(&place.work).unwrap();
    fs::create_dir(&place.results).unwrap();
    let world = World::start().await;
    let steps: Vec<_> = page.steps.iter().filter(|step| runs(name, step)).collect();
    let ended = execute(&place, &script(&place, &world, &steps)).await;
    let mut complaints: Vec<_> =
        steps.iter().enumerate().filter_map(|(at, step)| check(&place, &world, at, step)).collect();
    complaints.extend(unannounced_failures(&place, &steps));
    complaints.extend(world.violations());
    let left = place.results.join("left");
    if !ended {
        complaints.push(format!("the page did not end within {PATIENCE:?}"));
    } else if !left.exists() {
        complaints.push("the shell did not come to its end".to_owned());
    } else if let left = read(&left)
        && !left.is_empty()
    {
        complaints.push(format!("the page leaves programs running: {}", left.trim_end()));
    }
    complaints
}

/// Returns the folder of the built programs: the target folder of this test.
pub(crate) fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().to_owned();
    for program in PROGRAMS {
        let path = folder.join(program);
        let build = "cargo build --workspace --bins";
        assert!(
            path.exists(),
            "{} is missing: {build}, with the profile of this test",
            path.display()
        );
    }
    folder
}

/// Returns whether a step can run here.
fn runs(name: &str, step: &Step) -> bool {
    let Run::With(needed) = &step.run else { return false };
    let missing: Vec<_> = needed.iter().filter(|program| !is_installed(program)).collect();
    if !missing.is_empty() {
        report_skipped(&format!(
            "a command of docs/guide, {name}.md:{}: {missing:?} is missing",
            step.line
        ));
    }
    missing.is_empty()
}

/// Reports a skipped block, also in the file that GUIDE_SKIPPED names: cargo hides the output of a test that passes.
fn report_skipped(skipped: &str) {
    eprintln!("!!! SKIPPED: {skipped}");
    if let Some(path) = std::env::var_os("GUIDE_SKIPPED") {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{skipped}\n").as_bytes()).unwrap();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns a script that runs the steps, and writes output and status of each to files. The output of a
/// background program belongs to the step that started it.
fn script(place: &Place, world: &World, steps: &[&Step]) -> String {
    let results = place.results.display();
    let mut script = String::from("guide_status=0\n");
    for (at, step) in steps.iter().enumerate() {
        let command = world.here(&step.command);
        write!(
            script,
            "exec 2>'{results}/{at}.errors' >'{results}/{at}'\n\
             (exit \"$guide_status\")\n\
             {command}\n\
             guide_status=$?\n\
             echo \"$guide_status\" >'{results}/{at}.status'\n"
        )
        .unwrap();
    }
    write!(
        script,
        "exec >'{results}/left'\n\
         for guide_left in $(jobs -rp); do ps -o args= -p \"$guide_left\"; done\n"
    )
    .unwrap();
    script
}

/// Runs the script. Returns whether it ended in time. Processes that it leaves running are killed.
async fn execute(place: &Place, script: &str) -> bool {
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("bash")
        .args(["-c", script])
        .current_dir(&place.work)
        .env_clear()
        .env("PATH", format!("{}:{path}", place.programs.display()))
        .env("HOME", &place.work)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let group = shell.id().unwrap();
    let ended = timeout(PATIENCE, shell.wait()).await.is_ok();
    let kill = ["-KILL", "--", &format!("-{group}")];
    // A group without any process left is not an error, so the status of `kill` is ignored.
    Command::new("kill").args(kill).stderr(Stdio::null()).status().await.unwrap();
    ended
}

fn check(place: &Place, world: &World, at: usize, step: &Step) -> Option<String> {
    let file = |name: String| read(&place.results.join(name));
    let printed = file(format!("{at}.errors")) + &file(at.to_string());
    let printed = without_time_stamps(&world.as_on_the_page(&printed));
    let Some(shown) = &step.shown else {
        let failed = status(place, at) != Some(0);
        return failed.then(|| format!("line {}: the setup failed:\n{printed}", step.line));
    };
    (!is_as_shown(shown, &printed)).then(|| {
        let (line, command) = (step.line, &step.command);
        format!(
            "line {line}: $ {command}\nthe page shows:\n{}\nit prints:\n{printed}",
            shown.join("\n")
        )
    })
}

/// Removes time stamps from lines, as a terminal shows them: warnings have time stamps only in a log file.
pub(crate) fn without_time_stamps(printed: &str) -> String {
    let without = |line: &str| match line.split_once("Z warning: ") {
        Some((stamp, text)) if stamp.starts_with("20") && !stamp.contains(' ') => {
            format!("warning: {text}\n")
        }
        _ => format!("{line}\n"),
    };
    printed.lines().map(without).collect()
}

/// Returns the steps that fail although the page does not show it by `echo $?` below.
fn unannounced_failures(place: &Place, steps: &[&Step]) -> Vec<String> {
    let is_shown = |at: usize| steps.get(at + 1).is_some_and(|next| next.command == "echo $?");
    let failed = steps.iter().enumerate().filter(|(at, step)| {
        step.shown.is_some() && status(place, *at) != Some(0) && !is_shown(*at)
    });
    failed
        .map(|(at, step)| {
            format!("line {}: the status is {:?}, unannounced", step.line, status(place, at))
        })
        .collect()
}

fn status(place: &Place, at: usize) -> Option<u8> {
    read(&place.results.join(format!("{at}.status"))).trim().parse().ok()
}

/// Reads a file of results. It is empty if the script did not reach its step.
fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
