//! What the lab's half on the machine tells its half inside.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::result::ResultFile;
use crate::scenario::Scenario;

/// What to do inside.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Order {
    /// Measure a scenario.
    Run(Box<RunOrder>),
    /// Run a program.
    Exec(ExecOrder),
}

/// A scenario to be measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunOrder {
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
pub struct ExecOrder {
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
