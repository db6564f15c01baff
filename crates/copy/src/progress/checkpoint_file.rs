//! Stores a checkpoint in a file.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_block_device::RangeSet;

use super::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, TITLE};
use crate::boxed::IoFuture;
use crate::ends::identity::Identity;
use crate::host_files::replace::replace;
use crate::host_files::system::SystemFiles;
use crate::host_files::{HostFiles, blocking_on};

const SHORTENED: &str = "the destination is shorter than what it says to be there";

/// A file with the last checkpoint of a copy. If a crash interrupts a save, the file has either the new
/// checkpoint or the previous one.
#[derive(Clone, Debug)]
pub struct CheckpointFile {
    files: Arc<dyn HostFiles>,
    path: PathBuf,
    source: Identity,
    destination: Identity,
    known: Arc<Mutex<Known>>,
}

/// The data of the file besides the flushed ranges.
#[derive(Debug, Default)]
struct Known {
    /// Sessions that runs may have left; `None` if the file was not read yet.
    sessions: Option<Vec<String>>,
    /// The state in which an earlier run has left the destination, until this run begins.
    left: Option<Identity>,
}

impl CheckpointFile {
    /// Creates the store for a copy from this source to this destination. It does not read or write the file.
    pub fn new(path: impl Into<PathBuf>, source: Identity, destination: Identity) -> Self {
        Self::new_at(Arc::new(SystemFiles), path.into(), source, destination)
    }

    /// Creates the store for a file on a simulated host.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn new_on(
        files: Arc<dyn HostFiles>,
        path: impl Into<PathBuf>,
        source: Identity,
        destination: Identity,
    ) -> Self {
        Self::new_at(files, path.into(), source, destination)
    }

    fn new_at(
        files: Arc<dyn HostFiles>,
        path: PathBuf,
        source: Identity,
        destination: Identity,
    ) -> Self {
        Self { files, path, source, destination, known: Arc::default() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the checkpoint of an earlier run, and returns the flushed ranges; `None` if there is no such
    /// file.
    ///
    /// # Errors
    /// The errors of the system; [`InvalidData`](ErrorKind::InvalidData) with a
    /// [`CheckpointError`](crate::CheckpointError) if the file is damaged, belongs to another copy, or another
    /// program has written to a destination that is a file.
    pub fn load(&self) -> io::Result<Option<RangeSet>> {
        let Some(Checkpoint { flushed, left, sessions, .. }) = self.read()? else {
            return Ok(None);
        };
        // A checkpoint without flushed ranges needs no check, because everything is written again.
        if !flushed.is_empty() {
            let checked = self.destination.check_left(left.as_ref())?;
            checked.map_err(|doubt| invalid(CheckpointError::Doubtful(doubt.to_string())))?;
        }
        let mut known = self.lock();
        known.sessions.get_or_insert(sessions);
        known.left = left;
        Ok(Some(flushed))
    }

    /// Reads the checkpoint of an earlier run, as [`load`](Self::load) does, and writes it again; without one,
    /// writes a checkpoint in which nothing is done. The write shows before the copy begins whether the file
    /// can be written. `held` is the length of a destination that is a file, counted from the first byte of
    /// the copy; `total` is the length of the source. Returns `None` if there was no such file.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load) and [`store`](Self::store); [`InvalidData`](ErrorKind::InvalidData)
    /// if the destination is shorter than the flushed ranges of the checkpoint.
    pub fn resume(&self, held: Option<u64>, total: u64) -> io::Result<Option<RangeSet>> {
        let done = self.load()?;
        let last = done.as_ref().and_then(|done| done.iter().next_back());
        if held.zip(last).is_some_and(|(held, last)| held < last.end) {
            return Err(invalid(CheckpointError::Doubtful(SHORTENED.to_owned())));
        }
        self.store(done.clone().unwrap_or_default(), RangeSet::new(), total)?;
        Ok(done)
    }

    /// Stores the flushed ranges and the ranges that the source cannot read, of `total` bytes.
    ///
    /// # Errors
    /// The errors of the system; then the file is unchanged.
    pub fn store(&self, flushed: RangeSet, unreadable: RangeSet, total: u64) -> io::Result<()> {
        let (source, destination) = (self.source.clone(), self.destination.clone());
        let (sessions, left) = (self.sessions_by_now()?, self.lock().left.clone());
        let known = Checkpoint { source, destination, total, flushed, unreadable, left, sessions };
        self.write(&known)
    }

    fn write(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        replace(self.files.as_ref(), &self.path, checkpoint.to_string().as_bytes()).map(drop)
    }

    /// Reads the checkpoint in the file; `None` if there is no file.
    fn read(&self) -> io::Result<Option<Checkpoint>> {
        let Some(text) = self.files.read(&self.path, TITLE)? else { return Ok(None) };
        // Invalid UTF-8 needs no error of its own: the parser reports the first bad line.
        let checkpoint: Result<Checkpoint, _> = String::from_utf8_lossy(&text).parse();
        let checkpoint = checkpoint.map_err(invalid)?;
        checkpoint.check(&self.source, &self.destination).map_err(invalid)?;
        Ok(Some(checkpoint))
    }

    /// Returns the sessions that were set, or else the sessions in the file.
    fn sessions_by_now(&self) -> io::Result<Vec<String>> {
        if let Some(sessions) = &self.lock().sessions {
            return Ok(sessions.clone());
        }
        let earlier = match self.read() {
            // The file belongs to another copy, and is about to be replaced.
            Err(error) if error.kind() == ErrorKind::InvalidData => None,
            read => read?,
        };
        let earlier = earlier.map(|checkpoint| checkpoint.sessions).unwrap_or_default();
        Ok(self.lock().sessions.get_or_insert(earlier).clone())
    }

    /// Records in which state the destination is left.
    fn record_end(&self, sessions: Vec<String>) -> io::Result<()> {
        let Some(mut checkpoint) = self.read()? else { return Ok(()) };
        checkpoint.left = self.destination.left()?;
        checkpoint.sessions.clone_from(&sessions);
        self.write(&checkpoint)?;
        *self.lock() = Known { sessions: Some(sessions), left: checkpoint.left };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn invalid(error: CheckpointError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Runs each function on a thread that may block.
impl CheckpointStore for CheckpointFile {
    fn keep(&self, flushed: RangeSet, unreadable: RangeSet, total: u64) -> IoFuture<'_, ()> {
        let file = self.clone();
        Box::pin(blocking_on(&self.files, move || file.store(flushed, unreadable, total)))
    }

    fn sessions(&self) -> IoFuture<'_, Vec<String>> {
        let file = self.clone();
        Box::pin(blocking_on(&self.files, move || file.sessions_by_now()))
    }

    fn begin_run(&self, sessions: Vec<String>) {
        *self.lock() = Known { sessions: Some(sessions), left: None };
    }

    fn end_run(&self, sessions: Vec<String>) -> IoFuture<'_, ()> {
        let file = self.clone();
        Box::pin(blocking_on(&self.files, move || file.record_end(sessions)))
    }
}
