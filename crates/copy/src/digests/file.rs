//! The file that stores digests.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::digests::{self, Digests, Kept};
use crate::ends::identity::Identity;
use crate::host_files::replace::replace;
use crate::host_files::system::{SystemFiles, read};
use crate::host_files::{HostFiles, KeptFile, blocking_on};

/// The file that stores the [`Digests`] of a destination, from copy to copy. A copy adds the blocks that its
/// flushes have covered, and removes blocks before it overwrites them. So no record in the file is wrong,
/// even after a crash.
///
/// The file does not record writes by other programs to the destination. Clones are the same file.
#[derive(Clone, Debug)]
pub struct DigestFile {
    files: Arc<dyn HostFiles>,
    path: PathBuf,
    known: Digests,
    journal: Arc<Mutex<Journal>>,
    destination: Identity,
    /// Sessions that copies may have left at the destination.
    sessions: Arc<Mutex<Vec<String>>>,
    /// Whether no copy has written to the destination since the file was made.
    is_untouched: Arc<AtomicBool>,
    doubt: Option<String>,
}

/// The end of the file, where lines are added.
#[derive(Debug)]
struct Journal {
    file: Box<dyn KeptFile>,
    /// Number of bytes that are valid.
    len: u64,
    /// BLAKE3 of the valid bytes, which include the last check.
    sum: blake3::Hasher,
}

impl Digests {
    /// Reads the digests of this destination from a file; `None` if there is no such file. The file is not
    /// changed.
    ///
    /// # Errors
    /// The errors of the system; [`InvalidData`](ErrorKind::InvalidData) with a
    /// [`DigestsError`](crate::DigestsError) if it is damaged, or of another destination.
    pub fn load(path: impl AsRef<Path>, destination: &Identity) -> io::Result<Option<Self>> {
        let Some(text) = read(path.as_ref(), digests::TITLE)? else { return Ok(None) };
        parse(&text, destination).map(|kept| Some(kept.digests))
    }

    /// Loads the digests from the files of a simulated host.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn load_on(
        files: &dyn HostFiles,
        path: impl AsRef<Path>,
        destination: &Identity,
    ) -> io::Result<Option<Self>> {
        let Some(text) = files.read(path.as_ref(), digests::TITLE)? else { return Ok(None) };
        parse(&text, destination).map(|kept| Some(kept.digests))
    }
}

