//! Measures how many bytes the paths have moved, and whether the paths were busy all the time.

/// Bytes that the paths have moved, and whether the paths were busy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes answered so far.
    pub(crate) moved: u64,
    /// Whether every path was busy since the last reading.
    pub(crate) is_busy: bool,
}

/// Counts the progress of the paths.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    moved: u64,
    /// Whether some path was idle since the last reading.
    was_idle: bool,
}

impl Meter {
    /// Counts a request of `len` bytes that was answered.
    pub(crate) const fn answered(&mut self, len: u64) {
        self.moved += len;
    }

    /// Records whether a path may have become idle.
    pub(crate) const fn record_idle(&mut self, is_idle: bool) {
        self.was_idle |= is_idle;
    }

    /// Returns the progress, and whether all paths were busy since the last reading. `has_work` says whether
    /// every path is busy at this moment.
    pub(super) fn read(&mut self, has_work: bool) -> Progress {
        let was_idle = std::mem::take(&mut self.was_idle);
        Progress { moved: self.moved, is_busy: !was_idle && has_work }
    }
}
