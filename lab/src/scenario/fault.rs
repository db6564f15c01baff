//! Faults of link, target or unit in the middle of a copy, and the expected result of the copy.

use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::Direction;

/// A fault, and the copies through it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Kind of the fault.
    pub what: FaultKind,
    /// LUN of the unit.
    #[serde(default)]
    pub lun: u16,
    /// Duration of the fault in seconds; by default until the copy has ended. Only for kinds of faults that
    /// can end.
    pub seconds: Option<u64>,
    /// Retry timeout of the copy in seconds (`retry_timeout=` in its URL); by default the program's.
    pub patience: Option<u32>,
    /// Time limit of a copy, seconds.
    pub limit: Option<u64>,
    /// The copies.
    pub runs: Vec<FaultRun>,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The link loses every packet, in both directions.
    LinkDark,
    /// The portal group is disabled: sessions end, and logins are refused.
    TargetDisabled,
    /// The target is removed, and made again immediately with the same files.
    TargetRestarted,
    /// The target is removed, and made again later: connections close, and new ones are not accepted meanwhile.
    TargetKilled,
    /// The target does not respond: no packet leaves or reaches it, and none is lost.
    TargetStopped,
    /// The unit is removed from the target.
    UnitRemoved,
    /// Another unit with the same size and another serial number replaces the unit at its LUN.
    UnitReplaced,
    /// The unit's capacity is halved.
    UnitShrunk,
    /// The unit refuses writes.
    UnitReadOnly,
    /// The file system under the unit has no space for blocks that were not written before.
    UnitFull,
}

/// A copy during which the fault happens.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRun {
    /// Kind of the copy.
    pub job: FaultJob,
    /// Sessions of the copy.
    pub over: Shape,
    /// Regular expression that the error of the copy must match. By default, the copy must succeed with equal bytes.
    pub error: Option<String>,
}

/// Kind of a copy.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultJob {
    /// Copies an image to the unit. The fault comes while the image is written.
    Write,
    /// Copies the unit to a file. The fault comes while the unit is read.
    Read,
    /// Copies an image to the unit with `--verify`. The fault comes while the unit is read back.
    Verify,
}

/// Sessions and connections of a copy.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// One session of one connection.
    OneSession,
    /// Four sessions.
    FourSessions,
    /// One session of two connections (MC/S).
    TwoConnections,
}

/// The fault of one measurement.
#[derive(Clone, Debug)]
pub struct Ordeal {
    /// Kind of the fault.
    pub what: FaultKind,
    /// Duration of the fault; `None` lasts until the copy has ended.
    pub lasts: Option<Duration>,
    /// Retry timeout of the copy, seconds.
    pub patience: Option<u32>,
    /// Kind of the copy.
    pub job: FaultJob,
    /// Regular expression that the error must match. `None` expects equal bytes.
    pub error: Option<String>,
}

impl FaultKind {
    /// Returns the name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::LinkDark => "link-dark",
            Self::TargetDisabled => "target-disabled",
            Self::TargetRestarted => "target-restarted",
            Self::TargetKilled => "target-killed",
            Self::TargetStopped => "target-stopped",
            Self::UnitRemoved => "unit-removed",
            Self::UnitReplaced => "unit-replaced",
            Self::UnitShrunk => "unit-shrunk",
            Self::UnitReadOnly => "unit-read-only",
            Self::UnitFull => "unit-full",
        }
    }

    /// Returns whether a fault of this kind can end before the copy does.
    pub fn can_end(self) -> bool {
        match self {
            Self::LinkDark | Self::TargetDisabled | Self::TargetKilled | Self::TargetStopped => {
                true
            }
            Self::TargetRestarted
            | Self::UnitRemoved
            | Self::UnitReplaced
            | Self::UnitShrunk
            | Self::UnitReadOnly
            | Self::UnitFull => false,
        }
    }
}

impl FaultJob {
    /// Returns the name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Verify => "verify",
        }
    }

    /// Returns the direction of the bytes in the stage in which the fault comes.
    pub fn direction(self) -> Direction {
        match self {
            Self::Write | Self::Verify => Direction::Write,
            Self::Read => Direction::Read,
        }
    }
}

impl Shape {
    /// Returns the name in results.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::OneSession => "one session",
            Self::FourSessions => "four sessions",
            Self::TwoConnections => "two connections",
        }
    }

    /// Returns the options of block-copy.
    pub(super) fn args(self) -> [&'static str; 4] {
        match self {
            Self::OneSession => ["--sessions", "1", "--connections", "1"],
            Self::FourSessions => ["--sessions", "4", "--connections", "1"],
            Self::TwoConnections => ["--sessions", "1", "--connections", "2"],
        }
    }
}

impl Fault {
    /// Returns the name in results: the kind and the duration of the fault.
    pub(super) fn name(&self) -> String {
        let mut what = self.what.name().replacen('-', " ", 1);
        if self.lun != 0 {
            what += &format!(" (LUN {})", self.lun);
        }
        match self.seconds {
            Some(seconds) => format!("{what}, {seconds} s"),
            None if self.what.can_end() => format!("{what}, for ever"),
            None => what,
        }
    }

    /// Checks the fault. The error names the first inconsistency.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.runs.is_empty() {
            return Err("`runs` is empty".to_owned());
        }
        if self.seconds.is_some() && !self.what.can_end() {
            return Err("it cannot end: no `seconds`".to_owned());
        }
        if self.limit == Some(0) {
            return Err("`limit` must be at least 1".to_owned());
        }
        for error in self.runs.iter().filter_map(|run| run.error.as_deref()) {
            Regex::new(error).map_err(|reason| format!("`error`: {reason}"))?;
        }
        Ok(())
    }
}
