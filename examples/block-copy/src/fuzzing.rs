//! Exposes the parsers of files and of the control socket to the fuzz targets (`fuzz/`). The parsers are private
//! otherwise.

use std::ffi::OsString;

use iscsi_copy::RangeSet;
use iscsi_initiator::shaping::{Class, RateLimit};
use serde_json::Value;

use crate::classes::Classes;
use crate::classes::protocol::{Asked, Reply};
use crate::control::handle::Handle;
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

/// The commands of a control socket, to two copies that share two classes.
#[derive(Debug)]
pub struct Commands(Orders);

impl Commands {
    /// Creates the copies and the classes.
    ///
    /// # Panics
    /// Never: the rates are valid.
    #[expect(clippy::new_without_default, clippy::unwrap_used, reason = "a fixture")]
    pub fn new() -> Self {
        let classes = Classes::new("10mbit".parse().unwrap()).unwrap();
        let class = Class::new("1mbit".parse().unwrap()).with_ceil(RateLimit::Unlimited);
        classes.add("backup", None, class).unwrap();
        let handles = [("one", None), ("the other", Some("backup"))]
            .map(|(name, class)| Handle::new(name, Some(classes.clone()), class));
        Self(Orders::new(classes, handles.into()))
    }

    /// Executes a line; returns the answer.
    pub fn execute(&self, line: &str) -> Value {
        self.0.obey(line)
    }
}
