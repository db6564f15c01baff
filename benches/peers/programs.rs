//! Runs one of the compared programs once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iscsi_lab::process::{Ended, run, tool};
use iscsi_lab::provenance::workspace;
use iscsi_lab::result::Outcome;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::Trouble;
use crate::args::Runtime;
use crate::rows::{Kind, Row};

/// Time limit of a run, far longer than any takes.
const LIMIT: Duration = Duration::from_secs(300);
const HEADER: &str = "/usr/include/iscsi/iscsi.h";
/// The kernel's event at the entry of every system call.
const ALL_CALLS: &str = "raw_syscalls:sys_enter";
/// System calls by which the programs wait and move bytes.
const CALLS: [&str; 10] = [
    "epoll_wait",
    "poll",
    "recvfrom",
    "recvmsg",
    "read",
    "readv",
    "sendto",
    "sendmsg",
    "write",
    "writev",
];

/// The program that runs a load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Program {
    /// This program's `run`.
    Initiator(Runtime, TargetKind),
    /// The program in C.
    Libiscsi(TargetKind),
    /// This program's `session-alone`.
    SessionAlone,
    /// This program's `bare`.
    Bare,
}

/// The target of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TargetKind {
    Tgtd,
    /// The testkit's target, which is faster.
    Testkit,
}

impl Program {
    /// Returns the programs that run a load.
    pub(crate) fn of(row: &Row, runtimes: &[Runtime]) -> Vec<Self> {
        let ours = |target| runtimes.iter().map(move |runtime| Self::Initiator(*runtime, target));
        let mut programs: Vec<_> = ours(TargetKind::Tgtd).collect();
        if !matches!(row.kind, Kind::Idle { .. } | Kind::OverOneSession(_)) {
            programs.push(Self::Libiscsi(TargetKind::Tgtd));
        }
        if row.is_for_testkit() {
            programs.extend(ours(TargetKind::Testkit));
            programs.push(Self::Libiscsi(TargetKind::Testkit));
        }
        match row.kind {
            Kind::AndBare => programs.push(Self::Bare),
            Kind::Disks(_) => programs.push(Self::SessionAlone),
            Kind::Both | Kind::OverOneSession(_) | Kind::Idle { .. } => {}
        }
        programs
    }

    /// Returns the target of the program. A TCP stream has no target: tgtd is returned, which is idle during
    /// that run.
    pub(crate) const fn target(self) -> TargetKind {
        match self {
            Self::Initiator(_, target) | Self::Libiscsi(target) => target,
            Self::SessionAlone | Self::Bare => TargetKind::Tgtd,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Initiator(..) => "iscsi-initiator",
            Self::Libiscsi(_) => "libiscsi",
            Self::SessionAlone => "session alone",
            Self::Bare => "TCP stream",
        }
    }
}

/// Paths of the programs, and of their output.
#[derive(Debug)]
pub(crate) struct Programs {
    own: PathBuf,
    libiscsi: PathBuf,
    /// Folder for their output files.
    folder: PathBuf,
}

impl Programs {
    /// Compiles the C program.
    pub(crate) async fn build(folder: &Path) -> Result<Self, Trouble> {
        let header = fs::read_to_string(HEADER)
            .map_err(|error| format!("{HEADER}: {error} (ci/packages short-link installs it)"))?;
        let libiscsi = folder.join("libiscsi");
        let mut command = Command::new("cc");
        command.args(["-O2", "-std=gnu11", "-Wall", "-Wextra"]);
        if header.contains("iscsi_set_data_digest") {
            command.arg("-DDATA_DIGEST");
        }
        command.arg(workspace().join("benches/peers/libiscsi.c")).arg("-o").arg(&libiscsi);
        tool(command.arg("-liscsi")).await?;
        Ok(Self { own: std::env::current_exe()?, libiscsi, folder: folder.to_owned() })
    }

    /// Runs a program once. Returns its output, or the reason why there is none.
    pub(crate) async fn run(
        &self,
        program: Program,
        row: &Row,
        url: &str,
    ) -> Result<Value, Outcome> {
        let (path, words) = self.words(program, row, url);
        parse_result(&end_of(Command::new(path).args(words)).await?)
    }

