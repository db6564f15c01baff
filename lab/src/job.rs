//! What the lab on the machine tells its agent to do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::result::ResultFile;
use crate::scenario::Scenario;

/// What the agent is to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Job {
    /// Measure a scenario.
    Run(Box<RunJob>),
    /// Run a program.
    Exec(ExecJob),
}

/// A scenario to be measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunJob {
    /// The scenario.
    pub scenario: Scenario,
    /// The result with what is known before the first figure.
    pub file: ResultFile,
    /// Where the result goes.
    pub out: PathBuf,
    /// Where the built programs are.
    pub tree: PathBuf,
    /// Where `link` and `lio` are.
    pub scripts: PathBuf,
}

/// A program to be run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ExecJob {
    /// Words for `lab/link`.
    pub link: Vec<String>,
    /// Words for `lab/lio`.
    pub target: Vec<String>,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// The unit that `LAB_URL` names.
    pub lun: u16,
    /// Where `link` and `lio` are.
    pub scripts: PathBuf,
}
