//! Limits the time for which a server may send nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Rate of a slow store, bytes per second: each MiB that the requests in flight move extends the limit by a
/// second. The bytes of all these requests are added, because the server may execute the requests
/// concurrently, and send all replies at the end.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// How long a server has been silent while requests are in flight.
///
/// NBD has no ping, so that silence is the only symptom of a server that hangs. Each received byte counts as
/// a sign of life, and so does each byte that the socket accepts: over a slow link, a long write delays its
/// reply.
#[derive(Debug)]
pub(super) struct Silence {
    /// Longest silence; `None` for no limit.
    limit: Option<Duration>,
    /// Time of the last sign of life, or of the first request in flight after it.
    since: Instant,
    /// Number of requests in flight.
    requests: usize,
    /// Bytes that the requests in flight move.
    bytes: u64,
}

impl Silence {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, since: Instant::now(), requests: 0, bytes: 0 }
    }

    /// Counts a request that begins and moves `bytes` bytes.
    pub(super) fn begin(&mut self, bytes: u64) {
        if self.requests == 0 {
            self.since = Instant::now();
        }
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Counts the reply to a request that moved `bytes` bytes.
    pub(super) const fn end(&mut self, bytes: u64) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(super) fn sign_of_life(&mut self) {
        self.since = Instant::now();
    }

    /// Returns how long the server may be silent with the requests that are in flight.
    fn endured(&self) -> Option<Duration> {
        let more = Duration::from_secs(self.bytes / BYTES_PER_SECOND);
        self.limit.filter(|_| self.requests > 0).map(|limit| limit.saturating_add(more))
    }

    /// Returns when the silence exceeds the limit; `None` without requests in flight or without a limit.
    pub(super) fn end_of_patience(&self) -> Option<Instant> {
        self.endured().and_then(|endured| self.since.checked_add(endured))
    }

    /// Returns when to check the silence next. A request may begin at any time, so the check is repeated
    /// without requests too.
    pub(super) fn next_check(&self) -> Instant {
        const SELDOM: Duration = Duration::from_secs(24 * 3600);
        let now = Instant::now();
        self.end_of_patience().unwrap_or_else(|| now + self.limit.unwrap_or(SELDOM).min(SELDOM))
    }

    /// Returns the length of the silence if it exceeds the limit.
    pub(super) fn too_long(&self) -> Option<Duration> {
        let is_over = self.end_of_patience().is_some_and(|end| end <= Instant::now());
        is_over.then(|| self.since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_who_has_something_to_answer_is_silent() {
        let mut silence = Silence::new(Some(LIMIT));
        advance(10 * LIMIT).await;
        assert_eq!(silence.too_long(), None);
        assert_eq!(silence.next_check(), Instant::now() + LIMIT);
        silence.begin(0);
        assert_eq!(silence.next_check(), Instant::now() + LIMIT);
        advance(LIMIT - SECOND).await;
        silence.begin(0);
        assert_eq!(silence.too_long(), None);
        advance(SECOND).await;
        assert_eq!(silence.too_long(), Some(LIMIT), "a further request is no sign of life");
        silence.sign_of_life();
        assert_eq!(silence.too_long(), None);
        silence.end(0);
        silence.end(0);
        advance(2 * LIMIT).await;
        assert_eq!(silence.too_long(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_a_slow_store_long_is_waited_for() {
        let mut silence = Silence::new(Some(LIMIT));
        silence.begin(300 << 20);
        advance(359 * SECOND).await;
        assert_eq!(silence.too_long(), None);
        advance(SECOND).await;
        assert_eq!(silence.too_long(), Some(360 * SECOND));
        silence.end(300 << 20);
        silence.begin(0);
        advance(LIMIT).await;
        assert_eq!(silence.too_long(), Some(LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_anything_is_waited_for() {
        let mut silence = Silence::new(None);
        silence.begin(1);
        advance(1_000_000 * LIMIT).await;
        assert_eq!((silence.too_long(), silence.end_of_patience()), (None, None));
    }
}
