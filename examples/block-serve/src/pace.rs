//! Measures the pace at which a client sends the data that it has announced, and takes the replies that it has
//! requested.
//!
//! Design: `docs/design/nbd-clients.md`.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// Least rate at which a client must send and take data, in bytes per second. A slower client would hold memory
/// for too long.
///
/// The help of `--max-clients`, `docs/reference/block-serve.md` and `docs/design/nbd-clients.md` state it as well.
pub(crate) const MIN_RATE: u64 = 64 << 10;
/// Time over which the rate is averaged. It is also the longest pause of a client.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// Maximum time that a stopping server waits for one client. A service manager kills the server after a while,
/// and then nothing would be flushed.
pub(crate) const LAST_PERIOD: Duration = Duration::from_secs(10);

/// Measures one direction of a connection while the client owes something: the rest of a request, the data of a
/// write, or room for a reply. Time in which the client owes nothing, or in which the server makes it wait,
/// does not count.
///
/// Each [`PERIOD`] is measured separately, so bytes that were fast in one period do not allow a pause in a
/// later one.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The client's duty in this direction, for the error message: a verb and its object.
    duty: (&'static str, &'static str),
    /// Time left in the current period.
    left: Duration,
    /// Bytes moved in the current period.
    moved: u64,
    /// Whether the current period is the last one, however fast the client is.
    is_last: bool,
}

impl Pace {
    /// Creates the pace of a client that sends what it has announced.
    pub(crate) const fn of_sending() -> Self {
        Self::new(("sends", "a request that it has begun"))
    }

    /// Creates the pace of a client that takes its replies.
    pub(crate) const fn of_taking() -> Self {
        Self::new(("takes", "its replies"))
    }

    const fn new(duty: (&'static str, &'static str)) -> Self {
        Self { duty, left: PERIOD, moved: 0, is_last: false }
    }

    /// Begins a new period. Called when the client owes nothing.
    pub(crate) const fn renew(&mut self) {
        if !self.is_last {
            *self = Self::new(self.duty);
        }
    }

    /// Shortens the period to [`LAST_PERIOD`] and makes it the last one, because the server stops.
    pub(crate) fn hurry(&mut self) {
        self.left = self.left.min(LAST_PERIOD);
        self.is_last = true;
    }

    /// Returns whether the server stops.
    pub(crate) const fn is_last(&self) -> bool {
        self.is_last
    }

    /// Waits for a transfer, and returns the number of bytes moved.
    ///
    /// # Errors
    /// The error of the transfer; [`io::ErrorKind::TimedOut`] if too few bytes were moved in a period.
    pub(crate) async fn wait(
        &mut self,
        transfer: impl Future<Output = io::Result<usize>>,
    ) -> io::Result<usize> {
        let mut transfer = std::pin::pin!(transfer);
        loop {
            let begun = Instant::now();
            match timeout(self.left, &mut transfer).await {
                Ok(moved) => {
                    let moved = moved?;
                    self.left = self.left.saturating_sub(begun.elapsed());
                    self.moved += moved as u64;
                    return Ok(moved);
                }
                Err(_) if self.is_last || self.moved < MIN_RATE * PERIOD.as_secs() => {
                    let ((verb, object), kib) = (self.duty, MIN_RATE >> 10);
                    let problem = format!("it {verb} less than {kib} KiB a second of {object}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
                }
                Err(_) => self.renew(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    async fn moved_after(pace: &mut Pace, seconds: u64, bytes: usize) -> io::Result<usize> {
        pace.wait(async {
            sleep(Duration::from_secs(seconds)).await;
            Ok(bytes)
        })
        .await
    }

    #[expect(clippy::cast_possible_truncation, reason = "4 MiB")]
    const ENOUGH: usize = (PERIOD.as_secs() * MIN_RATE) as usize;

    #[tokio::test(start_paused = true)]
    async fn a_period_with_enough_bytes_is_followed_by_another() {
        let mut pace = Pace::of_sending();
        for _ in 0..20 {
            moved_after(&mut pace, 30, ENOUGH / 2).await.unwrap();
        }
        moved_after(&mut pace, 59, 1).await.unwrap();
        let error = moved_after(&mut pace, 2, ENOUGH).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// The client sends 64 MiB in one second, and then nothing. It is disconnected after the next period.
    #[tokio::test(start_paused = true)]
    async fn a_fast_start_does_not_pay_for_a_long_pause() {
        let mut pace = Pace::of_taking();
        moved_after(&mut pace, 1, 64 << 20).await.unwrap();
        let begun = Instant::now();
        moved_after(&mut pace, 1000, 1).await.unwrap_err();
        assert!(begun.elapsed() < PERIOD * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_makes_a_client_wait_does_not_count() {
        let mut pace = Pace::of_sending();
        for _ in 0..50 {
            sleep(PERIOD).await;
            moved_after(&mut pace, 1, 1).await.unwrap();
        }
    }
}
