//! The files of a host that are kept of copies, behind a trait: so that they are also tried on a host that crashes.
//!
//! What of a file outlives a crash is what was synced, and a name does when its folder was. What outlives a process is all that it has
//! asked of the system.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use iscsi_initiator::device::IoFuture;

/// The files of a host, as far as what is kept of copies needs them. Each function but [`run`](Self::run) may block.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "the feature lets others name them")
)]
pub trait HostFiles: fmt::Debug + Send + Sync {
    /// What is in a file, if there is one; where the path is a link, in the file behind it. Of one that does not begin with
    /// `title`, the beginning.
    ///
    /// # Errors
    /// Those of the system; what is no regular file is refused.
    fn read(&self, path: &Path, title: &str) -> io::Result<Option<Vec<u8>>>;

    /// A new file without a name of its own, which is to take the place of the one at a path, or of the one behind the link
    /// there.
    ///
    /// # Errors
    /// Those of the system; what is no regular file is refused.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Does what may block, where that keeps nobody else waiting. It comes to its end also where nobody waits for it.
    ///
    /// # Errors
    /// When it does not come to its end.
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> IoFuture<'_, ()>;
}

/// A file that nobody sees yet. One that is dropped is gone.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "the feature lets others name them")
)]
pub trait NewFile: fmt::Debug + Send {
    /// Adds to it.
    ///
    /// # Errors
    /// Those of the system.
    fn write(&mut self, text: &[u8]) -> io::Result<()>;

    /// Makes what is in it durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&self) -> io::Result<()>;

    /// Gets the name that it was made for, in one step.
    ///
    /// # Errors
    /// Those of the system; then the file of that name is as it was.
    fn take_place(self: Box<Self>) -> io::Result<Box<dyn KeptFile>>;
}

/// A file that has its name.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "the feature lets others name them")
)]
pub trait KeptFile: fmt::Debug + Send {
    /// Makes its name durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_name(&self) -> io::Result<()>;

    /// Cuts it off, or adds zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Writes all of this text at a byte.
    ///
    /// # Errors
    /// Those of the system; then some of it may be there.
    fn write_at(&self, text: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what is in it durable.
    ///
    /// # Errors
    /// Those of the system, each of which it tells once.
    fn sync(&self) -> io::Result<()>;
}

/// Does work on files of a host that may block, and waits for what comes of it.
pub(crate) async fn blocking_on<T: Send + 'static>(
    files: &Arc<dyn HostFiles>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    files.run(Box::new(move || _ = answer.send(work()))).await?;
    answered.await.map_err(io::Error::other)?
}
