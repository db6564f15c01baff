//! Exposes the parsers of files and of the control socket to the fuzz targets (`fuzz/`). The parsers are private
//! otherwise.

use std::ffi::OsString;

use iscsi_copy::RangeSet;
use serde_json::Value;

use crate::classes::protocol::{Asked, Reply};
use crate::control::orders::Orders;
use crate::job::ranges;
use crate::jobs::job_file::JobFile;

/// Parses a job file; returns the name and the destination of each job, or `None` if the file is invalid.
pub fn jobs(text: &str) -> Option<Vec<(String, OsString)>> {
    let jobs = JobFile::parse_any(text).ok()?.jobs.into_iter();
    Some(jobs.map(|job| (job.name, job.args.destination.unwrap_or_default())).collect())
}

/// Parses a list of ranges of a source of `len` bytes; `None` if it is invalid.
pub fn ranges(text: &str, len: u64) -> Option<RangeSet> {
    Some(ranges::list::parse(text, len).ok()?.ranges)
}

/// Parses a line of the protocol by which processes share classes, as a request and as a reply. Returns what was
/// parsed, as lines again.
pub fn messages(line: &str) -> Vec<String> {
    let request = Asked::parse(line).map(|request| request.to_string());
    request.into_iter().chain(Reply::parse(line).map(|reply| reply.to_string())).collect()
}

/// The commands of a control socket, to two copies that share classes.
#[derive(Debug)]
pub struct Commands(Orders);

impl Default for Commands {
    fn default() -> Self {
        Self(Orders::sample())
    }
}

impl Commands {
    /// Executes a line; returns the answer.
    pub fn execute(&self, line: &str) -> Value {
        self.0.obey(line)
    }
}
