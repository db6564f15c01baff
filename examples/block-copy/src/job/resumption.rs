//! What an earlier run has done, and where this one keeps what is done.

use std::io;
use std::path::Path;
use std::sync::Arc;

use iscsi_copy::{CheckpointFile, RangeSet};
use tokio::task::spawn_blocking;

use crate::args::ResumptionArgs;
use crate::end::End;
use crate::ends::Ends;
use crate::error::Error;

/// What an earlier run has done, and where this one keeps what is done.
#[derive(Clone, Debug)]
pub(super) struct Resumption {
    pub(super) file: CheckpointFile,
    pub(super) done: RangeSet,
    /// Whether an earlier run has left anything, and be it that nothing is done.
    is_continued: bool,
    total: u64,
}

/// Makes sure, before anything is opened, that no checkpoint is lost.
pub(super) fn check(args: &ResumptionArgs) -> Result<(), Error> {
    match &args.checkpoint {
        Some(path) if !args.resume && is_there(path) => Err(Error::CheckpointExists(name(path))),
        Some(_) | None => Ok(()),
    }
}

/// Whether there is a checkpoint to go on from, so that a destination must be there as well.
pub(super) fn is_continued(args: &ResumptionArgs) -> bool {
    args.resume && args.checkpoint.as_deref().is_some_and(is_there)
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

impl Resumption {
    /// Reads what an earlier run has left, and writes it once more, to find out whether that can be
    /// done. `None` where nothing is to be kept.
    pub(super) async fn begin(
        args: &ResumptionArgs,
        ends: &Ends,
        is_in_use: bool,
    ) -> Result<Option<Self>, Error> {
        let Some(path) = &args.checkpoint else { return Ok(None) };
        let (source, destination) = ends.identities(is_in_use)?;
        let file = CheckpointFile::new(path, source, destination);
        let total = ends.to_source().length().unwrap_or_default();
        // What a file of the host holds by now, from where the copy is written on.
        let held = match &ends.destination {
            End::File(file) => Some(file.capacity().saturating_sub(ends.place())),
            End::Unit(_) | End::Volume(_) | End::Export(_) | End::Stream(_) => None,
        };
        let resumption = spawn_blocking(move || {
            let left = file.resume(held, total)?;
            let is_continued = left.is_some();
            Ok(Self { file, done: left.unwrap_or_default(), is_continued, total })
        });
        let resumption = resumption.await.map_err(io::Error::from).flatten();
        resumption.map(Some).map_err(|cause| failed(path, cause))
    }

    /// Whether an earlier run has left something at the destination.
    pub(super) const fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// What went wrong with the checkpoint.
    pub(super) fn failed(&self, cause: io::Error) -> Error {
        failed(self.file.path(), cause)
    }

    /// Forgets what was done, where it has turned out that it is not.
    pub(super) async fn forget(&self) {
        let (file, total) = (self.file.clone(), self.total);
        // Whoever goes on from a checkpoint that says too much is told the same difference again.
        _ = spawn_blocking(move || file.store(RangeSet::new(), RangeSet::new(), total)).await;
    }
}

fn failed(path: &Path, cause: io::Error) -> Error {
    Error::Checkpoint { name: name(path), cause }
}

/// What people call a checkpoint.
fn name(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}
