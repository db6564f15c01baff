//! Runs the daemon with the disk: a file in QEMU's block layer, which serves and mirrors the disk.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::job::Job;
use super::qmp::Qmp;
use super::unit::{self, Unit, socket};
use crate::error::Error;
use crate::peers::not_started;
use crate::process::Group;
use crate::result::Outcome;
use crate::scenario::Mirror;

/// Time limit until the daemon listens.
const BEGIN: Duration = Duration::from_secs(30);
const PROGRAM: &str = "qemu-storage-daemon";

/// The daemon with the disk. The daemon is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Source {
    group: Group,
}

impl Source {
    /// Starts the daemon with an image.
    pub(super) fn start(image: &Path) -> Result<Self, Outcome> {
        let [disk, orders] = [socket("disk"), socket("qmp")];
        for left in [&disk, &orders] {
            // An earlier measurement that was interrupted may have left its socket.
            let _absent = std::fs::remove_file(left);
        }
        let file = json!({
            "driver": "file", "node-name": "disk", "filename": image.to_string_lossy(), "aio": "io_uring",
        });
        let mut command = Command::new(PROGRAM);
        command.args(["--blockdev", &file.to_string()]);
        command.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", disk.display())]);
        command.args(["--export", "type=nbd,id=export,node-name=disk,name=disk,writable=on"]);
        let listen = format!("socket,id=qmp,path={},server=on,wait=off", orders.display());
        command.args(["--chardev", &listen, "--monitor", "chardev=qmp"]);
        command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        let group =
            Group::start(&mut command).map_err(|error| not_started(error, "qemu-system-common"))?;
        Ok(Self { group })
    }

    /// Returns the NBD URI by which fio writes to the disk.
    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", socket("disk").display())
    }

    /// Opens the unit, and prepares the mirror to it.
    pub(super) async fn job(&mut self, mirror: &Mirror, unit: &Unit) -> Result<Job, Outcome> {
        let connected = tokio::select! {
            connected = timeout(BEGIN, connect()) => connected.unwrap_or_else(|_| {
                Err(not_listening(format!("no program listens after {} s", BEGIN.as_secs())))
            }),
            status = self.group.child.wait() => {
                let message = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(not_listening(message))
            }
        };
        let mut qmp = connected.map_err(|error| Outcome::Failed(error.to_string()))?;
        qmp.execute("blockdev-add", unit.node()).await.map_err(unit::explain)?;
        Ok(Job::new(qmp, mirror))
    }
}

fn not_listening(message: String) -> Error {
    Error::Tool { program: PROGRAM.to_owned(), message }
}

async fn connect() -> Result<Qmp, Error> {
    let is_not_there = |error: &Error| {
        let absent = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
        matches!(error, Error::System(cause) if absent.contains(&cause.kind()))
    };
    loop {
        match Qmp::connect(&socket("qmp")).await {
            Err(error) if is_not_there(&error) => sleep(Duration::from_millis(50)).await,
            end => return end,
        }
    }
}
