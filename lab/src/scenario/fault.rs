//! Faults: what is done to link, target or unit in the middle of a copy, and how the copy is to end.

use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::Direction;

/// A fault, and the copies that it meets.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens.
    pub what: FaultKind,
    /// The unit.
    #[serde(default)]
    pub lun: u16,
    /// How many seconds it lasts; until the copy has ended if not given. Only of faults that can
    /// end.
    pub seconds: Option<u64>,
    /// Seconds that the copy puts up with what may pass (`retry_timeout=` in its URL); its default if not
    /// given.
    pub patience: Option<u32>,
    /// Seconds that a copy may take.
    pub limit: Option<u64>,
    /// The copies.
    pub runs: Vec<FaultRun>,
}

/// What happens.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The link loses every packet, in both directions.
    LinkDark,
    /// The portal group is disabled: sessions end, logins are refused.
    TargetDisabled,
    /// The target is removed, and built again immediately over the same files.
    TargetRestarted,
    /// The target is removed, and built again later: connections close, then none is accepted.
    TargetKilled,
    /// The target stands still: no packet leaves or reaches it, and none is lost.
    TargetStopped,
    /// The unit is taken out of the target.
    UnitRemoved,
    /// Another unit of the same size, with a serial number of its own, takes its LUN.
    UnitReplaced,
    /// The unit's capacity becomes half.
    UnitShrunk,
    /// The unit refuses writes.
    UnitReadOnly,
    /// The file system below the unit has no room for what was not written before.
    UnitFull,
}

/// One copy that meets a fault.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRun {
    /// What is copied.
    pub job: FaultJob,
    /// Over which sessions.
    pub over: Shape,
    /// What the error of the copy must match, a regular expression; it must end well, with equal
    /// bytes, if not given.
    pub error: Option<String>,
}

/// What is copied.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultJob {
    /// An image to the unit; the fault comes while it is written.
    Write,
    /// The unit to a file.
    Read,
    /// An image to the unit with `--verify`; the fault comes while it is read back.
    Verify,
}

/// Over which sessions a copy runs.
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
    /// What happens.
    pub what: FaultKind,
    /// How long; `None` is until the copy has ended.
    pub lasts: Option<Duration>,
    /// Seconds that the copy puts up with what may pass.
    pub patience: Option<u32>,
    /// What is copied.
    pub job: FaultJob,
    /// What the error must match; `None` is equal bytes.
    pub error: Option<String>,
}

impl FaultKind {
    /// Its name in scenarios.
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

    /// Whether it can end before the copy does.
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
    /// Its name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Verify => "verify",
        }
    }

    /// Which way the bytes go that the fault meets first.
    pub fn direction(self) -> Direction {
        match self {
            Self::Write | Self::Verify => Direction::Write,
            Self::Read => Direction::Read,
        }
    }
}

impl Shape {
    /// Its name in results.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::OneSession => "one session",
            Self::FourSessions => "four sessions",
            Self::TwoConnections => "two connections",
        }
    }

    /// As options of block-copy.
    pub(super) fn args(self) -> [&'static str; 4] {
        match self {
            Self::OneSession => ["--sessions", "1", "--connections", "1"],
            Self::FourSessions => ["--sessions", "4", "--connections", "1"],
            Self::TwoConnections => ["--sessions", "1", "--connections", "2"],
        }
    }
}

impl Fault {
    /// Its name in results: what happens, and how long.
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

    /// Says what makes no sense.
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
