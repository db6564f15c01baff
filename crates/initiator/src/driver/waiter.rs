//! Defines the future of a request that a caller waits for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::driver::handle::DriverHandle;
use crate::driver::request::{Holds, Message, Request, RequestId, Sender, Submission};
use crate::driver::shared::Shared;
use crate::error::Error;

/// Future of the result of a request. Dropping it gives the request up: a request that was not sent yet is
/// removed, any other is aborted in the background.
#[derive(Debug)]
pub(crate) struct Waiter<'a, T> {
    id: RequestId,
    answer: oneshot::Receiver<Result<T, Error>>,
    driver: &'a DriverHandle,
    shared: &'a Shared,
    answered: bool,
}

impl<'a, T> Waiter<'a, T> {
    /// Hands a request to the driver.
    pub(crate) fn start(
        driver: &'a DriverHandle,
        shared: &'a Shared,
        holds: Holds,
        request: impl FnOnce(Sender<T>) -> Request,
    ) -> Self {
        let (sender, answer) = oneshot::channel();
        let id = driver.next_id();
        driver.submit(|| Submission { id, request: request(sender), holds });
        Self { id, answer, driver, shared, answered: false }
    }

    /// Gives the request up. The future then still returns how the request has ended.
    pub(crate) fn cancel(&self) {
        // If the driver is gone, the request has ended, and the message is dropped.
        self.driver.send(Message::Cancel(self.id));
    }
}

impl<T> Future for Waiter<'_, T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        self.answered = true;
        Poll::Ready(answer.unwrap_or_else(|_| Err(self.shared.reason_of_end())))
    }
}

impl<T> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        if !self.answered {
            self.cancel();
        }
    }
}
