//! Waits for tasks and threads: a panic of one of them continues in the code that waits for it.

use std::io;
use std::panic::resume_unwind;

use tokio::task::{JoinError, spawn_blocking};

/// Returns the result of a task; `None` if the task was cancelled, which happens when the runtime shuts down.
///
/// # Panics
/// If the task has panicked.
pub(crate) fn joined<T>(result: Result<T, JoinError>) -> Option<T> {
    match result.map_err(JoinError::try_into_panic) {
        Ok(result) => Some(result),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

/// Runs work that may block on a thread of tokio's blocking pool.
///
/// # Panics
/// If the work panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let result = joined(spawn_blocking(work).await);
    result.unwrap_or_else(|| Err(io::Error::other("the runtime shuts down")))
}