/// Parses a file of digests. A file of another destination is an error.
fn parse(text: &[u8], destination: &Identity) -> io::Result<Kept> {
    let parsed = Digests::parse(text).and_then(|kept| {
        digests::same(&kept.destination, destination)?;
        Ok(kept)
    });
    parsed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

impl DigestFile {
    /// Opens and reads the file at a path, for a copy from this source to this destination. A missing file is
    /// created, for blocks of `block_size` bytes as in [`Digests::new`]; an existing one keeps its block
    /// size. The source is only recorded. If another program has written to a destination that is a file, its
    /// digests are not used: see [`doubt`](Self::doubt).
    ///
    /// # Errors
    /// The errors of [`Digests::load`]; the file is unchanged then.
    pub fn open(
        path: impl Into<PathBuf>,
        source: &Identity,
        destination: &Identity,
        block_size: u64,
    ) -> io::Result<Self> {
        Self::open_at(Arc::new(SystemFiles), path.into(), source, destination, block_size)
    }

    /// Opens the file on a simulated host.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn open_on(
        files: Arc<dyn HostFiles>,
        path: impl Into<PathBuf>,
        source: &Identity,
        destination: &Identity,
        block_size: u64,
    ) -> io::Result<Self> {
        Self::open_at(files, path.into(), source, destination, block_size)
    }

    fn open_at(
        files: Arc<dyn HostFiles>,
        path: PathBuf,
        source: &Identity,
        destination: &Identity,
        block_size: u64,
    ) -> io::Result<Self> {
        let earlier = files.read(&path, digests::TITLE)?;
        let earlier = earlier.map(|text| parse(&text, destination)).transpose()?;
        let is_untouched = Arc::new(AtomicBool::new(earlier.is_none()));
        let (mut sessions, mut doubt) = (Vec::new(), None);
        let known = match earlier {
            None => Digests::new(block_size),
            Some(Kept { digests, left, sessions: told, .. }) => {
                sessions = told;
                let checked = destination.check_left(left.as_ref())?;
                doubt =
                    checked.err().map(|doubt| doubt.to_string()).filter(|_| !digests.is_empty());
                if doubt.is_some() { Digests::new(digests.block_size()) } else { digests }
            }
        };
        let mut text = known.head(source, destination) + &known.lines();
        if !sessions.is_empty() {
            text += &digests::sessions(&sessions);
        }
        // Records the current state of the destination, which stays the same until a copy begins.
        if doubt.is_none()
            && !known.is_empty()
            && let Some(left) = destination.now()?
        {
            text += &digests::left(&left);
        }
        let mut sum = blake3::Hasher::new();
        sum.update(text.as_bytes());
        text += &digests::check(&sum);
        // Replaces the file: a copy that still runs, or that was killed while it wrote a line, adds to the
        // old file, which has no name any more.
        let file = replace(files.as_ref(), &path, text.as_bytes())?;
        let mut journal = Journal { file, len: 0, sum };
        journal.count(&text);
        let (journal, sessions) = (Arc::new(Mutex::new(journal)), Arc::new(Mutex::new(sessions)));
        let destination = destination.clone();
        Ok(Self { files, path, known, journal, destination, sessions, is_untouched, doubt })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the digests that the file had when it was opened.
    pub const fn known(&self) -> &Digests {
        &self.known
    }

    /// Returns why the digests in the file are not used; `None` if they are used.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// Returns the sessions that copies may have left at the destination: see
    /// [`Device::leaves`](crate::Device::leaves).
    pub(crate) fn sessions(&self) -> Vec<String> {
        self.lock_sessions().clone()
    }

    /// Records durably, before a copy writes anything, that it may leave these sessions.
    pub(crate) fn begin_run(&self, sessions: Vec<String>) -> io::Result<()> {
        self.append(&digests::sessions(&sessions))?;
        *self.lock_sessions() = sessions;
        Ok(())
    }

    /// Returns the lines for the end of a copy, successful or not. After the copy, only `sessions` may have
    /// requests in flight.
    pub(crate) fn end_lines(&self, is_complete: bool, sessions: &[String]) -> io::Result<String> {
        let mut lines = if is_complete { digests::end() } else { String::new() };
        if *self.lock_sessions() != sessions {
            lines += &digests::sessions(sessions);
            sessions.clone_into(&mut self.lock_sessions());
        }
        if let Some(left) = self.destination.left()? {
            lines += &digests::left(&left);
        }
        Ok(lines)
    }

    fn lock_sessions(&self) -> MutexGuard<'_, Vec<String>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file with `known` as its digests.
    pub(crate) fn knowing(self, known: Digests) -> Self {
        Self { known, ..self }
    }

    /// Returns whether this is the first copy that uses the file, and marks the file as used. The copy is the
    /// first one only if this process has created the file and nothing was written to the destination since.
    /// An empty file is not enough: a copy may have been killed before its first flush, or all digests were
    /// [forgotten](Self::forget).
    pub(crate) fn begin_first(&self) -> bool {
        self.is_untouched.swap(false, Ordering::Relaxed)
    }

    /// Removes all digests, durably. Call it if the destination turns out to hold wrong data: the next copy
    /// then sends everything.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn forget(&self) -> io::Result<()> {
        self.is_untouched.store(false, Ordering::Relaxed);
        let mut lines = String::new();
        digests::unknown(&mut lines, &(0..u64::MAX));
        self.append(&lines)
    }

    /// Runs blocking work on the file.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let file = self.clone();
        blocking_on(&self.files, move || work(&file)).await
    }

    /// Adds lines, durably; returns them with the result.
    pub(crate) async fn save(self, lines: String) -> (String, io::Result<()>) {
        let saving = self.blocking(move |file| {
            let result = file.append(&lines);
            Ok((lines, result))
        });
        saving.await.unwrap_or_else(|error| (String::new(), Err(error)))
    }

    /// Adds lines, durably.
    pub(crate) fn append(&self, lines: &str) -> io::Result<()> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).append(lines)
    }
}

impl Journal {
    fn append(&mut self, lines: &str) -> io::Result<()> {
        let mut sum = self.sum.clone();
        sum.update(lines.as_bytes());
        let text = format!("{lines}{}", digests::check(&sum));
        // Truncates the partial lines of a failed save, which must not stand between valid lines.
        self.file.set_len(self.len)?;
        self.file.write_at(text.as_bytes(), self.len)?;
        self.file.sync()?;
        self.sum = sum;
        self.count(&text);
        Ok(())
    }

    /// Extends the checksum by text that ends in a check; the next check covers that check too.
    fn count(&mut self, text: &str) {
        self.len += text.len() as u64;
        let check = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
        self.sum.update(&text.as_bytes()[check..]);
    }
}
