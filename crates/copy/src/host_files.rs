//! Abstracts the file operations for checkpoints and digests: the simulation implements them with a host that
//! crashes.
//!
//! After a crash of the host, the data of a file survives if the file was synced, and its name survives if
//! the folder was synced. After the death of a process, everything survives that it has passed to the system.
//!
//! Design: `docs/design/kept-files.md`.

pub(crate) mod replace;
pub(crate) mod system;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::boxed::IoFuture;

/// File operations for checkpoints and digests. Each function except [`run`](Self::run) may block.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "the feature lets others name them")
)]
pub trait HostFiles: fmt::Debug + Send + Sync {
    /// Reads a file, following a symbolic link; `None` if there is no file. If the file does not begin with
    /// `title`, only its beginning is read, because the path may lead to a disk.
    ///
    /// # Errors
    /// The errors of the system, and an error for anything but a regular file.
    fn read(&self, path: &Path, title: &str) -> io::Result<Option<Vec<u8>>>;

    /// Creates a file that will replace the one at `path`; if `path` is a symbolic link, the file that the
    /// link leads to.
    ///
    /// # Errors
    /// The errors of the system, and an error for anything but a regular file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Runs blocking work outside the runtime's threads. The work completes even if the returned future is dropped.
    ///
    /// Returns an error if the runtime shuts down.
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> IoFuture<'_, ()>;
}

/// A new file under a temporary name. It is removed when it is dropped.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "the feature lets others name them")
)]
pub trait NewFile: fmt::Debug + Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// The errors of the system.
    fn write(&mut self, text: &[u8]) -> io::Result<()>;

    /// Makes the data of the file durable.
    ///
    /// # Errors
    /// The errors of the system.
    fn sync(&self) -> io::Result<()>;

    /// Replaces the file at its path, atomically.
    ///
    /// # Errors
    /// The errors of the system; the old file is unchanged then.
    fn take_place(self: Box<Self>) -> io::Result<Box<dyn KeptFile>>;
}

/// A file at its final path.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "the feature lets others name them")
)]
pub trait KeptFile: fmt::Debug + Send {
    /// Makes the name of the file durable.
    ///
    /// # Errors
    /// The errors of the system.
    fn sync_name(&self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// The errors of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// The errors of the system. After an error, a part of the bytes may be written.
    fn write_at(&self, text: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the data of the file durable.
    ///
    /// # Errors
    /// The errors of the system. The system reports a failed write-back only once.
    fn sync(&self) -> io::Result<()>;
}

/// Runs blocking work on the files of a host, and returns its result.
pub(crate) async fn blocking_on<T: Send + 'static>(
    files: &Arc<dyn HostFiles>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    files.run(Box::new(move || _ = answer.send(work()))).await?;
    answered.await.map_err(io::Error::other)?
}
