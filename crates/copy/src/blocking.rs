//! Runs blocking work outside the runtime's threads.

use std::io;

/// Runs work that may block on a thread of tokio's blocking pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}
