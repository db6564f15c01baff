//! Writes that failed after their answer, and who was told (as errseq does for fsync).

use std::io;

use iscsi_initiator::device::{DeviceError, DeviceErrorKind};
use thiserror::Error;

/// The failures so far.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u64,
    last: Option<DeviceError>,
    /// Whether a handle has reported the last one.
    is_told: bool,
    /// Those since a change went well.
    run: Run,
}

/// Changes in a row that have failed, most often because the target is away.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Run {
    pub(super) writes: u64,
    pub(super) bytes: u64,
}

impl Failures {
    /// A change of so many bytes has failed. Whether it is the first since one went well: of those that follow it, which
    /// most often fail for the same reason, the log has the number alone.
    pub(super) fn add(&mut self, error: DeviceError, bytes: u64) -> bool {
        self.count += 1;
        (self.last, self.is_told) = (Some(error), false);
        self.run.writes += 1;
        self.run.bytes += bytes;
        self.run.writes == 1
    }

    /// How many there were.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// A change has gone well. What has failed since the last one did, if that was more than the log has told.
    pub(super) fn end_run(&mut self) -> Option<Run> {
        Some(std::mem::take(&mut self.run)).filter(|run| run.writes > 1)
    }

    /// How many a handle that is made now need not tell.
    pub(super) fn told_before_a_new_handle(&self) -> u64 {
        if self.is_told { self.count } else { self.count.saturating_sub(1) }
    }

    /// How many there were, and the last one if a handle that has told so many has to tell of it.
    pub(super) fn tell(&mut self, told: u64) -> (u64, Option<DeviceError>) {
        if told >= self.count {
            return (told, None);
        }
        self.is_told = true;
        (self.count, self.last.clone().map(as_loss))
    }
}

/// A failure that several are told of.
#[derive(Debug, Error)]
#[error("a write that was answered before has failed: {0}")]
struct Told(#[source] DeviceError);

/// A failure as a flush tells it. Its kind in the system stays what it was, for the advice on it.
fn as_loss(failure: DeviceError) -> DeviceError {
    let told = io::Error::new(failure.io_kind(), Told(failure));
    DeviceError::from(told).with_kind(DeviceErrorKind::LostWrites)
}

/// Whether the error of a flush tells that writes which were answered before may be lost. No later flush of its handle tells that.
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
        assert_eq!(failures.tell(0).0, 6, "each flush hears of all");
    }
}
