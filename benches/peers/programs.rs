//! The programs that are compared, and one run of one of them.

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
use crate::rows::{Kind, Row};
use crate::words::Runtime;

/// Far more than any run takes, also under strace.
const LIMIT: Duration = Duration::from_secs(300);
const HEADER: &str = "/usr/include/iscsi/iscsi.h";

/// Who carries a load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Program {
    /// This program's `run`.
    Initiator(Runtime),
    /// The program in C.
    Libiscsi,
    /// This program's `bare`.
    Bare,
}

impl Program {
    /// Those that carry a row.
    pub(crate) fn of(row: &Row, runtimes: &[Runtime]) -> Vec<Self> {
        let mut programs: Vec<_> = runtimes.iter().copied().map(Self::Initiator).collect();
        match row.kind {
            Kind::Both => programs.push(Self::Libiscsi),
            Kind::AndBare => programs.extend([Self::Libiscsi, Self::Bare]),
            Kind::Disks(_) | Kind::Idle { .. } => {}
        }
        programs
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Initiator(_) => "iscsi-initiator",
            Self::Libiscsi => "libiscsi",
            Self::Bare => "TCP stream",
        }
    }
}

/// Where they are.
#[derive(Debug)]
pub(crate) struct Programs {
    own: PathBuf,
    libiscsi: PathBuf,
    /// For what they leave.
    folder: PathBuf,
}

impl Programs {
    /// Compiles the one in C.
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

    /// One run: what the program told of itself, or why there is nothing to tell.
    pub(crate) async fn run(
        &self,
        program: Program,
        row: &Row,
        url: &str,
    ) -> Result<Value, Outcome> {
        let (path, words) = self.words(program, row, url);
        told(&end_of(Command::new(path).args(words)).await?)
    }

    /// The system calls of one run, from its start to its end.
    pub(crate) async fn calls(
        &self,
        program: Program,
        row: &Row,
        url: &str,
    ) -> Result<Value, Outcome> {
        let (path, words) = self.words(program, row, url);
        let summary = self.folder.join("calls");
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-o"]).arg(&summary).arg("--").arg(path).args(words);
        told(&end_of(&mut command).await?)?;
        let summary =
            fs::read_to_string(&summary).map_err(|error| Outcome::Failed(error.to_string()))?;
        let by_name = calls(&summary);
        Ok(json!({ "system_calls": by_name.values().sum::<u64>(), "by_name": by_name }))
    }

    fn words(&self, program: Program, row: &Row, url: &str) -> (&Path, Vec<String>) {
        let Row { direction, io, depth, bytes, digests, .. } = row;
        let load = [direction.to_string(), io.to_string(), depth.to_string(), bytes.to_string()];
        let url = std::iter::once(url.to_owned());
        match program {
            Program::Libiscsi => {
                (&self.libiscsi, url.chain(load).chain([digests.to_string()]).collect())
            }
            Program::Bare => {
                let [direction, io, _, bytes] = load;
                (&self.own, vec!["bare".to_owned(), direction, io, bytes])
            }
            Program::Initiator(runtime) => {
                let mut words = vec!["run".to_owned()];
                words.extend(url.chain(load).chain([digests.to_string()]));
                words.push(format!("--runtime={runtime}"));
                words.push(format!("--disks={}", row.disks()));
                if let Kind::Idle { seconds, .. } = row.kind {
                    words.push(format!("--idle={seconds}"));
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

fn told(ended: &Ended) -> Result<Value, Outcome> {
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

/// How often each call was made, from the summary that strace writes: rows with the number in the fourth column and the
/// name in the last, between lines, and the sum below.
fn calls(summary: &str) -> BTreeMap<String, u64> {
    let rows = summary.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let call = |row: Vec<&str>| Some(((*row.last()?).to_owned(), row.get(3)?.parse().ok()?));
    rows.filter_map(call).filter(|(name, _)| name != "total").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_with_errors_and_without() {
        let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.12    0.002000           2      1000           writev
  9.88    0.000200           4        50         3 readv
------ ----------- ----------- --------- --------- ----------------
100.00    0.002200           2      1050         3 total
";
        let calls = calls(summary);
        assert_eq!(calls, [("readv".to_owned(), 50), ("writev".to_owned(), 1000)].into());
    }
}
