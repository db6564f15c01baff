//! Many futures at once, with a limit.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Maximum number of concurrent futures: enough to fill a link, and few enough to poll each at every wake.
pub(crate) const WIDTH: usize = 64;

/// Runs futures, some at a time in their order, to their end or the first error, and gives their
/// results in order. At an error the others are dropped.
pub(crate) async fn try_join_all<F, T, E>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    try_join(WIDTH, futures).await
}

/// Runs futures as [`try_join_all`] does, at most `width` at a time. The iterator is asked for one when its turn has
/// come.
pub(crate) async fn try_join<F, T, E>(
    width: usize,
    futures: impl IntoIterator<Item = F>,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut crowd =
        Crowd { width, waiting: futures.into_iter(), running: Vec::new(), results: Vec::new() };
    poll_fn(|context| crowd.poll(context)).await?;
    Ok(crowd.results.into_iter().flatten().collect())
}

struct Crowd<I, F, T> {
    width: usize,
    waiting: I,
    /// Futures with the place of their result.
    running: Vec<(usize, Pin<Box<F>>)>,
    results: Vec<Option<T>>,
}

impl<I, F, T, E> Crowd<I, F, T>
where
    I: Iterator<Item = F>,
    F: Future<Output = Result<T, E>>,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E>> {
        loop {
            self.start();
            if self.running.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !self.poll_running(context)? {
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

    /// Polls each future once; says whether any has ended.
    fn poll_running(&mut self, context: &mut Context<'_>) -> Result<bool, E> {
        let before = self.running.len();
        let mut failure = None;
        let results = &mut self.results;
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
        failure.map_or(Ok(self.running.len() < before), Err)
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

    #[tokio::test]
    async fn the_first_error_ends_it() {
        let futures = (0..5u32).map(|number| async move {
            if number == 3 {
                return Err("three");
            }
            std::future::pending::<()>().await;
            Ok(number)
        });
        assert_eq!(try_join_all(futures).await, Err("three"));
    }
}
