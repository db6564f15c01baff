//! How fast a client must send what it has announced, and take what it has asked for.
//!
//! Why it is so: `docs/design/nbd-clients.md`.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// The least that a client sends and takes, bytes a second. A slower client holds memory for too long.
pub(crate) const MIN_RATE: u64 = 64 << 10;
/// The time over which the rate is averaged. It is also the longest pause that a client may make.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// How long a server that stops waits for one client in all: a service manager kills it after a while, and then nothing is
/// flushed.
pub(crate) const LAST_PERIOD: Duration = Duration::from_secs(10);

/// Measures one direction of a connection while the client owes something: the rest of a request, the data of a write, or the
/// room for a reply. Time in which the client owes nothing, or in which the server makes it wait, does not count.
///
/// Each [`PERIOD`] begins where the one before has ended, so bytes that came fast do not pay for a later pause.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What the client does too slowly, for people.
    problem: &'static str,
    /// The rest of this period.
    left: Duration,
    /// Bytes that were moved in this period.
    moved: u64,
    /// No period follows, however fast the client is.
    is_last: bool,
}

impl Pace {
    /// A client sends what it has announced.
    pub(crate) const fn of_sending() -> Self {
        Self::new("it sends less than 64 KiB a second of a request that it has begun")
    }

    /// A client takes its replies.
    pub(crate) const fn of_taking() -> Self {
        Self::new("it takes less than 64 KiB a second of its replies")
    }

    const fn new(problem: &'static str) -> Self {
        Self { problem, left: PERIOD, moved: 0, is_last: false }
    }

    /// The client owes nothing, so a new period begins when it does.
    pub(crate) const fn renew(&mut self) {
        if !self.is_last {
            *self = Self::new(self.problem);
        }
    }

    /// The server stops.
    pub(crate) fn hurry(&mut self) {
        self.left = self.left.min(LAST_PERIOD);
        self.is_last = true;
    }

    /// Whether the server stops.
    pub(crate) const fn is_last(&self) -> bool {
        self.is_last
    }

    /// Waits for bytes to be moved, and returns their number.
    ///
    /// # Errors
    /// That of the transfer; [`io::ErrorKind::TimedOut`] if a period ends in which too few bytes were moved.
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
                    return Err(io::Error::new(io::ErrorKind::TimedOut, self.problem));
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

    const ENOUGH: usize = 60 * (64 << 10);

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

    /// 64 MiB at once, and then nothing.
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
