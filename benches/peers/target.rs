//! Starts tgtd with units that store nothing: written data are discarded, and reads return whatever is in
//! memory.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use iscsi_lab::process::{Group, tool};
use tokio::process::Command;
use tokio::time::sleep;

use crate::Trouble;
use crate::args::Digests;

/// Number of ports to try: another process may use a port.
const TRIES: u32 = 5;
/// Maximum number of checks whether the daemon is up, ten per second.
const POLLS: u32 = 100;
const NAMES: [(&str, &str); 2] =
    [("1", "iqn.2026-01.org.example:null"), ("2", "iqn.2026-01.org.example:null-digests")];

/// The tgtd daemon. Dropping this kills it with SIGKILL: while the daemon has a target, it ignores a signal to
/// end.
#[derive(Debug)]
pub(crate) struct Target {
    daemon: Group,
    /// Port of the portal.
    port: u16,
    /// Number of the control socket, at most 32767.
    control: u16,
}

impl Target {
    /// Starts the daemon with `units` units on the target without digests. `keys` replace its default login
    /// keys.
    pub(crate) async fn start(log: &Path, units: u32, keys: &[String]) -> Result<Self, Trouble> {
        for _ in 0..TRIES {
            if let Some(target) = Self::try_start(log).await? {
                target.set_up(keys).await?;
                for lun in 2..=units {
                    target.add_unit("1", lun).await?;
                }
                return Ok(target);
            }
        }
        Err(format!("tgtd did not start: {}", fs::read_to_string(log).unwrap_or_default()).into())
    }

    async fn try_start(log: &Path) -> Result<Option<Self>, Trouble> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let control = port / 2;
        let file = File::create(log)?;
        let mut command = Command::new("tgtd");
        command.args(["--foreground", "--control-port", &control.to_string()]);
        command.args(["--iscsi", &format!("portal=127.0.0.1:{port}")]);
        command.stdout(file.try_clone()?).stderr(file);
        let mut target = Self { daemon: Group::start(&mut command)?, port, control };
        for _ in 0..POLLS {
            if target.daemon.child.try_wait()?.is_some() {
                break;
            }
            if target.admin("--op show --mode target").await.is_ok() {
                return Ok(Some(target));
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    async fn set_up(&self, keys: &[String]) -> Result<(), Trouble> {
        for (id, name) in NAMES {
            self.admin(&format!("--op new --mode target --tid {id} --targetname {name}")).await?;
            self.add_unit(id, 1).await?;
            self.admin(&format!("--op bind --mode target --tid {id} --initiator-address ALL"))
                .await?;
            for key in keys {
                let (key, value) =
                    key.split_once('=').ok_or_else(|| format!("`{key}` has no value"))?;
                self.set(id, key, value).await?;
            }
        }
        self.set("2", "HeaderDigest", "CRC32C").await?;
        self.set("2", "DataDigest", "CRC32C").await
    }

    async fn add_unit(&self, id: &str, lun: u32) -> Result<(), Trouble> {
        let unit = format!("--tid {id} --lun {lun} --bstype null --backing-store /dev/null");
        self.admin(&format!("--op new --mode logicalunit {unit}")).await.map(drop)
    }

    async fn set(&self, id: &str, key: &str, value: &str) -> Result<(), Trouble> {
        let words = format!("--op update --mode target --tid {id} --name {key} --value {value}");
        self.admin(&words).await.map(drop)
    }

    /// Returns the login keys of the target, with their values.
    pub(crate) async fn keys(&self) -> Result<Vec<(String, String)>, Trouble> {
        let told = self.admin("--op show --mode target --tid 1").await?;
        let pairs = told.lines().filter_map(|line| line.split_once('='));
        Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Returns the URL of the unit. tgtd supports digests only on a target that was configured for them.
    pub(crate) fn url(&self, digests: Digests) -> String {
        let (_, name) = NAMES[usize::from(digests != Digests::None)];
        format!("iscsi://127.0.0.1:{}/{name}/1", self.port)
    }

    /// Returns the processor time of the daemon's threads so far; zero if the kernel does not report it.
    pub(crate) fn processor_time(&self) -> Duration {
        processor_time(self.daemon.child.id())
    }

    /// Kills the daemon, and waits until it has ended.
    pub(crate) async fn end(mut self) -> Result<(), Trouble> {
        Ok(self.daemon.child.kill().await?)
    }

    async fn admin(&self, words: &str) -> Result<String, Trouble> {
        let mut command = Command::new("tgtadm");
        command.args(["--control-port", &self.control.to_string(), "--lld", "iscsi"]);
        Ok(tool(command.args(words.split(' '))).await?)
    }
}

/// Returns the processor time of a process's threads so far; zero if the kernel does not report it.
pub(crate) fn processor_time(process: Option<u32>) -> Duration {
    let id = process.unwrap_or_default();
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| on_processor(&thread.path().join("schedstat"))).sum()
}

/// Parses the first number of the file, the time on a processor in nanoseconds (proc(5), schedstat).
fn on_processor(schedstat: &Path) -> Option<Duration> {
    let told = fs::read_to_string(schedstat).ok()?;
    told.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

impl Drop for Target {
    fn drop(&mut self) {
        for end in ["", ".lock"] {
            // After a kill, the files of the control socket remain, so remove them.
            let _gone = fs::remove_file(format!("/var/run/tgtd/socket.{}{end}", self.control));
        }
    }
}
