//! Runs programs with a time limit, without leaving processes behind.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::error::Error;

/// A program with all its child processes: one process group, which is killed when this value is dropped.
#[derive(Debug)]
pub struct Group {
    /// The program itself.
    pub child: Child,
    id: Option<Pid>,
}

impl Group {
    /// Starts a program in a group of its own, with an empty standard input.
    ///
    /// # Errors
    /// [`Error::Start`] with the system's reason.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(|cause| {
            let program = command.as_std().get_program().to_string_lossy().into_owned();
            Error::Start { program, cause }
        })?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(Self { child, id })
    }

    /// Asks the program to end.
    pub fn ask_to_end(&self) {
        if let Some(id) = self.id {
            // The program may have ended already. That is fine, here and below.
            let _gone = kill(id, Signal::SIGTERM);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _gone = killpg(id, Signal::SIGKILL);
        }
    }
}

/// A program that has exited.
#[derive(Debug)]
pub struct Ended {
    /// Exit status and output of the program.
    pub output: Output,
    /// Time from the start of the program to its end.
    pub time: Duration,
}

impl Ended {
    /// Returns the standard output of the program.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// Returns the error of the program in one line: the last line of its standard error, or its status.
    pub fn complaint(&self) -> String {
        let errors = String::from_utf8_lossy(&self.output.stderr);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty());
        match last {
            Some(line) => line.trim().to_owned(),
            None => self.output.status.to_string(),
        }
    }
}

/// Runs a program until it exits, and returns its output. At the time limit, kills the program and returns `None`.
///
/// # Errors
/// [`Error::Start`] if it cannot be started, [`Error::System`] if its output cannot be read.
pub async fn run(command: &mut Command, limit: Duration) -> Result<Option<Ended>, Error> {
    run_with_lines(command, limit, |_| {}).await
}

/// Runs a program until it exits, and returns its output. Calls `on_line` with each line of its standard error
/// as it arrives. At the time limit, kills the program and returns `None`.
///
/// # Errors
/// [`Error::Start`] if it cannot be started, [`Error::System`] if its output cannot be read.
pub async fn run_with_lines(
    command: &mut Command,
    limit: Duration,
    on_line: impl FnMut(&str),
) -> Result<Option<Ended>, Error> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut group = Group::start(command)?;
    // After the time limit, `group` is killed when it is dropped. Its end is not awaited: a killed process
    // stays as long as it is in an uninterruptible wait.
    let Ok(output) = timeout(limit, collect(&mut group.child, on_line)).await else {
        return Ok(None);
    };
    Ok(Some(Ended { output: output?, time: begin.elapsed() }))
}

async fn collect(child: &mut Child, on_line: impl FnMut(&str)) -> Result<Output, Error> {
    let (mut out, errors) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr, status) =
        tokio::try_join!(read_all(&mut out), read_lines(errors, on_line), child.wait())?;
    Ok(Output { status, stdout, stderr })
}

async fn read_all<R>(pipe: &mut Option<R>) -> std::io::Result<Vec<u8>>
where
    R: AsyncRead + Unpin,
{
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

async fn read_lines<R>(pipe: Option<R>, mut on_line: impl FnMut(&str)) -> std::io::Result<Vec<u8>>
where
    R: AsyncRead + Unpin,
{
    let mut bytes = Vec::new();
    let Some(mut pipe) = pipe.map(BufReader::new) else { return Ok(bytes) };
    loop {
        let begin = bytes.len();
        if pipe.read_until(b'\n', &mut bytes).await? == 0 {
            return Ok(bytes);
        }
        on_line(String::from_utf8_lossy(bytes.get(begin..).unwrap_or_default()).trim_end());
    }
}

/// Time limit of a tool of the lab itself.
const TOOL_LIMIT: Duration = Duration::from_secs(60);

/// Runs a tool that must succeed, and returns its output.
///
/// # Errors
/// [`Error::Tool`] with the tool's message if it fails or takes longer than a minute.
pub async fn tool(command: &mut Command) -> Result<String, Error> {
    let program = words(command);
    let failure = |message| Error::Tool { program, message };
    match run(command, TOOL_LIMIT).await? {
        Some(ended) if ended.output.status.success() => Ok(ended.text()),
        Some(ended) => Err(failure(ended.complaint())),
        None => Err(failure(format!("no end within {} s", TOOL_LIMIT.as_secs()))),
    }
}

/// Returns a command as a user would type it.
fn words(command: &Command) -> String {
    let command = command.as_std();
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn output_and_status_are_kept() {
        let limit = Duration::from_secs(60);
        let ended = run(&mut shell("echo out; echo first >&2; echo last >&2; exit 3"), limit).await;
        let ended = ended.unwrap().unwrap();
        assert_eq!(ended.text(), "out\n");
        assert_eq!(ended.complaint(), "last");
        assert_eq!(ended.output.status.code(), Some(3));
    }

    #[tokio::test]
    async fn each_line_of_the_standard_error_is_heard_and_kept() {
        let mut heard = Vec::new();
        let mut command = shell("echo one >&2; echo out; printf 'two\\nthree' >&2");
        let ended = run_with_lines(&mut command, Duration::from_secs(60), |line| {
            heard.push(line.to_owned());
        });
        let ended = ended.await.unwrap().unwrap();
        assert_eq!((ended.text().as_str(), ended.complaint().as_str()), ("out\n", "three"));
        assert_eq!(heard, ["one", "two", "three"]);
    }

    #[tokio::test]
    async fn the_limit_ends_the_program_with_its_children() {
        let folder = std::env::temp_dir().join(format!("lab-process-{}", std::process::id()));
        let mut command = shell("sleep 600 & echo $! >\"$0\"; wait");
        command.arg(&folder);
        assert!(run(&mut command, Duration::from_secs(5)).await.unwrap().is_none());
        let child = std::fs::read_to_string(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        assert!(!child.trim().is_empty(), "the shell has not come so far");
        let gone = async {
            while alive(child.trim()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), gone).await.unwrap();
    }

    /// Returns whether a process runs. A zombie that was not reaped counts as ended.
    fn alive(id: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[tokio::test]
    async fn a_tool_that_fails_is_named_with_its_words() {
        let error = tool(&mut shell("echo no such thing >&2; false")).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("sh -c ") && text.ends_with("failed: no such thing"), "{text}");
    }
}
