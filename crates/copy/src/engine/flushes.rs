//! Decides when a flush is due.

use std::time::Duration;

use tokio::time::Instant;

use super::flush_pace::FlushPace;
use crate::job::options::CopyOptions;

/// Number of consecutive losses without a successful flush in between after which the copy fails.
const MAX_LOSSES: u32 = 3;

/// The flushes of a copy.
#[derive(Debug)]
pub(crate) struct Flushes {
    pace: FlushPace,
    /// Whether the only flush is at the end, because the destination is a stream, and cannot lose writes that
    /// it has accepted.
    is_at_end_only: bool,
    /// Time at which the running flush began, and the bytes that it covers.
    begun: (Instant, u64),
    is_under_way: bool,
    /// Whether the latest flush is the final one: all data was written when it began, and no loss was reported since.
    is_last: bool,
    last: Instant,
    /// Time at which the first write ended that no flush covers yet.
    waiting_since: Option<Instant>,
    /// Number of losses since the last successful flush.
    losses: u32,
    /// Whether a flush has failed. A later successful flush does not show that the data of the failed one, or
    /// data written since it began, is durable, because a system reports failed writes once.
    has_failed: bool,
}

impl Flushes {
    /// Creates the flushes of a destination, with or without a volatile cache.
    pub(crate) fn new(options: &CopyOptions, has_cache: bool, is_at_end_only: bool) -> Self {
        Self {
            pace: FlushPace::new(options.flush_bytes, options.flush_interval, has_cache),
            is_at_end_only,
            begun: (Instant::now(), 0),
            is_under_way: false,
            is_last: false,
            last: Instant::now(),
            waiting_since: None,
            losses: 0,
            has_failed: false,
        }
    }

    /// Returns how many bytes may be in flight or written without a successful flush: the coverage of one
    /// flush, and as much again while that flush runs.
    pub(crate) const fn max_exposed(&self) -> u64 {
        self.pace.bytes().saturating_mul(2)
    }

    /// Records the duration of a flush before the first write: an empty one.
    pub(crate) fn took_for_nothing(&mut self, time: Duration) {
        self.pace.ended(0, time);
    }

    pub(crate) const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Returns whether the last flush has ended, and covered all written data.
    pub(crate) const fn has_ended(&self) -> bool {
        self.is_last && !self.is_under_way && !self.has_failed
    }

    pub(crate) const fn is_last(&self) -> bool {
        self.is_last
    }

    /// Records the end of a write.
    pub(crate) fn written(&mut self) {
        _ = self.waiting_since.get_or_insert_with(Instant::now);
    }

    /// Records that a flush of `bytes` bytes begins. `is_last`: everything is written.
    pub(crate) fn begin(&mut self, is_last: bool, bytes: u64) {
        self.waiting_since = None;
        self.begun = (Instant::now(), bytes);
        self.is_under_way = true;
        self.is_last = is_last;
    }

    /// Records that the running flush has succeeded.
    pub(crate) fn end(&mut self) {
        (self.is_under_way, self.last, self.losses) = (false, Instant::now(), 0);
        let (begun, bytes) = self.begun;
        self.pace.ended(bytes, self.last - begun);
    }

    /// Records that the running flush has failed.
    pub(crate) const fn fail(&mut self) {
        (self.is_under_way, self.has_failed) = (false, true);
    }

    /// Returns whether a flush has failed. Then no further flush is made.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Records that the running flush has reported lost writes. Returns `false` if the copy should fail
    /// instead of writing them again.
    pub(crate) fn record_loss(&mut self) -> bool {
        (self.is_under_way, self.is_last, self.last) = (false, false, Instant::now());
        self.waiting_since = None;
        self.losses += 1;
        self.pace.lost();
        self.losses < MAX_LOSSES
    }

    /// Returns the time at which the next flush is due; `None` if there is nothing to flush, a flush is
    /// running, or only the end of the copy needs a flush. The engine sleeps until then, so
    /// [`is_due`](Self::is_due) must return `true` at that time.
    pub(crate) fn due(&self, unflushed: u64) -> Option<Instant> {
        let is_wanted = unflushed > 0 && !self.is_under_way && !self.is_at_end_only;
        let since = self.waiting_since.map_or(self.last, |since| since.max(self.last));
        is_wanted.then(|| since + self.pace.pause())
    }

    /// Returns whether a flush is due, by the time or by the number of unflushed bytes.
    pub(crate) fn is_due(&self, unflushed: u64) -> bool {
        let Some(due) = self.due(unflushed) else { return false };
        due <= Instant::now() || unflushed >= self.pace.bytes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn flushes(is_at_end_only: bool) -> Flushes {
        let mut flushes = Flushes::new(&CopyOptions::default(), true, is_at_end_only);
        flushes.written();
        flushes
    }

    #[tokio::test(start_paused = true)]
    async fn time_and_bytes_make_a_flush_due() {
        let flushes = flushes(false);
        assert_eq!(flushes.due(0), None);
        assert!(flushes.due(1).is_some_and(|due| due > Instant::now()));
        assert!(!flushes.is_due(1) && flushes.is_due(1 << 30));
        advance(CopyOptions::default().flush_interval).await;
        assert!(flushes.is_due(1) && !flushes.is_due(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_in_order_is_flushed_at_its_end_only() {
        let flushes = flushes(true);
        advance(CopyOptions::default().flush_interval).await;
        assert_eq!(flushes.due(1 << 30), None);
        assert!(!flushes.is_due(1 << 30));
    }

    /// Opening a destination over a long link may take longer than the time between two flushes. That time
    /// must not make a flush due.
    #[tokio::test(start_paused = true)]
    async fn no_time_counts_before_the_first_write() {
        let mut flushes = Flushes::new(&CopyOptions::default(), true, false);
        for _ in 0..2 {
            advance(CopyOptions::default().flush_interval).await;
            flushes.written();
            assert!(!flushes.is_due(1));
            flushes.begin(false, 1);
            flushes.end();
        }
    }
}
