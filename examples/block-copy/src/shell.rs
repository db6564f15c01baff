//! Command lines of the user's own.

use std::io::{self, ErrorKind};
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::error::Error;
use crate::stop::{HASTE, Stop};

/// No command prints more, bytes.
const MAX_OUTPUT: u64 = 64 << 20;

/// A command line that an option names.
#[derive(Clone, Debug)]
pub(crate) struct Shell {
    option: &'static str,
    line: String,
    stop: Stop,
}

impl Shell {
    /// A line for `sh -c`. Once the copy shall stop, it is ended with all that it has started.
    pub(crate) fn new(option: &'static str, line: &str, stop: &Stop) -> Self {
        Self { option, line: line.to_owned(), stop: stop.clone() }
    }

    /// Runs it, and gives what it prints.
    ///
    /// # Errors
    /// [`Error::Command`], also where it ends with another status than 0; [`Error::Interrupted`].
    pub(crate) async fn output(&self) -> Result<String, Error> {
        let text = self.run(Stdio::piped()).await?;
        String::from_utf8(text).map_err(|_| {
            self.failed(io::Error::new(ErrorKind::InvalidData, "what it prints is no text"))
        })
    }

    /// Runs it; what it prints goes to standard error.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub(crate) async fn run_through(&self) -> Result<(), Error> {
        self.run(Stdio::from(io::stderr())).await.map(drop)
    }

    /// What is wrong with the command.
    pub(crate) const fn failed(&self, cause: io::Error) -> Error {
        Error::Command { option: self.option, cause }
    }

    async fn run(&self, output: Stdio) -> Result<Vec<u8>, Error> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.line).process_group(0);
        command.stdin(Stdio::null()).stdout(output);
        let mut child = command.spawn().map_err(|cause| self.failed(cause))?;
        let mut group = Group::of(&child);
        let stdout = child.stdout.take();
        let ended = self.stop.unless(async { tokio::try_join!(child.wait(), read(stdout)) }).await;
        let Some(ended) = ended else {
            group.end(&mut child).await;
            return Err(Error::Interrupted);
        };
        let (status, text) = ended.map_err(|cause| self.failed(cause))?;
        group.0 = None;
        if status.success() { Ok(text) } else { Err(self.failed(refused(status))) }
    }
}

fn refused(status: ExitStatus) -> io::Error {
    io::Error::other(match status.code() {
        Some(code) => format!("the command ended with status {code}"),
        None => format!("the command was ended by a {status}"),
    })
}

/// Reads what a command prints, if that is asked for.
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

/// A command and all that it has started, while it runs. Nothing of it outlives this.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    /// Ends it, in order if that takes no more than a moment.
    async fn end(&mut self, child: &mut Child) {
        self.signal(Signal::SIGTERM);
        _ = timeout(HASTE, child.wait()).await;
    }

    fn signal(&self, signal: Signal) {
        // It may be gone.
        _ = self.0.map(|group| killpg(group, signal));
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

    fn shell(line: &str) -> Shell {
        Shell::new("--option", line, &Stop::never())
    }

    #[tokio::test]
    async fn what_a_command_prints_counts_if_it_succeeds() {
        assert_eq!(shell("cat; echo 1 2; echo 3 4").output().await.unwrap(), "1 2\n3 4\n");
        for (line, part) in [
            ("echo 1; exit 3", "--option: the command ended with status 3"),
            ("kill -9 $$", "--option: the command was ended by a signal: 9"),
            ("no-such-program 2>/dev/null", "status 127"),
            ("printf '\\377'", "is no text"),
            ("cat /dev/zero", "more than 64 MiB"),
        ] {
            let error = shell(line).output().await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
