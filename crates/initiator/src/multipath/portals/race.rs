//! Races several portals for the first TCP connection. Each attempt begins a head start after the previous
//! one (RFC 8305 §5).
//!
//! A portal that does not answer costs only its head start. Only connections are tried concurrently, not
//! logins: of two logins under one name, the later login ends the session of the earlier one (RFC 7143
//! §6.3.5). A connection without a login is closed, and leaves no session at the target.

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument;

use crate::driver::connector::Connected;
use crate::error::Error;

/// Limit of the wait for other portals after one has failed, in addition to their head starts.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// A connection to a portal, or the reason why there is none.
pub(crate) type Reached = Result<Connected, Error>;

type Attempt<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Connections to several portals that are being opened. Dropping the race closes them.
pub(crate) struct PortalRace<T = Connected> {
    /// Time until the next portal is tried as well.
    head_start: Duration,
    /// Portals that were not tried yet.
    waiting: VecDeque<(usize, Attempt<T>)>,
    attempts: JoinSet<(usize, Result<T, Error>)>,
    /// Portals that were not tried yet or are being tried.
    portals: BTreeSet<usize>,
}

impl<T: Send + 'static> PortalRace<T> {
    pub(crate) fn new(head_start: Duration) -> Self {
        Self {
            head_start,
            waiting: VecDeque::new(),
            attempts: JoinSet::new(),
            portals: BTreeSet::new(),
        }
    }

    /// Adds portals to try, in this order, except those that are already in the race.
    pub(crate) fn add<F>(&mut self, portals: &[usize], reach: impl Fn(usize) -> F)
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        for portal in portals {
            if self.portals.insert(*portal) {
                self.waiting.push_back((*portal, Box::pin(reach(*portal))));
            }
        }
    }

    /// Returns the next result like [`next`](Self::next), but waits only until the remaining portals have had
    /// their head starts, and for [`MAX_DELAY`] more. Returns `None` after that; portals that did not answer in
    /// time stay in the race.
    pub(crate) async fn next_soon(&mut self) -> Option<(usize, Result<T, Error>)> {
        let head_starts = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        let limit = self.head_start.saturating_mul(head_starts).saturating_add(MAX_DELAY);
        timeout(limit, self.next()).await.ok().flatten()
    }

    /// Returns the next portal that was reached or has failed; `None` after the last portal. Each call
    /// immediately starts one more attempt, because the caller could not use the earlier results. Cancel
    /// safe: dropping the future loses no result.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<T, Error>)> {
        self.begin();
        loop {
            let answer = self.attempts.join_next();
            let ended = if self.waiting.is_empty() {
                answer.await?
            } else {
                match timeout(self.head_start, answer).await {
                    Ok(ended) => ended?,
                    Err(_) => {
                        self.begin();
                        continue;
                    }
                }
            };
            // An attempt that panics returns no index, and is not tried again.
            let Ok((portal, reached)) = ended else { continue };
            self.portals.remove(&portal);
            return Some((portal, reached));
        }
    }

    fn begin(&mut self) {
        if let Some((portal, attempt)) = self.waiting.pop_front() {
            self.attempts.spawn(async move { (portal, attempt.await) }.in_current_span());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const HEAD_START: Duration = Duration::from_millis(250);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// Starts a race of portals that answer after these times. A portal with an odd number of milliseconds
    /// answers with an error.
    fn race(answers: [Duration; 3]) -> PortalRace<usize> {
        let mut race = PortalRace::new(HEAD_START);
        race.add(&[0, 1, 2], |portal| async move {
            sleep(answers[portal]).await;
            if answers[portal].as_millis() % 2 == 1 { Err(Error::closed()) } else { Ok(portal) }
        });
        race
    }

    async fn order(mut race: PortalRace<usize>) -> Vec<usize> {
        let mut order = Vec::new();
        while let Some((portal, _)) = race.next().await {
            order.push(portal);
        }
        order
    }

    #[tokio::test(start_paused = true)]
    async fn a_portal_that_does_not_answer_costs_its_head_start() {
        let begun = Instant::now();
        let mut dark = race([seconds(10), Duration::from_millis(100), Duration::ZERO]);
        assert_eq!(dark.next().await.map(|(portal, _)| portal), Some(1));
        assert_eq!(begun.elapsed(), Duration::from_millis(350));
        assert!(dark.attempts.len() == 1 && dark.waiting.len() == 1, "the third one was not tried");
        assert_eq!(order(dark).await, [2, 0]);
    }

    /// Portals that answer equally fast are reached in their order, because each has a head start. This also
    /// holds over a long link.
    #[tokio::test(start_paused = true)]
    async fn the_first_is_preferred_where_all_answer() {
        assert_eq!(order(race([seconds(1); 3])).await, [0, 1, 2]);
        let all_dark = race([seconds(10); 3]);
        let begun = Instant::now();
        assert_eq!(order(all_dark).await, [0, 1, 2]);
        assert_eq!(begun.elapsed(), seconds(10) + 2 * HEAD_START);
    }

    #[tokio::test(start_paused = true)]
    async fn a_portal_that_refuses_costs_nothing() {
        let begun = Instant::now();
        let mut race = race([Duration::from_millis(1), Duration::from_millis(3), Duration::ZERO]);
        assert!(race.next().await.unwrap().1.is_err());
        assert!(race.next().await.unwrap().1.is_err());
        assert_eq!(race.next().await.unwrap().1.unwrap(), 2);
        assert_eq!(begun.elapsed(), Duration::from_millis(4));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_fail_are_tried_again_beside_those_that_do_not_answer() {
        let mut race = race([seconds(10), Duration::from_millis(1), Duration::from_millis(1)]);
        let begun = Instant::now();
        for _ in 0..2 {
            assert!(race.next_soon().await.unwrap().1.is_err());
        }
        assert!(race.next_soon().await.is_none());
        assert!(begun.elapsed() < seconds(3));
        race.add(&[0, 1], |portal| async move { Ok(portal) });
        assert_eq!(race.next().await.unwrap().0, 1, "the first one is still being tried");
        assert_eq!(race.next().await.unwrap().0, 0);
        assert!(race.next().await.is_none());
    }
}
