//! Runs the parts of one request concurrently, up to a limit.
//!
//! When a part fails, the parts in flight run to their ends, and the request ends after them. Dropping the parts
//! would abort their commands. An aborted command may have been the one that received the report of a reset, so
//! the next flush would have to report writes as lost that are not lost (`state/unit_state.rs`). A request that
//! fails takes no longer than one that succeeds, and when it has ended, none of its commands is in flight.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Maximum number of concurrent futures: enough to fill a link, and few enough to poll each at every wake.
pub(crate) const WIDTH: usize = 64;

/// Runs futures to their ends, up to [`WIDTH`] at a time, and returns their results in order. After an error no
/// further future begins; the first error is returned when all futures that have begun have ended.
pub(crate) async fn try_join_all<F, T, E>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    try_join(WIDTH, futures).await
}

/// Runs futures as [`try_join_all`] does, at most `width` at a time. Takes each future from the iterator only
/// when its turn has come.
pub(crate) async fn try_join<F, T, E>(
    width: usize,
    futures: impl IntoIterator<Item = F>,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let waiting = futures.into_iter();
    let (running, results) = (Vec::new(), Vec::new());
    let mut crowd = Crowd { width, waiting, running, results, failure: None };
    poll_fn(|context| crowd.poll(context)).await?;
    Ok(crowd.results.into_iter().flatten().collect())
}

struct Crowd<I, F, T, E> {
    width: usize,
    waiting: I,
    /// Futures, each with the index of its result.
    running: Vec<(usize, Pin<Box<F>>)>,
    results: Vec<Option<T>>,
    /// The first error.
    failure: Option<E>,
}

impl<I, F, T, E> Crowd<I, F, T, E>
where
    I: Iterator<Item = F>,
    F: Future<Output = Result<T, E>>,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E>> {
        loop {
            if self.failure.is_none() {
                self.start();
            }
            if self.running.is_empty() {
                return Poll::Ready(self.failure.take().map_or(Ok(()), Err));
            }
            if !self.poll_running(context) {
                return Poll::Pending;
            }
        }
    }

    fn start(&mut self) {
        let room = self.width.saturating_sub(self.running.len());
        for future in self.waiting.by_ref().take(room) {
            self.running.push((self.results.len(), Box::pin(future)));
            self.results.push(None);
        }
    }

    /// Polls each future once; returns whether any has ended.
    fn poll_running(&mut self, context: &mut Context<'_>) -> bool {
        let before = self.running.len();
        let (results, failure) = (&mut self.results, &mut self.failure);
        self.running.retain_mut(|(place, future)| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(value)) => {
                if let Some(result) = results.get_mut(*place) {
                    *result = Some(value);
                }
                false
            }
            Poll::Ready(Err(error)) => {
                failure.get_or_insert(error);
                false
            }
        });
        self.running.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[tokio::test]
    async fn results_come_in_order_and_few_run_at_once() {
        let running = Rc::new(Cell::new(0));
        let most = Rc::new(Cell::new(0));
        let futures = (0..500u32).map(|number| {
            let (running, most) = (Rc::clone(&running), Rc::clone(&most));
            async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                for _ in 0..=number % 7 {
                    tokio::task::yield_now().await;
                }
                running.set(running.get() - 1);
                Ok::<u32, ()>(number)
            }
        });
        assert_eq!(try_join_all(futures).await, Ok((0..500).collect()));
        assert_eq!(most.get(), WIDTH);
    }

    /// After the first error no further future begins, and those that have begun run to their ends, because
    /// dropping a command would abort it.
    #[tokio::test]
    async fn after_the_first_error_none_begins_and_those_that_have_begun_end() {
        let (begun, ended) = (Cell::new(0), Cell::new(0));
        let futures = (0..500_usize).map(|number| {
            begun.set(begun.get() + 1);
            let ended = &ended;
            async move {
                // The future that begins last ends first, so its error is the first one.
                for _ in 0..WIDTH - number {
                    tokio::task::yield_now().await;
                }
                ended.set(ended.get() + 1);
                if number < 3 || number == 63 { Err(number) } else { Ok(number) }
            }
        });
        assert_eq!(try_join_all(futures).await, Err(63));
        assert_eq!((begun.get(), ended.get()), (WIDTH, WIDTH));
    }
}
