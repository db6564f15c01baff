//! Runs the parts of one request concurrently.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use crate::stripe::MAX_MEMBERS;

/// Maximum number of futures that run concurrently. A write has at most one part per member, so its first poll
/// sends all parts. Of two writes of the same bytes, the write that was polled first then comes first on every
/// member. If two writes are polled at the same time on two threads, their order may differ from member to
/// member.
const WIDTH: usize = MAX_MEMBERS;

/// Runs all futures to completion, and returns their results in order. No future is running when it returns.
pub(crate) async fn join_all<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut crowd =
        Crowd { waiting: futures.into_iter(), running: Vec::new(), results: Vec::new() };
    poll_fn(|context| crowd.poll(context)).await;
    crowd.results.into_iter().flatten().collect()
}

struct Crowd<F: Future> {
    waiting: vec::IntoIter<F>,
    /// Running futures, each with the index of its result.
    running: Vec<(usize, F)>,
    results: Vec<Option<F::Output>>,
}

impl<F: Future + Unpin> Crowd<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let room = WIDTH.saturating_sub(self.running.len());
            for future in self.waiting.by_ref().take(room) {
                self.running.push((self.results.len(), future));
                self.results.push(None);
            }
            if self.running.is_empty() {
                return Poll::Ready(());
            }
            let (before, results) = (self.running.len(), &mut self.results);
            self.running.retain_mut(|(place, future)| match Pin::new(future).poll(context) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    if let Some(place) = results.get_mut(*place) {
                        *place = Some(result);
                    }
                    false
                }
            });
            if self.running.len() == before {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[tokio::test]
    async fn results_come_in_order_and_few_run_at_once() {
        let (running, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let futures = (0..500u32).map(|number| {
            let (running, most) = (Rc::clone(&running), Rc::clone(&most));
            Box::pin(async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                for _ in 0..=number % 7 {
                    tokio::task::yield_now().await;
                }
                running.set(running.get() - 1);
                number
            })
        });
        assert_eq!(join_all(futures.collect()).await, (0..500).collect::<Vec<_>>());
        assert_eq!(most.get(), WIDTH);
    }
}
