//! The file that a checkpoint is kept in.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use iscsi_initiator::device::IoFuture;

use crate::blocking::blocking;
use crate::checkpoint::{Checkpoint, CheckpointStore};
use crate::identity::Identity;
use crate::range_set::RangeSet;
use crate::replace::replace;

/// The file that the checkpoints of a copy are kept in, one in the place of the other. Whatever happens
/// while one is written, the file holds it or the one before.
#[derive(Clone, Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    source: Identity,
    destination: Identity,
}

impl CheckpointFile {
    /// A file for a copy between these ends. Nothing is read or written yet.
    pub fn new(path: impl Into<PathBuf>, source: Identity, destination: Identity) -> Self {
        Self { path: path.into(), source, destination }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What an earlier run has left there: the bytes that are flushed; `None` if there is no such file.
    ///
    /// # Errors
    /// Those of the system; [`InvalidData`](ErrorKind::InvalidData) with a
    /// [`CheckpointError`](crate::CheckpointError) if it is damaged, or of another copy.
    pub fn load(&self) -> io::Result<Option<RangeSet>> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
        // What is no text is not damaged more than other text: its first bad line is told.
        let checkpoint: Result<Checkpoint, _> = String::from_utf8_lossy(&text).parse();
        let checkpoint = checkpoint.map_err(invalid)?;
        checkpoint.check(&self.source, &self.destination).map_err(invalid)?;
        Ok(Some(checkpoint.flushed))
    }

    /// Keeps what is flushed by now, and what the source does not give, of so many bytes in all.
    ///
    /// # Errors
    /// Those of the system; then the file is as it was.
    pub fn store(&self, flushed: RangeSet, unreadable: RangeSet, total: u64) -> io::Result<()> {
        let (source, destination) = (self.source.clone(), self.destination.clone());
        let text = Checkpoint { source, destination, total, flushed, unreadable }.to_string();
        replace(&self.path, text.as_bytes())?;
        Ok(())
    }
}

/// On a thread that may block.
impl CheckpointStore for CheckpointFile {
    fn keep(&self, flushed: RangeSet, unreadable: RangeSet, total: u64) -> IoFuture<'_, ()> {
        let file = self.clone();
        Box::pin(blocking(move || file.store(flushed, unreadable, total)))
    }
}