    /// Counts the system calls of one run, from its start to its end.
    pub(crate) async fn calls(
        &self,
        program: Program,
        row: &Row,
        url: &str,
    ) -> Result<Value, Outcome> {
        let (path, words) = self.words(program, row, url);
        let summary = self.folder.join("calls");
        let mut command = counter(&summary);
        parse_result(&end_of(command.arg("--").arg(path).args(words)).await?)?;
        let summary =
            fs::read_to_string(&summary).map_err(|error| Outcome::Failed(error.to_string()))?;
        let by_name = calls(&summary);
        let all = by_name.get(ALL_CALLS).copied();
        all.map(|all| json!({ "system_calls": all, "by_name": by_name }))
            .ok_or_else(|| Outcome::Failed(format!("perf counted nothing: {summary}")))
    }

    /// Returns the reason why system calls cannot be counted here, if there is one.
    pub(crate) async fn cannot_count(&self) -> Option<String> {
        let mut command = counter(&self.folder.join("calls"));
        tool(command.args(["--", "true"])).await.err().map(|error| error.to_string())
    }

    fn words(&self, program: Program, row: &Row, url: &str) -> (&Path, Vec<String>) {
        let Row { direction, io, depth, bytes, digests, .. } = row;
        let load = [direction.to_string(), io.to_string(), depth.to_string(), bytes.to_string()];
        let url = std::iter::once(url.to_owned());
        match program {
            Program::Libiscsi(_) => {
                let many = matches!(row.kind, Kind::Disks(_)).then(|| row.disks().to_string());
                let words = url.chain(load).chain([digests.to_string()]).chain(many);
                (&self.libiscsi, words.collect())
            }
            Program::SessionAlone => {
                let [_, io, depth, bytes] = load;
                let mut words = vec!["session-alone".to_owned()];
                words.extend(url.chain([io, depth, bytes]));
                words.push(format!("--disks={}", row.disks()));
                (&self.own, words)
            }
            Program::Bare => {
                let [direction, io, depth, bytes] = load;
                let depth = format!("--depth={depth}");
                (&self.own, vec!["bare".to_owned(), direction, io, bytes, depth])
            }
            Program::Initiator(runtime, _) => {
                let mut words = vec!["run".to_owned()];
                words.extend(url.chain(load).chain([digests.to_string()]));
                words.push(format!("--runtime={runtime}"));
                words.push(format!("--disks={}", row.disks()));
                match row.kind {
                    Kind::OverOneSession(_) => words.push("--sessions=1".to_owned()),
                    Kind::Idle { seconds, .. } => words.push(format!("--idle={seconds}")),
                    Kind::Both | Kind::AndBare | Kind::Disks(_) => {}
                }
                (&self.own, words)
            }
        }
    }
}

async fn end_of(command: &mut Command) -> Result<Ended, Outcome> {
    match run(command, LIMIT).await {
        Ok(Some(ended)) => Ok(ended),
        Ok(None) => Err(Outcome::TimedOut),
        Err(error) => Err(Outcome::Failed(error.to_string())),
    }
}

fn parse_result(ended: &Ended) -> Result<Value, Outcome> {
    if !ended.output.status.success() {
        return Err(Outcome::Failed(ended.complaint()));
    }
    let told: Value = serde_json::from_str(ended.text().trim())
        .map_err(|error| Outcome::Failed(format!("what it printed is no JSON: {error}")))?;
    match told["unsupported"].as_str() {
        Some(reason) => Err(Outcome::Skipped(reason.to_owned())),
        None => Ok(told),
    }
}

/// Returns the command of perf, which writes its summary to a file. The kernel counts, so the program runs at
/// its own speed. Under strace it would be slower, and more data would be ready at each call.
fn counter(summary: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["stat", "-x", ",", "-e", ALL_CALLS]);
    for call in CALLS {
        command.args(["-e", &format!("syscalls:sys_enter_{call}")]);
    }
    command.arg("-o").arg(summary);
    command
}

/// Returns the count of each event from perf's summary: the first field is the count, the third is the name
/// of the event.
fn calls(summary: &str) -> BTreeMap<String, u64> {
    let rows = summary.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let call = |row: Vec<&str>| {
        let name = row.get(2)?;
        let name = name.strip_prefix("syscalls:sys_enter_").unwrap_or(name);
        Some((name.to_owned(), row.first()?.parse().ok()?))
    };
    rows.filter_map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_together_and_by_name() {
        let summary = "\
# started on Tue Nov 24 13:30:24 2026

477030,,raw_syscalls:sys_enter,1577514858,100.00,,
120316,,syscalls:sys_enter_writev,1577514858,100.00,,
<not counted>,,syscalls:sys_enter_poll,0,100.00,,
";
        let calls = calls(summary);
        assert_eq!(calls, [(ALL_CALLS.to_owned(), 477_030), ("writev".to_owned(), 120_316)].into());
    }
}
