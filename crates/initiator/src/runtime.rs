//! The runtime that a caller is in.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::Error;

/// Refuses what spawns tasks or waits for a time where no runtime would run it.
pub(crate) fn require() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| Error::NoRuntime)
}

/// A future that runs by itself.
#[derive(Debug)]
pub(crate) struct Task<T> {
    task: Result<JoinHandle<Result<T, Error>>, Error>,
    /// Whether it runs to its end when this is dropped.
    is_detached: bool,
}

impl<T: Send + 'static> Task<T> {
    /// One that is dropped with this. Outside of a runtime it does not run, and ends with the error that says so.
    pub(crate) fn spawn(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime);
        Self { task: runtime.map(|runtime| runtime.spawn(future)), is_detached: false }
    }

    /// One that runs to its end, whether or not anybody waits for it.
    pub(crate) fn detached(
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Self {
        let mut task = Self::spawn(future);
        task.is_detached = true;
        task
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let task = match &mut self.task {
            Ok(task) => task,
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        match ready!(Pin::new(task).poll(context)) {
            Ok(result) => Poll::Ready(result),
            Err(end) if end.is_panic() => resume_unwind(end.into_panic()),
            // Its runtime is gone.
            Err(_) => Poll::Ready(Err(Error::Closed)),
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Ok(task) = &self.task
            && !self.is_detached
        {
            task.abort();
        }
    }
}
