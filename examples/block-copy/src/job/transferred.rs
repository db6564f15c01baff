//! The result of a copy before it is verified.

use std::time::Duration;

use iscsi_copy::{Checksums, Identity, Passes, Progress, RangeSet};
use tokio::time::Instant;

use crate::report::passes::PassesReport;

/// The result of a copy, complete or not.
#[derive(Debug, Default)]
pub(super) struct Transferred {
    pub(super) progress: Progress,
    pub(super) unreadable: RangeSet,
    pub(super) time: Duration,
    /// The rate of each second in Mbit/s.
    pub(super) samples: Vec<f64>,
    pub(super) passes: Option<PassesReport>,
    /// Identity of the source file when the copy began; for a source in use, when the last pass began. The file
    /// should not change after that. `None` for other sources, and before the last pass.
    pub(super) before: Option<Identity>,
}

/// Input of the verification of a copy.
#[derive(Debug)]
pub(super) struct Unverified {
    /// Ranges that were copied or were there already, without the unreadable ones.
    pub(super) covered: RangeSet,
    pub(super) checksums: Option<Checksums>,
    /// Copied ranges that have no checksums, because an earlier run has copied them.
    pub(super) earlier: RangeSet,
}

impl Transferred {
    /// Takes the totals over all passes. `of_pass` is the progress of the running pass.
    pub(super) fn take(&mut self, passes: &Passes, of_pass: &Progress, start: Instant) {
        self.progress = passes.progress(of_pass);
        self.unreadable = passes.unreadable();
        self.time = start.elapsed();
    }
}
