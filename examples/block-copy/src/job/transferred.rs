//! What came of a copy, before it is verified.

use std::time::Duration;

use iscsi_copy::{Checksums, Identity, Passes, Progress, RangeSet};
use tokio::time::Instant;

use crate::passes::PassesReport;

/// What came of a copy, whether it came to its end or not.
#[derive(Debug, Default)]
pub(super) struct Transferred {
    pub(super) progress: Progress,
    pub(super) unreadable: RangeSet,
    pub(super) time: Duration,
    /// How fast each second went.
    pub(super) samples: Vec<f64>,
    pub(super) passes: Option<PassesReport>,
    /// What the source was when it should not change any more, if it is a file.
    pub(super) before: Option<Identity>,
}

/// What a copy can be verified with.
#[derive(Debug)]
pub(super) struct Unverified {
    /// What was copied, or was there already, beside what cannot be read.
    pub(super) covered: RangeSet,
    pub(super) checksums: Option<Checksums>,
    /// What was copied and has none.
    pub(super) earlier: RangeSet,
}

impl Transferred {
    /// Takes how far passes have come, the one that is under way included.
    pub(super) fn take(&mut self, passes: &Passes, of_pass: &Progress, start: Instant) {
        self.progress = passes.progress(of_pass);
        self.unreadable = passes.unreadable();
        self.time = start.elapsed();
    }
}
