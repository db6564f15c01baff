//! A copy that did not succeed.

use iscsi_examples_common::failure;
use iscsi_examples_common::program::ProgramError;
use serde_json::{Value, json};
use thiserror::Error as ThisError;

use crate::error::Error;
use crate::report::Report;

/// A copy that did not succeed.
#[derive(Debug, ThisError)]
#[error("{error}")]
pub struct Failure {
    /// The reason.
    pub error: Error,
    /// The report up to the failure; `None` if the copy did not begin.
    pub report: Option<Box<Report>>,
}

impl Failure {
    /// Returns the failure as JSON: the report up to the failure, the error, and the kind of the error.
    pub fn to_json(&self) -> Value {
        let nothing = || json!({ "bytes": 0, "verified": false });
        let known = self.report.as_ref().map_or_else(nothing, |report| report.to_json());
        failure::object(known, &self.error.to_string(), self.error.kind())
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, report: None }
    }
}
