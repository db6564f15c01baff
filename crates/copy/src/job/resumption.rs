//! Resumes a copy, and saves its progress.

use std::path::PathBuf;

use iscsi_block_device::RangeSet;

use super::options::CopyOptions;
use crate::boxed::{BoxFuture, boxed};
use crate::ends::destination::Destination;
use crate::ends::source::Source;
use crate::error::CopyError;
use crate::joined::blocking;
use crate::progress::checkpoint_file::CheckpointFile;

/// A checkpoint that was read from a file, and its file, in which this run saves its progress.
#[derive(Clone, Debug)]
pub(crate) struct Resumption {
    file: CheckpointFile,
    /// The ranges that earlier runs have flushed.
    done: RangeSet,
    /// Whether the file had a checkpoint, even one without flushed ranges.
    is_continued: bool,
}

impl Resumption {
    /// Reads the checkpoint of a copy between this source and this destination, or creates an empty one.
    pub(crate) fn begin(
        path: PathBuf,
        source: &Source,
        destination: &Destination,
    ) -> BoxFuture<'static, Result<Self, CopyError>> {
        let (source, destination) = (source.clone(), destination.clone());
        boxed(async move {
            let work = move || Ok(Self::begin_now(path, &source, &destination));
            // The outer error means that the runtime shuts down.
            blocking(work).await.unwrap_or(Err(CopyError::Cancelled))
        })
    }

    fn begin_now(
        path: PathBuf,
        source: &Source,
        destination: &Destination,
    ) -> Result<Self, CopyError> {
        let from = source.identity().map_err(CopyError::Source)?;
        let to = destination.identity().map_err(CopyError::Destination)?;
        let file = CheckpointFile::new(path, from, to);
        let total = source.length().unwrap_or_default();
        let resumed = destination.file_len().and_then(|held| file.resume(held, total));
        let resumed = resumed.map_err(|cause| {
            let path = file.path().to_owned();
            CopyError::Checkpoint { path, cause }
        })?;
        let is_continued = resumed.is_some();
        Ok(Self { file, done: resumed.unwrap_or_default(), is_continued })
    }

    pub(crate) const fn done(&self) -> &RangeSet {
        &self.done
    }

    /// Returns the options of a copy that resumes from this checkpoint.
    pub(crate) fn applied_to(self, mut options: CopyOptions) -> CopyOptions {
        options.done.extend(self.done.iter());
        // An earlier run may have written data without a flush, so the destination does not count as zeros.
        options.destination_is_zero &= !self.is_continued;
        options.with_checkpoint(self.file)
    }
}
