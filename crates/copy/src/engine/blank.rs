//! Tracks which bytes of the destination read as zeros.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iscsi_block_device::{Device, RangeSet};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::joined::joined;

/// Time limit of the query for the destination's zeros. Zeros of the source wait for the result, data does
/// not.
const ASKING: Duration = Duration::from_secs(5);
/// Largest number of ranges that are kept of the destination's report of its zeros.
const MAX_RANGES: usize = 1 << 16;

/// Bytes of the destination that read as zeros, and were not written by this copy.
#[derive(Debug, Default)]
pub(crate) struct Blank {
    known: RangeSet,
    /// Whether the query for the destination's zeros is in flight.
    is_asked: bool,
    /// Ranges written while the query is in flight: its result may be older than the write.
    written: RangeSet,
    /// Zeros that wait for the result of the query: then they are written or skipped.
    undecided: RangeSet,
}

impl Blank {
    /// Creates the state of a destination whose zeros are known.
    pub(crate) fn known(known: RangeSet) -> Self {
        Self { known, ..Self::default() }
    }

    /// Creates the state of a destination to which the query is in flight.
    pub(crate) fn asked() -> Self {
        Self { is_asked: true, ..Self::default() }
    }

    /// Returns whether any bytes may read as zeros.
    pub(crate) fn is_possible(&self) -> bool {
        self.is_asked || !self.known.is_empty()
    }

    /// Returns whether zeros wait for the result of the query.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.undecided.is_empty()
    }

    /// Marks a range as no longer zero, because a write to it begins. Even if the write fails, the range may
    /// have changed.
    pub(crate) fn write(&mut self, range: &Range<u64>) {
        self.known.remove(range);
        if self.is_asked {
            self.written.insert(range.clone());
        }
    }

    /// Returns the parts of `range`, which is to become zero, that read as zeros already; `None` if the range
    /// must wait for the result of the query.
    pub(crate) fn among(&mut self, range: &Range<u64>) -> Option<RangeSet> {
        if self.is_asked {
            self.undecided.insert(range.clone());
            return None;
        }
        Some(self.known.overlap(range))
    }

    /// Takes the result of the query: the ranges that read as zeros. Returns the zeros that have waited for
    /// it.
    pub(crate) fn answer(&mut self, mut found: RangeSet) -> RangeSet {
        std::mem::take(&mut self.written).iter().for_each(|range| found.remove(&range));
        (self.known, self.is_asked) = (found, false);
        std::mem::take(&mut self.undecided)
    }
}

/// Queries which of the first `len` bytes of a device read as zeros. The result has only what the device
/// reports within the time limit.
///
/// At the time limit, the query in flight still runs to its end in a task. To drop it would abort its SCSI
/// command, and the report of a reset that the command may have received would be lost. The next flush would
/// then have to count intact writes as lost.
pub(crate) async fn ask(device: Arc<dyn Device>, len: u64) -> RangeSet {
    let (sender, mut receiver) = mpsc::channel(1);
    let asking = tokio::spawn(async move {
        let mut at = 0;
        while at < len {
            let Ok(extents) = device.extents(at, len - at).await else { return };
            let Some(last) = extents.last() else { return };
            at = last.end();
            if sender.send(extents).await.is_err() {
                return;
            }
        }
    });
    let mut blank = RangeSet::new();
    let hearing = async {
        while blank.len() < MAX_RANGES {
            let Some(extents) = receiver.recv().await else { return asking.await };
            let zeros = extents.iter().filter(|extent| extent.state.reads_zeros());
            blank.extend(zeros.map(|extent| extent.offset..extent.end()));
        }
        Ok(())
    };
    // Zeros that are not known at the time limit are written.
    if let Ok(ended) = timeout(ASKING, hearing).await {
        joined(ended);
    }
    blank
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::{Bytes, BytesMut};
    use iscsi_block_device::{DeviceFuture, DeviceLimits, Extent, ExtentState};
    use tokio::sync::Semaphore;

    use super::*;

    /// A device without data that answers each extent query with one extent of 10 bytes, when the test permits
    /// it.
    #[derive(Debug)]
    struct Slow {
        answers: Semaphore,
        /// Number of queries that were dropped before their results.
        dropped: AtomicUsize,
    }

    /// A query in flight.
    struct Question<'a> {
        device: &'a Slow,
        is_answered: bool,
    }

    impl Drop for Question<'_> {
        fn drop(&mut self) {
            let count = usize::from(!self.is_answered);
            self.device.dropped.fetch_add(count, Ordering::SeqCst);
        }
    }

    impl Device for Slow {
        fn capacity(&self) -> u64 {
            1000
        }

        fn limits(&self) -> DeviceLimits {
            DeviceLimits::default()
        }

        fn read_into(&self, _: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
            Box::pin(async { Ok(buffer) })
        }

        fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn extents(&self, offset: u64, _: u64) -> DeviceFuture<'_, Vec<Extent>> {
            Box::pin(async move {
                let mut question = Question { device: self, is_answered: false };
                self.answers.acquire().await.map_err(io::Error::other)?.forget();
                question.is_answered = true;
                Ok(vec![Extent::new(offset, 10, ExtentState::Deallocated)])
            })
        }
    }

    /// Queries a device that answers only `answers` queries within the time limit.
    async fn ask_slow(answers: usize) -> (RangeSet, Arc<Slow>) {
        let slow = Slow { answers: Semaphore::new(answers), dropped: AtomicUsize::new(0) };
        let slow = Arc::new(slow);
        (ask(slow.clone(), 1000).await, slow)
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_takes_too_long_goes_on_to_its_end_and_is_the_last_one() {
        let (found, slow) = ask_slow(3).await;
        assert_eq!(found, (0..30).into());
        slow.answers.add_permits(100);
        while Arc::strong_count(&slow) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(slow.dropped.load(Ordering::SeqCst), 0, "its command would be aborted");
        assert_eq!(slow.answers.available_permits(), 99);
        assert_eq!(ask_slow(100).await.0, (0..1000).into());
    }

    #[test]
    fn an_answer_says_nothing_of_what_is_written_meanwhile() {
        let mut blank = Blank::asked();
        blank.write(&(10..20));
        assert_eq!(blank.among(&(15..40)), None);
        assert!(blank.is_waited_for() && blank.is_possible());
        assert_eq!(blank.answer((0..30).into()), (15..40).into());
        assert!(!blank.is_waited_for());
        assert_eq!(blank.among(&(15..40)), Some((20..30).into()));
        blank.write(&(0..25));
        assert_eq!(blank.among(&(15..40)), Some((25..30).into()));
    }
}
