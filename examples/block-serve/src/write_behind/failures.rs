//! Records writes that failed after they were answered, and the failures that handles have reported (as errseq
//! does for fsync).

use std::io;

use iscsi_initiator::device::{DeviceError, DeviceErrorKind};
use thiserror::Error;

/// The failures so far.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u64,
    last: Option<DeviceError>,
    /// Whether a handle has reported the last failure already.
    is_reported: bool,
    /// The failures since the last successful change.
    run: Run,
}

/// Consecutive failed changes, usually because the target is not reachable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Run {
    pub(super) writes: u64,
    pub(super) bytes: u64,
}

impl Failures {
    /// Records a failed change of `bytes` bytes. Returns whether it is the first failure after a success.
    /// Further failures usually have the same reason, and only their number is logged.
    pub(super) fn add(&mut self, error: DeviceError, bytes: u64) -> bool {
        self.count += 1;
        (self.last, self.is_reported) = (Some(error), false);
        self.run.writes += 1;
        self.run.bytes += bytes;
        self.run.writes == 1
    }

    /// Returns the number of failures.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Records a successful change. Returns the failures before it, if there was more than one.
    pub(super) fn end_run(&mut self) -> Option<Run> {
        Some(std::mem::take(&mut self.run)).filter(|run| run.writes > 1)
    }

    /// Returns the number of failures that a new handle need not report.
    pub(super) fn reported_before_new_handle(&self) -> u64 {
        if self.is_reported { self.count } else { self.count.saturating_sub(1) }
    }

    /// Returns the total number of failures, and the last failure if the handle must report it. `reported` is
    /// the number of failures that the handle has reported.
    pub(super) fn report_to_handle(&mut self, reported: u64) -> (u64, Option<DeviceError>) {
        if reported >= self.count {
            return (reported, None);
        }
        self.is_reported = true;
        (self.count, self.last.clone().map(as_loss))
    }
}

/// A failure that is reported to several handles.
#[derive(Debug, Error)]
#[error("a write that was answered before has failed: {0}")]
struct LostWrite(#[source] DeviceError);

/// Returns a failure as the error of a flush. The error keeps the kind of the system's error, which the advice
/// depends on.
fn as_loss(failure: DeviceError) -> DeviceError {
    let told = io::Error::new(failure.io_kind(), LostWrite(failure));
    DeviceError::from(told).with_kind(DeviceErrorKind::LostWrites)
}

/// Returns whether the error of a flush means that answered writes may be lost. Later flushes of the same
/// handle do not report the loss again.
#[must_use]
pub fn is_loss(error: &DeviceError) -> bool {
    error.kind() == DeviceErrorKind::LostWrites
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_failures_in_a_row_the_first_is_told_and_the_number_when_they_end() {
        let mut failures = Failures::default();
        let mut fail = |count: u64| -> Vec<bool> {
            let failed = (0..count).map(|_| failures.add(DeviceErrorKind::TimedOut.into(), 512));
            let told = failed.collect();
            let run = failures.end_run();
            assert_eq!(run, (count > 1).then_some(Run { writes: count, bytes: count * 512 }));
            told
        };
        assert_eq!(fail(3), [true, false, false]);
        assert_eq!(fail(0), [false; 0]);
        assert_eq!(fail(1), [true]);
        assert_eq!(fail(2), [true, false]);
        assert_eq!(failures.report_to_handle(0).0, 6, "each flush hears of all");
    }
}
