//! Keeps the commands of a procedure that are in flight.

use std::future::poll_fn;
use std::task::Poll;

use tokio::time::{Instant, timeout_at};

use crate::boxed::BoxFuture;

/// Commands in flight, each with its number in the procedure. Dropping this gives the commands up.
pub(super) struct InFlight<T>(Vec<(u32, BoxFuture<'static, T>)>);

impl<T> InFlight<T> {
    pub(super) fn push(&mut self, number: u32, answer: BoxFuture<'static, T>) {
        self.0.push((number, answer));
    }

    /// Returns the number and the result of the next command that ends; waits for ever if none is in flight.
    pub(super) async fn next(&mut self) -> (u32, T) {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Some((number, answer)) = self.0.get_mut(at)
                    && let Poll::Ready(answer) = answer.as_mut().poll(context)
                {
                    let number = *number;
                    drop(self.0.swap_remove(at));
                    return Poll::Ready((number, answer));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Returns the output of the future; `None` if the deadline comes first.
pub(super) async fn by<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}
