//! Reads and writes the checkpoint, which records what earlier runs have copied.

use std::io;
use std::path::Path;
use std::sync::Arc;

use iscsi_copy::{CheckpointFile, RangeSet};
use tokio::task::spawn_blocking;

use crate::args::ResumptionArgs;
use crate::end::End;
use crate::ends::Ends;
use crate::error::Error;

/// Progress of earlier runs, and the checkpoint file in which this run records its own.
#[derive(Clone, Debug)]
pub(super) struct Resumption {
    pub(super) file: CheckpointFile,
    pub(super) done: RangeSet,
    /// Whether there was a checkpoint, even one without copied ranges.
    is_continued: bool,
    total: u64,
}

/// Checks, before anything is opened, that the copy does not overwrite an existing checkpoint.
pub(super) fn check(args: &ResumptionArgs) -> Result<(), Error> {
    match &args.checkpoint {
        Some(path) if !args.resume && is_there(path) => Err(Error::CheckpointExists(name(path))),
        Some(_) | None => Ok(()),
    }
}

/// Returns whether there is a checkpoint to continue from. If so, the destination must exist as well.
pub(super) fn is_continued(args: &ResumptionArgs) -> bool {
    args.resume && args.checkpoint.as_deref().is_some_and(is_there)
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

impl Resumption {
    /// Reads the checkpoint of an earlier run, and writes it again to check that it can be written. Returns
    /// `None` without `--checkpoint`.
    pub(super) async fn begin(
        args: &ResumptionArgs,
        ends: &Ends,
        is_in_use: bool,
    ) -> Result<Option<Self>, Error> {
        let Some(path) = &args.checkpoint else { return Ok(None) };
        let (source, destination) = ends.identities(is_in_use)?;
        let file = CheckpointFile::new(path, source, destination);
        let total = ends.to_source().length().unwrap_or_default();
        // Length of a destination file from the start of the copy on: bytes beyond it cannot have been copied.
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

    /// Returns whether an earlier run has written to the destination.
    pub(super) const fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Returns the error for a checkpoint that cannot be written.
    pub(super) fn failed(&self, cause: io::Error) -> Error {
        failed(self.file.path(), cause)
    }

    /// Removes the recorded ranges, after the destination was found to differ from the source.
    pub(super) async fn forget(&self) {
        let (file, total) = (self.file.clone(), self.total);
        // An error is ignored: a run that continues from the old checkpoint finds the same difference
        // again.
        _ = spawn_blocking(move || file.store(RangeSet::new(), RangeSet::new(), total)).await;
    }
}

fn failed(path: &Path, cause: io::Error) -> Error {
    Error::Checkpoint { name: name(path), cause }
}

/// Returns the path of a checkpoint as readable text.
fn name(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}
