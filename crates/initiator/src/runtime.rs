//! Runs tasks and time limits on the runtime of the caller.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{CallerCause, Error};

/// Fails if there is no tokio runtime that can run tasks and timers.
pub(crate) fn require() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| Error::from(CallerCause::NoRuntime))
}

/// Maximum delay of a timer in a process that was not stopped. A longer delay means that the process was
/// stopped.
const PUNCTUAL: Duration = Duration::from_secs(1);
/// Time limits are split into parts of this length. A part in which the process was stopped does not count.
const PART: Duration = Duration::from_secs(10);

/// Returns the output of the future, unless it takes longer than `limit`. Time in which the process is
/// stopped (SIGSTOP, a machine that sleeps) does not count, because the future could not make progress then.
pub(crate) async fn within<T>(
    limit: Duration,
    mut future: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let mut left = limit;
    while !left.is_zero() {
        let part = left.min(PART);
        let deadline = Instant::now() + part;
        if let Ok(output) = timeout_at(deadline, &mut future).await {
            return Some(output);
        }
        if deadline.elapsed() <= PUNCTUAL {
            left -= part;
        }
    }
    None
}

/// A future that runs in a separate task.
#[derive(Debug)]
pub(crate) struct Task<T> {
    task: Result<JoinHandle<Result<T, Error>>, Error>,
    /// Whether the task continues when this value is dropped.
    is_detached: bool,
}

impl<T: Send + 'static> Task<T> {
    /// Spawns a task that is aborted when the returned value is dropped. Outside of a runtime the task does
    /// not run, and ends with [`CallerCause::NoRuntime`].
    pub(crate) fn spawn(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        let runtime = Handle::try_current().map_err(|_| Error::from(CallerCause::NoRuntime));
        Self { task: runtime.map(|runtime| runtime.spawn(future)), is_detached: false }
    }

    /// Spawns a task that runs to its end, even if the returned value is dropped.
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
            // The runtime of the task was shut down.
            Err(_) => Poll::Ready(Err(Error::closed())),
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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_is_stopped_does_not_count() {
        let begun = Instant::now();
        assert_eq!(within(LIMIT, pin!(pending::<()>())).await, None);
        assert_eq!(begun.elapsed(), LIMIT);
        for stopped in [PART * 2, LIMIT + PUNCTUAL / 2, LIMIT * 3] {
            let stop = async {
                // Lets the spawned wait begin first.
                tokio::task::yield_now().await;
                advance(stopped).await;
            };
            let (begun, waiting) = (Instant::now(), pin!(pending::<()>()));
            let (in_time, ()) = tokio::join!(within(LIMIT, waiting), stop);
            assert_eq!((in_time, begun.elapsed()), (None, stopped + LIMIT));
        }
    }
}
