//! Runs the kernel's initiator with several paths: a session at each portal, dm-multipath over their disks,
//! and multipathd with udev's daemon to manage the paths.
//!
//! The files that multipathd writes below `/etc` are in the lab's own folder, which is mounted over `/etc` as
//! an overlay.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::sleep;

use super::bench::Bench;
use super::end::missing;
use super::open_iscsi;
use crate::environment::find;
use crate::error::Error;
use crate::process::{Group, tool};
use crate::result::Outcome;
use crate::scenario::Multipath as Settings;

const PACKAGE: &str = "multipath-tools";
/// udev's daemon, which is not on any PATH.
const UDEVD: &str = "/lib/systemd/systemd-udevd";
/// The lab's folder for files that its programs write below `/etc`.
const WRITTEN: &str = "/mnt/etc";
const CONFIGURATION: &str = "/etc/multipath.conf";
/// Largest number of checks when waiting for a state; `PAUSE` is the interval.
const MAX_POLLS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(500);

/// A unit with all its paths as one device.
#[derive(Debug)]
pub struct Multipath {
    /// Path of the device.
    pub device: PathBuf,
    map: String,
    multipathd: Group,
    iscsid: Group,
    udevd: Group,
}

impl Multipath {
    /// Logs in at each portal, and waits until the unit has a path for each of them.
    ///
    /// # Errors
    /// [`Outcome::Skipped`] if a program is missing, or the lab has no kernel of its own. [`Outcome::Failed`]
    /// with the reason.
    pub async fn start(
        settings: &Settings,
        portals: &[String],
        lun: u16,
        bench: &Bench,
    ) -> Result<Self, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        if find("multipathd").is_none() {
            return Err(missing("multipathd", PACKAGE));
        }
        if !Path::new(UDEVD).exists() {
            return Err(missing(UDEVD, "udev"));
        }
        if bench.in_guest {
            configure(settings).await.map_err(failed)?;
        }
        let iscsid = open_iscsi::daemon_with(bench, &settings.iscsid).await?;
        let udevd = daemon(UDEVD, &[]).map_err(failed)?;
        let joined = async {
            until_ready("udevadm control --ping", async || {
                tool(Command::new("udevadm").args(["control", "--ping"])).await.ok().map(drop)
            })
            .await?;
            for portal in portals {
                open_iscsi::log_in_at(portal, lun).await?;
            }
            tool(Command::new("udevadm").arg("settle")).await?;
            let multipathd = daemon("multipathd", &["-d", "-s"])?;
            Ok((multipathd, map(portals.len()).await?))
        };
        match joined.await {
            Ok((multipathd, map)) => {
                let device = device(&map);
                Ok(Self { device, map, multipathd, iscsid, udevd })
            }
            Err(error) => {
                open_iscsi::log_out_quietly().await;
                Err(failed(error))
            }
        }
    }

    /// Fails the requests that wait for a path, removes the device and logs out. Errors are only printed.
    pub async fn end(self) {
        let Self { map, multipathd, iscsid, udevd, .. } = self;
        drop(multipathd);
        let give_up = ["message", &map, "0", "fail_if_no_path"];
        let remove = ["remove", "--retry", &map];
        for words in [&give_up[..], &remove[..]] {
            if let Err(error) = tool(Command::new("dmsetup").args(words)).await {
                eprintln!("lab: {error}");
            }
        }
        open_iscsi::log_out_quietly().await;
        drop((iscsid, udevd));
    }
}

fn daemon(program: &str, words: &[&str]) -> Result<Group, Error> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    Group::start(&mut command)
}

/// Loads the modules that a map with these settings needs, and writes the settings for multipathd.
async fn configure(settings: &Settings) -> Result<(), Error> {
    for module in ["dm-multipath", "dm-service-time", "dm-round-robin", "dm-queue-length"] {
        tool(Command::new("modprobe").arg(module)).await?;
    }
    let file = |cause| Error::File { path: CONFIGURATION.into(), cause };
    if !Path::new(WRITTEN).exists() {
        let [upper, work] = ["upper", "work"].map(|name| Path::new(WRITTEN).join(name));
        for folder in [&upper, &work] {
            fs::create_dir_all(folder).map_err(file)?;
        }
        let layers =
            format!("lowerdir=/etc,upperdir={},workdir={}", upper.display(), work.display());
        tool(Command::new("modprobe").arg("overlay")).await?;
        tool(Command::new("mount").args(["-t", "overlay", "-o", &layers, "overlay", "/etc"]))
            .await?;
    }
    fs::write(CONFIGURATION, configuration(settings)).map_err(file)
}

/// Returns the content of `multipath.conf`.
fn configuration(settings: &Settings) -> String {
    let sections = [("defaults", &settings.defaults), ("overrides", &settings.overrides)];
    let section = |(name, lines): (&str, &std::collections::BTreeMap<String, String>)| {
        let lines = lines.iter().map(|(key, value)| format!("  {key} \"{value}\"\n"));
        format!("{name} {{\n{}}}\n", lines.collect::<String>())
    };
    sections.map(section).concat()
}

/// Returns the name of the only map, once it has `paths` paths and udev has made its device.
async fn map(paths: usize) -> Result<String, Error> {
    let shown = async |what: &str, format: &str| {
        tool(Command::new("multipathd").args(["show", what, "raw", "format", format])).await
    };
    until_ready("multipathd", async || {
        let states = shown("paths", "%d %t").await.ok()?;
        let active = states.lines().filter(|line| line.trim_end().ends_with(" active")).count();
        let name = shown("maps", "%n").await.ok()?.trim().to_owned();
        // Wait for the device node too: a program that opens a missing node for writing would make a regular
        // file.
        (active == paths && is_block_device(&device(&name))).then_some(name)
    })
    .await
}

fn device(map: &str) -> PathBuf {
    Path::new("/dev/mapper").join(map)
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Calls `look` until it returns a value, at most [`MAX_POLLS`] times.
async fn until_ready<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> Result<T, Error> {
    for _ in 0..MAX_POLLS {
        if let Some(found) = look().await {
            return Ok(found);
        }
        sleep(PAUSE).await;
    }
    let message = format!("not ready within {} s", (PAUSE * MAX_POLLS).as_secs());
    Err(Error::Tool { program: what.to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_sections() {
        let pair = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
        let settings = Settings {
            defaults: pair("polling_interval", "1"),
            overrides: pair("path_selector", "service-time 0"),
            ..Settings::default()
        };
        assert_eq!(
            configuration(&settings),
            "defaults {\n  polling_interval \"1\"\n}\noverrides {\n  path_selector \"service-time 0\"\n}\n"
        );
    }
}
