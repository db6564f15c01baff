//! The unit, as QEMU reaches it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

use super::socket::socket;
use crate::error::Error;
use crate::peers::Bench;
use crate::process::Group;
use crate::result::Outcome;
use crate::scenario::{Mirror, Through};
use crate::testbed::{TARGET, portal, url};

/// How long the server may take until clients can come.
const BEGIN: Duration = Duration::from_secs(30);
/// How long it may take to end.
const END: Duration = Duration::from_secs(60);
const PROGRAM: &str = "block-serve";

/// A unit, and the server before it if there is one.
#[derive(Debug)]
pub(super) struct Unit {
    lun: u16,
    server: Option<Server>,
}

/// block-serve, until it is dropped.
#[derive(Debug)]
struct Server {
    group: Group,
    told: Lines<BufReader<ChildStdout>>,
}

impl Unit {
    /// Starts the server, if QEMU is to reach the unit through one.
    pub(super) async fn serve(mirror: &Mirror, bench: &Bench) -> Result<Self, Outcome> {
        let server = match mirror.through {
            Through::BlockServe => Some(Server::start(mirror, &bench.tree).await?),
            Through::QemuIscsi => None,
        };
        Ok(Self { lun: mirror.lun, server })
    }

    /// The arguments of `blockdev-add`.
    pub(super) fn node(&self) -> Value {
        match self.server {
            Some(_) => json!({
                "driver": "nbd", "node-name": "unit",
                "server": { "type": "unix", "path": socket("unit") },
            }),
            None => json!({
                "driver": "iscsi", "node-name": "unit", "transport": "tcp",
                "portal": portal(), "target": TARGET, "lun": self.lun,
            }),
        }
    }

    /// Ends the server in order.
    pub(super) async fn end(self) -> Result<(), Error> {
        match self.server {
            Some(server) => server.end().await,
            None => Ok(()),
        }
    }
}

impl Server {
    async fn start(mirror: &Mirror, tree: &Path) -> Result<Self, Outcome> {
        let program = tree.join(PROGRAM);
        if !program.is_file() {
            let advice = "cargo build --release -p block-serve";
            return Err(Outcome::Failed(format!("{} is missing: {advice}", program.display())));
        }
        let mut command = Command::new(program);
        command.arg(url(mirror.lun)).args(["--json", "--listen"]);
        command.arg(format!("unix:{}", socket("unit").display())).args(&mirror.args);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let failed = |error: Error| Outcome::Failed(error.to_string());
        let mut group = Group::start(&mut command).map_err(failed)?;
        let output = group.child.stdout.take().ok_or_else(|| failed(no_word("no output")))?;
        let mut told = BufReader::new(output).lines();
        hear(&mut told, "ready", BEGIN).await.map_err(failed)?;
        Ok(Self { group, told })
    }

    async fn end(mut self) -> Result<(), Error> {
        self.group.ask_to_end();
        hear(&mut self.told, "complete", END).await
    }
}

/// Waits for an object in which this is true.
async fn hear(
    told: &mut Lines<BufReader<ChildStdout>>,
    word: &str,
    limit: Duration,
) -> Result<(), Error> {
    let next = timeout(limit, told.next_line()).await;
    let line =
        next.map_err(|_| no_word(&format!("no `{word}` within {} s", limit.as_secs())))??;
    let line = line.unwrap_or_default();
    let object: Value = serde_json::from_str(&line).unwrap_or_default();
    if object.get(word).and_then(Value::as_bool) == Some(true) {
        Ok(())
    } else {
        Err(no_word(&format!("it has said `{line}` where `{word}` was to be")))
    }
}

fn no_word(message: &str) -> Error {
    Error::Tool { program: PROGRAM.to_owned(), message: message.to_owned() }
}

/// QEMU without its iSCSI part knows no such driver.
pub(super) fn explain(error: Error) -> Outcome {
    let reason = error.to_string();
    if reason.contains("Unknown driver 'iscsi'") {
        return Outcome::Skipped(
            "QEMU lacks its iSCSI part, which the Debian package `qemu-block-extra` brings \
             (`ci/packages peers` installs it)"
                .to_owned(),
        );
    }
    Outcome::Failed(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_told_from_a_failure() {
        let said = |message: &str| explain(no_word(message));
        assert!(matches!(said("Unknown driver 'iscsi'"), Outcome::Skipped(_)));
        assert!(matches!(said("Failed to connect to LUN"), Outcome::Failed(_)));
    }
}
