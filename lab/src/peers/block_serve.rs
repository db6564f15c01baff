//! This project's server that serves units to NBD clients.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

use super::bench::Bench;
use crate::error::Error;
use crate::process::Group;
use crate::result::Outcome;

/// Time limit until the server accepts clients.
const BEGIN: Duration = Duration::from_secs(30);
/// Time limit for the server to exit.
const END: Duration = Duration::from_secs(60);
const PROGRAM: &str = "block-serve";

/// A block-serve process, which is killed when this value is dropped.
#[derive(Debug)]
pub struct Server {
    group: Group,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Serves a unit, by its URL, at a Unix socket. `args` are added to the command line. Returns once the
    /// server accepts clients.
    ///
    /// # Errors
    /// [`Outcome::Failed`] with the reason.
    pub async fn start(
        unit: &str,
        socket: &Path,
        args: &[impl AsRef<OsStr>],
        bench: &Bench,
    ) -> Result<Self, Outcome> {
        let program = bench.tree.join(PROGRAM);
        if !program.is_file() {
            let advice = "cargo build --release -p block-serve";
            return Err(Outcome::Failed(format!("{} is missing: {advice}", program.display())));
        }
        let mut command = Command::new(program);
        command.arg(unit).args(["--json", "--listen"]);
        command.arg(format!("unix:{}", socket.display())).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let failed = |error: Error| Outcome::Failed(error.to_string());
        let mut group = Group::start(&mut command).map_err(failed)?;
        let output = group.child.stdout.take().ok_or_else(|| failed(no_word("no output")))?;
        let mut lines = BufReader::new(output).lines();
        wait_for_word(&mut lines, "ready", BEGIN).await.map_err(failed)?;
        Ok(Self { group, lines })
    }

    /// Shuts the server down cleanly.
    ///
    /// # Errors
    /// [`Error::Tool`] if the server does not report success in time.
    pub async fn end(mut self) -> Result<(), Error> {
        self.group.ask_to_end();
        wait_for_word(&mut self.lines, "complete", END).await
    }
}

/// Waits for a line of the server's output: a JSON object in which `word` is true. Any other line is an error.
async fn wait_for_word(
    lines: &mut Lines<BufReader<ChildStdout>>,
    word: &str,
    limit: Duration,
) -> Result<(), Error> {
    let next = timeout(limit, lines.next_line()).await;
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
