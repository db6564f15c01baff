//! Runs the kernel's initiator: open-iscsi logs in, and `dd` moves the bytes.
//!
//! iscsid and its settings belong to the lab: a copy of the settings is mounted over the machine's
//! `/etc/iscsi`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;

use super::bench::Bench;
use super::end::{missing, to_end};
use super::reading::Reading;
use crate::environment::find;
use crate::error::Error;
use crate::process::{Group, tool};
use crate::result::Outcome;
use crate::scenario::{Direction, Point};
use crate::testbed::{TARGET, Testbed, portal};

const PACKAGE: &str = "open-iscsi";
/// The folder in which the programs search for settings. At first it has the package's settings.
const SETTINGS: &str = "/etc/iscsi";
/// The copy of that folder, in the lab's own folder.
const COPY: &str = "/mnt/iscsi";
/// The copy of the package's `iscsid.conf`.
const PACKAGED: &str = "packaged.conf";
const NAME: &str = "InitiatorName=iqn.2026-01.org.example:lab\n";
/// Largest number of checks when waiting for a state; `PAUSE` is the interval.
const MAX_POLLS: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn measure(
    point: &Point,
    bench: &Bench,
    testbed: &Testbed,
) -> Result<Reading, Outcome> {
    let failed = |error: Error| Outcome::Failed(error.to_string());
    let daemon = daemon(bench).await?;
    let reading = match log_in(point.measure.lun).await {
        Ok(disk) => move_bytes(point, bench, &disk).await,
        Err(error) => Err(failed(error)),
    };
    if reading.is_err() {
        // Remove the limits of the link, so that the kernel's writes in flight end quickly.
        warn(testbed.set_link(&[]).await);
    }
    log_out_quietly().await;
    drop(daemon);
    reading
}

/// Starts the daemon.
///
/// # Errors
/// [`Outcome::Skipped`] if it cannot run here, [`Outcome::Failed`] if it should run but does not.
pub async fn daemon(bench: &Bench) -> Result<Group, Outcome> {
    daemon_with(bench, &BTreeMap::new()).await
}

/// Starts the daemon with these lines of `iscsid.conf`, which override the package's lines.
///
/// # Errors
/// [`Outcome::Skipped`] if it cannot run here, [`Outcome::Failed`] if it should run but does not.
pub async fn daemon_with(
    bench: &Bench,
    settings: &BTreeMap<String, String>,
) -> Result<Group, Outcome> {
    if !bench.in_guest {
        let reason = "the kernel's initiator knows the machine's own network only; use a guest";
        return Err(Outcome::Skipped(reason.to_owned()));
    }
    for program in ["iscsid", "iscsiadm"] {
        if find(program).is_none() {
            return Err(missing(program, PACKAGE));
        }
    }
    start_daemon(settings).await.map_err(|error| Outcome::Failed(error.to_string()))
}

/// Ends all sessions. Errors are only printed.
pub async fn log_out_quietly() {
    warn(log_out().await);
}

/// Prints an error that does not affect the measurement.
fn warn(done: Result<(), Error>) {
    if let Err(error) = done {
        eprintln!("lab: {error}");
    }
}

async fn start_daemon(settings: &BTreeMap<String, String>) -> Result<Group, Error> {
    if !is_covered() {
        cover_settings().await?;
    }
    set(settings).map_err(|cause| Error::File { path: COPY.into(), cause })?;
    // Without the module `sd_mod`, the kernel makes no disks for the units.
    for module in ["iscsi_tcp", "sd_mod"] {
        tool(Command::new("modprobe").arg(module)).await?;
    }
    let mut command = Command::new("iscsid");
    command.arg("--foreground").stdout(Stdio::null()).stderr(Stdio::null());
    Group::start(&mut command)
}

/// Returns whether the copy of the settings is mounted over the machine's settings.
fn is_covered() -> bool {
    let place = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    place(COPY).is_some_and(|copy| place(SETTINGS) == Some(copy))
}

/// Mounts a copy of the package's settings over the machine's settings, without the nodes that the machine may
/// know.
async fn cover_settings() -> Result<(), Error> {
    let copy = |cause| Error::File { path: COPY.into(), cause };
    fs::create_dir_all("/run/lock/iscsi").map_err(copy)?;
    fs::create_dir_all(COPY).map_err(copy)?;
    fs::copy(Path::new(SETTINGS).join("iscsid.conf"), Path::new(COPY).join(PACKAGED))
        .map_err(copy)?;
    fs::write(Path::new(COPY).join("initiatorname.iscsi"), NAME).map_err(copy)?;
    tool(Command::new("mount").args(["--bind", COPY, SETTINGS])).await.map(drop)
}

