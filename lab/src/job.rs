//! The jobs that the lab passes to its agent in the environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::result::ResultFile;
use crate::scenario::Scenario;

/// A job of the agent.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Job {
    /// Measure a scenario.
    Run(Box<RunJob>),
    /// Run a program.
    Exec(ExecJob),
}

/// A scenario to measure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunJob {
    /// The scenario.
    pub scenario: Scenario,
    /// The result file, as far as it is known before the first figure.
    pub file: ResultFile,
    /// Path of the result file.
    pub out: PathBuf,
    /// Folder of the built programs.
    pub tree: PathBuf,
    /// Folder of `link` and `lio`.
    pub scripts: PathBuf,
}

/// A program to run.
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
    /// Folder of `link` and `lio`.
    pub scripts: PathBuf,
}
