//! When a flush is due.

use std::time::Duration;

use tokio::time::Instant;

use crate::flush_pace::FlushPace;
use crate::options::CopyOptions;

/// After so many losses without a flush that went well between them, the destination is given up.
const MAX_LOSSES: u32 = 3;

/// The flushes of a copy.
#[derive(Debug)]
pub(crate) struct Flushes {
    pace: FlushPace,
    /// None is due before all is written: the destination takes its bytes in order, and gives none of them back.
    is_at_end_only: bool,
    /// When the one that is under way began, and what it covers, bytes.
    begun: (Instant, u64),
    is_under_way: bool,
    /// The last one began when all was written.
    is_last: bool,
    last: Instant,
    /// Losses since one went well.
    losses: u32,
    /// One has failed: no later one vouches for what it should have covered, nor for what was written since it
    /// began, because a system tells once that writes have failed.
    has_failed: bool,
}

impl Flushes {
    pub(crate) fn new(options: &CopyOptions, is_at_end_only: bool) -> Self {
        Self {
            pace: FlushPace::new(options.flush_bytes, options.flush_interval),
            is_at_end_only,
            begun: (Instant::now(), 0),
            is_under_way: false,
            is_last: false,
            last: Instant::now(),
            losses: 0,
            has_failed: false,
        }
    }

    /// How many bytes may be written, or under way, before a flush has covered them: as many as one flush
    /// covers, and as many while it runs.
    pub(crate) const fn max_exposed(&self) -> u64 {
        self.pace.bytes().saturating_mul(2)
    }

    /// A flush was made before anything was written.
    pub(crate) fn took_for_nothing(&mut self, time: Duration) {
        self.pace.ended(0, time);
    }

    pub(crate) const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// The last one has ended, and all is covered.
    pub(crate) const fn has_ended(&self) -> bool {
        self.is_last && !self.is_under_way && !self.has_failed
    }

    pub(crate) const fn is_last(&self) -> bool {
        self.is_last
    }

    /// One begins that covers so many bytes; the last one, if all is written.
    pub(crate) fn begin(&mut self, is_last: bool, bytes: u64) {
        self.begun = (Instant::now(), bytes);
        self.is_under_way = true;
        self.is_last = is_last;
    }

    /// It has ended well.
    pub(crate) fn end(&mut self) {
        (self.is_under_way, self.last, self.losses) = (false, Instant::now(), 0);
        let (begun, bytes) = self.begun;
        self.pace.ended(bytes, self.last - begun);
    }

    /// It has failed.
    pub(crate) const fn fail(&mut self) {
        (self.is_under_way, self.has_failed) = (false, true);
    }

    /// Whether one has failed, so that no later one counts.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// It has said that writes are lost; whether it is worth while to make them again.
    pub(crate) fn lose(&mut self) -> bool {
        (self.is_under_way, self.is_last, self.last) = (false, false, Instant::now());
        self.losses += 1;
        self.pace.lost();
        self.losses < MAX_LOSSES
    }

    /// When the next one is due because of the time; `None` where only the end of the copy asks for one. It is due no
    /// earlier than [`is_due`](Self::is_due) says so: the engine sleeps until then.
    pub(crate) fn due(&self, unflushed: u64) -> Option<Instant> {
        let is_wanted = unflushed > 0 && !self.is_under_way && !self.is_at_end_only;
        is_wanted.then(|| self.last + self.pace.pause())
    }

    /// Whether one is due, because of the time or the bytes.
    pub(crate) fn is_due(&self, unflushed: u64) -> bool {
        let Some(due) = self.due(unflushed) else { return false };
        due <= Instant::now() || unflushed >= self.pace.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_and_bytes_make_a_flush_due_unless_only_the_end_does() {
        let begun = Instant::now();
        let (timed, at_end) = (
            Flushes::new(&CopyOptions::default(), false),
            Flushes::new(&CopyOptions::default(), true),
        );
        assert_eq!((timed.due(0), at_end.due(0)), (None, None));
        assert!(timed.due(1).is_some_and(|due| due > begun));
        assert!(!timed.is_due(1) && timed.is_due(1 << 30));
        tokio::time::advance(CopyOptions::default().flush_interval).await;
        assert!(timed.is_due(1) && !timed.is_due(0));
        assert_eq!(at_end.due(1 << 30), None);
        assert!(!at_end.is_due(1 << 30));
    }
}
