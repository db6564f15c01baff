//! Counts recent responses, to decide three things: how many callers may submit again, whether to read for more
//! responses before requests are sent, and for how many bytes of responses to wait together.

use std::time::Duration;

use iscsi_session::Session;
use iscsi_tuner::Coalescing;
use tokio::time::Instant;

/// Time after its response within which a caller is expected to submit again.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(1);

/// Number of socket reads in a row that return nothing, after which socket reads are skipped. With four commands
/// of 4 KiB in flight on each of 1,000 disks, such reads would be a fifth of all system calls.
const MAX_EMPTY_READS: u32 = 4;

/// Number of socket reads that are skipped after [`MAX_EMPTY_READS`] empty ones.
const SKIPPED_READS: u32 = 64;

/// Time since the last read after which the sockets are polled for responses below their low-water marks.
const KEPT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Counters and estimates of recent responses.
#[derive(Debug)]
pub(super) struct Answers {
    /// Number of callers that have a response and have not submitted again.
    may_ask: usize,
    /// Number of socket reads in a row that returned nothing.
    empty_reads: u32,
    /// Number of socket reads still to skip.
    reads_to_skip: u32,
    /// Bytes read from all connections so far.
    received: u64,
    /// Time of the last read that returned bytes.
    read_at: Instant,
    coalescing: Coalescing,
    /// Bytes of responses to wait for together on each connection; 0 to wait for any data.
    awaited: u64,
    /// Time of the next poll of the sockets that hold bytes back.
    kept_poll_due: Instant,
}

impl Answers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            may_ask: 0,
            empty_reads: 0,
            reads_to_skip: 0,
            received: 0,
            read_at: now,
            coalescing: Coalescing::default(),
            awaited: 0,
            kept_poll_due: now,
        }
    }

    /// Counts `count` bytes that were read.
    pub(super) fn read(&mut self, count: usize, now: Instant) {
        self.received += count as u64;
        self.read_at = now;
    }

    /// Returns the number of bytes read from all connections so far.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Counts a caller that has received its response.
    pub(super) const fn given(&mut self) {
        self.may_ask += 1;
    }

    /// Counts `count` requests that were submitted.
    pub(super) const fn asked(&mut self, count: usize) {
        self.may_ask = self.may_ask.saturating_sub(count);
    }

    /// Sets the number of callers that may submit again to 0.
    pub(super) const fn clear_may_ask(&mut self) {
        self.may_ask = 0;
    }

    /// Returns how many callers with a response may submit again.
    pub(super) const fn may_ask(&self) -> usize {
        self.may_ask
    }

    /// Returns how many callers may submit again at the time `now`: none if the last read is longer ago than
    /// [`ASK_AGAIN`].
    pub(super) fn may_ask_at(&mut self, now: Instant) -> usize {
        if now > self.read_at + ASK_AGAIN {
            self.may_ask = 0;
        }
        self.may_ask
    }

    /// Returns whether to skip a socket read, because the reads before it returned nothing; counts the skip.
    pub(super) const fn skip_read(&mut self) -> bool {
        let is_left_out = self.reads_to_skip > 0;
        self.reads_to_skip = self.reads_to_skip.saturating_sub(1);
        is_left_out
    }

    /// Counts a socket read; `has_found` says whether it returned responses.
    pub(super) const fn record_read(&mut self, has_found: bool) {
        self.empty_reads = if has_found { 0 } else { self.empty_reads + 1 };
        if self.empty_reads >= MAX_EMPTY_READS {
            // After the skipped reads, a single read that finds nothing is enough to skip `SKIPPED_READS` again.
            (self.empty_reads, self.reads_to_skip) = (MAX_EMPTY_READS - 1, SKIPPED_READS);
        }
    }

    /// Returns the number of bytes of responses to wait for together on each of `connections` connections, while
    /// `requests` requests are in flight; 0 to wait for any data.
    pub(super) fn wait_for(
        &mut self,
        session: &Session,
        requests: usize,
        connections: usize,
        now: Instant,
    ) -> u64 {
        self.coalescing.observe(session.stats().tasks_ended, self.received, now.into_std());
        self.awaited = self.coalescing.low_water(requests, connections).unwrap_or_default();
        self.awaited
    }

    /// Plans the next poll of the sockets that hold bytes back. The planned time is changed only after it has
    /// passed, because setting the alarm costs more than a poll that finds nothing.
    pub(super) fn plan_kept_poll(&mut self, now: Instant) {
        if self.kept_poll_due <= now {
            let due = self.read_at + KEPT_POLL_INTERVAL;
            self.kept_poll_due = if due > now { due } else { now + KEPT_POLL_INTERVAL };
        }
    }

    pub(super) const fn kept_poll_due(&self) -> Instant {
        self.kept_poll_due
    }

    /// Returns whether something was read within the last [`KEPT_POLL_INTERVAL`].
    pub(super) fn are_fresh(&self, now: Instant) -> bool {
        now < self.read_at + KEPT_POLL_INTERVAL
    }

    /// Records that a poll read `bytes` bytes that a socket had held back. If they are fewer than the awaited
    /// bytes, the wait was in vain, which lowers the number of bytes to wait for.
    pub(super) fn found_kept(&mut self, bytes: u64) {
        if bytes < self.awaited {
            self.coalescing.waited_in_vain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After four reads in a row that return nothing, 64 reads are skipped. Then a single read that returns
    /// nothing is enough to skip the next 64.
    #[test]
    fn where_looks_find_nothing_most_are_left_out() {
        let mut answers = Answers::new(Instant::now());
        let mut read = |finds| {
            let is_left_out = answers.skip_read();
            if !is_left_out {
                answers.record_read(finds);
            }
            !is_left_out
        };
        for _ in 0..100 {
            assert!(read(true) && read(false) && read(false) && read(false));
        }
        assert!(read(false));
        for _ in 0..3 {
            assert!((0..SKIPPED_READS).all(|_| !read(false)));
            assert!(read(false), "one is enough to see that it is as before");
        }
        assert!((0..SKIPPED_READS).all(|_| !read(true)));
        assert!(read(true) && read(false) && read(false) && read(false) && read(false));
        assert!(!read(true));
    }

    /// A caller that has its response is not counted if nothing was read for longer than [`ASK_AGAIN`].
    #[test]
    fn who_has_not_asked_for_a_while_does_not_ask() {
        let now = Instant::now();
        let mut answers = Answers::new(now);
        answers.read(48, now);
        answers.given();
        answers.given();
        answers.asked(1);
        assert_eq!(answers.may_ask_at(now + ASK_AGAIN), 1);
        assert_eq!(answers.may_ask_at(now + 2 * ASK_AGAIN), 0);
        assert_eq!(answers.may_ask(), 0);
        answers.asked(1);
        assert_eq!(answers.may_ask(), 0, "others ask too");
    }
}
