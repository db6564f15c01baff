//! Runs shell commands that the user's options name.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use iscsi_examples_common::credentials::VARIABLES;
use iscsi_examples_common::host_lock::ChildLock;
use iscsi_examples_common::program::ProgramError;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, dup};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::error::Error;
use crate::stop::{HASTE, Stop};

/// Most bytes that a command may print.
const MAX_OUTPUT: u64 = 64 << 20;
/// The shell line of a guard process. It kills its process group when its standard input ends. The input ends
/// when block-copy ends, even by a signal that cannot be handled, so no command outlives block-copy.
const GUARD: &str = "read -r _; kill -KILL 0";
/// Locked while a child is started: otherwise other children would inherit its descriptors.
static STARTING: Mutex<()> = Mutex::new(());

/// A command line that an option names.
#[derive(Clone, Debug)]
pub(crate) struct Shell {
    option: &'static str,
    line: String,
    stop: Stop,
    /// Lock keys of the files and units that the command works for.
    keys: Vec<String>,
}

impl Shell {
    /// Creates a command `sh -c LINE`. After a request to stop, the command and all processes that it has
    /// started are ended.
    pub(crate) fn new(option: &'static str, line: &str, stop: &Stop) -> Self {
        Self { option, line: line.to_owned(), stop: stop.clone(), keys: Vec::new() }
    }

    /// Sets the lock keys of the files and units that the command works for. While it runs, even if this
    /// process has ended, no other process begins to work for them.
    #[must_use]
    pub(crate) fn working_for(self, keys: Vec<String>) -> Self {
        Self { keys, ..self }
    }

    /// Runs the command, and returns its output.
    ///
    /// # Errors
    /// [`Error::Command`], also if its exit status is not 0; [`ProgramError::Interrupted`].
    pub(crate) async fn output(&self) -> Result<String, Error> {
        let text = self.run(Stdio::piped()).await?;
        String::from_utf8(text).map_err(|_| {
            self.failed(io::Error::new(ErrorKind::InvalidData, "what it prints is no text"))
        })
    }

    /// Runs the command. Its output goes to standard error.
    ///
    /// # Errors
    /// The errors of [`output`](Self::output).
    pub(crate) async fn run_through(&self) -> Result<(), Error> {
        self.run(Stdio::from(io::stderr())).await.map(drop)
    }

    /// Returns the error for a failure of the command.
    pub(crate) fn failed(&self, cause: io::Error) -> Error {
        Error::Command { option: self.option, cause: cause.into() }
    }

    async fn run(&self, output: Stdio) -> Result<Vec<u8>, Error> {
        let lock = ChildLock::new(&self.keys).unwrap_or_else(|error| {
            tracing::warn!(%error, "should {} outlive this process, no other copy waits for it", self.option);
            ChildLock::default()
        });
        let mut group =
            Group::start(&self.line, output, &lock).map_err(|cause| self.failed(cause))?;
        let stdout = group.command.stdout.take();
        let work = async { tokio::try_join!(group.command.wait(), read(stdout)) };
        let Some(ended) = self.stop.unless(work).await else {
            group.end().await;
            return Err(ProgramError::Interrupted.into());
        };
        let (status, text) = ended.map_err(|cause| self.failed(cause))?;
        group.has_ended().await;
        if status.success() { Ok(text) } else { Err(self.failed(refused(status))) }
    }
}

fn refused(status: ExitStatus) -> io::Error {
    io::Error::other(match status.code() {
        Some(code) => format!("the command ended with status {code}"),
        None => format!("the command was ended by a {status}"),
    })
}

/// Reads the output of a command, if it is piped.
async fn read(stdout: Option<ChildStdout>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if let Some(stdout) = stdout {
        stdout.take(MAX_OUTPUT + 1).read_to_end(&mut text).await?;
    }
    if text.len() as u64 > MAX_OUTPUT {
        return Err(io::Error::new(ErrorKind::InvalidData, "the command prints more than 64 MiB"));
    }
    Ok(text)
}

/// Creates a shell command without the passwords in the environment of this process.
fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// A running command and all processes that it has started. Dropping this kills them.
#[derive(Debug)]
struct Group {
    command: Child,
    /// The first process of the group. Its id is the id of the group.
    guard: Child,
    id: Option<Pid>,
}

impl Group {
    fn start(line: &str, output: Stdio, lock: &ChildLock) -> io::Result<Self> {
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let inherited = lock.descriptors().map(dup).collect::<Result<Vec<OwnedFd>, _>>()?;
        let mut guard = shell(GUARD);
        guard.process_group(0).kill_on_drop(true);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = guard.spawn()?;
        let id = guard.id().and_then(|id| i32::try_from(id).ok());
        let mut command = shell(line);
        command.process_group(id.unwrap_or_default());
        command.stdin(Stdio::null()).stdout(output);
        // The command must inherit the descriptors of the lock: LVM tools would warn about them.
        command.env("LVM_SUPPRESS_FD_WARNINGS", "1");
        let command = command.spawn()?;
        drop(inherited);
        Ok(Self { command, guard, id: id.map(Pid::from_raw) })
    }

    /// Ends the guard after the command has ended. Processes that the command has left running on purpose
    /// continue.
    async fn has_ended(&mut self) {
        self.id = None;
        // The guard is killed before its standard input ends: otherwise it would kill the group.
        drop(self.guard.kill().await);
    }

    /// Asks the group to end by a signal, and waits a moment.
    async fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        _ = timeout(HASTE, self.command.wait()).await;
    }

    fn signal(&self, signal: Signal) {
        // The group may have ended already, so an error is ignored.
        _ = self.id.map(|group| killpg(group, signal));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Shell {
        Shell::new("--option", line, &Stop::never())
    }

    /// A command may log its environment, or start a program that does so. So its environment has no
    /// credentials.
    #[tokio::test]
    async fn a_command_gets_to_know_no_credentials() {
        let command = shell("true");
        let kept: Vec<_> =
            command.as_std().get_envs().filter(|(_, value)| value.is_some()).collect();
        assert!(kept.is_empty(), "{kept:?}");
        let removed = command.as_std().get_envs().map(|(name, _)| name.to_owned());
        assert_eq!(removed.collect::<Vec<_>>().len(), VARIABLES.len());
    }

    #[tokio::test]
    async fn what_a_command_prints_counts_if_it_succeeds() {
        assert_eq!(of("cat; echo 1 2; echo 3 4").output().await.unwrap(), "1 2\n3 4\n");
        for (line, part) in [
            ("echo 1; exit 3", "--option: the command ended with status 3"),
            ("kill -9 $$", "--option: the command was ended by a signal: 9"),
            ("no-such-program 2>/dev/null", "status 127"),
            ("printf '\\377'", "is no text"),
            ("cat /dev/zero", "more than 64 MiB"),
        ] {
            let error = of(line).output().await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