/// Writes `iscsid.conf`: the package's lines, then `settings`. For each name, the last line applies.
fn set(settings: &BTreeMap<String, String>) -> std::io::Result<()> {
    let mut text = fs::read_to_string(Path::new(COPY).join(PACKAGED))?;
    text.push('\n');
    for (name, value) in settings {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    fs::write(Path::new(COPY).join("iscsid.conf"), text)
}

fn admin(mode: &str, words: &[&str]) -> Command {
    let mut command = Command::new("iscsiadm");
    command.args(["--mode", mode]).args(words);
    command
}

/// Logs in, and returns the unit's device.
async fn log_in(lun: u16) -> Result<PathBuf, Error> {
    log_in_at(&portal(), lun).await
}

/// Logs in at a portal, `ADDRESS:PORT`, and returns the unit's device there.
///
/// # Errors
/// [`Error::Tool`] if the login fails.
pub async fn log_in_at(portal: &str, lun: u16) -> Result<PathBuf, Error> {
    let node = ["--targetname", TARGET, "--portal", portal];
    let discover = ["--type", "sendtargets", "--portal", portal];
    // iscsid needs some time until it listens, so the discovery is retried.
    let mut tries = 0;
    while let Err(error) = tool(&mut admin("discovery", &discover)).await {
        tries += 1;
        if tries > 5 {
            return Err(error);
        }
        sleep(Duration::from_secs(1)).await;
    }
    let log_in = [&node[..], &["--login"]].concat();
    tool(&mut admin("node", &log_in)).await?;
    for _ in 0..MAX_POLLS {
        if let Some(disk) = disk(portal, lun) {
            return Ok(disk);
        }
        sleep(PAUSE).await;
    }
    Err(Error::Tool {
        program: "iscsiadm --login".to_owned(),
        message: format!("no disk for unit {lun}"),
    })
}

/// Returns the device of a unit in the session at a portal, once the kernel has made it.
fn disk(portal: &str, lun: u16) -> Option<PathBuf> {
    let sessions = children(Path::new("/sys/class/iscsi_session"), "session");
    let here = sessions.into_iter().filter(|session| is_at(session, portal));
    let units = here.flat_map(|session| children(&session.join("device"), "target"));
    let found = units.flat_map(|target| children(&target, "")).find(|unit| {
        unit.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&format!(":{lun}")))
    })?;
    let block = children(&found.join("block"), "").into_iter().next()?;
    let device = Path::new("/dev").join(block.file_name()?);
    device.exists().then_some(device)
}

/// Returns whether a session's connection leads to this portal.
fn is_at(session: &Path, portal: &str) -> bool {
    let name = session.file_name().unwrap_or_default().to_string_lossy();
    let connection = name.replacen("session", "connection", 1) + ":0";
    let folder = Path::new("/sys/class/iscsi_connection").join(connection);
    let told = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let [address, port] = ["persistent_address", "persistent_port"].map(told);
    format!("{}:{}", address.trim(), port.trim()) == portal
}

fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    named.map(|entry| entry.path()).collect()
}

async fn move_bytes(point: &Point, bench: &Bench, disk: &Path) -> Result<Reading, Outcome> {
    let mut command = Command::new("dd");
    let file = |key: &str, path: &Path| format!("{key}={}", path.display());
    match point.measure.direction {
        Direction::Write => {
            command.arg(file("if", &bench.image)).arg(file("of", disk)).arg("conv=fsync,nocreat")
        }
        Direction::Read => command.arg(file("if", disk)).arg("of=/dev/null"),
    };
    command.args(["bs=1M", "iflag=count_bytes"]).arg(format!("count={}", point.bytes));
    command.args(&point.measure.args);
    let ended = to_end(&mut command, point.limit, "coreutils").await?;
    let said = String::from_utf8_lossy(&ended.output.stderr).into_owned();
    Ok(Reading {
        seconds: ended.time.as_secs_f64(),
        detail: Value::from(said),
        ..Reading::default()
    })
}

async fn log_out() -> Result<(), Error> {
    if !Path::new("/sys/class/iscsi_session").read_dir().is_ok_and(|mut all| all.next().is_some()) {
        return Ok(());
    }
    tool(&mut admin("node", &["--logout"])).await.map(drop)
}
