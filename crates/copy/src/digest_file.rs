//! The file that digests are kept in.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::digests::{self, Digests};
use crate::identity::Identity;
use crate::replace::replace;

/// The file that the [`Digests`] of a destination are kept in, from copy to copy. A copy adds to it what its flushes
/// have covered, and takes out of it what it is about to overwrite, before it does: whatever happens,
/// the file says of no block what it is not.
///
/// It knows nothing of what others write to the destination. Clones are the same file.
#[derive(Clone, Debug)]
pub struct DigestFile {
    path: PathBuf,
    known: Digests,
    journal: Arc<Mutex<Journal>>,
}

/// The end of the file, where lines are added.
#[derive(Debug)]
struct Journal {
    file: File,
    /// Bytes that are sound.
    len: u64,
    /// Their BLAKE3, but for the last check.
    sum: blake3::Hasher,
}

impl Digests {
    /// What a file says of this destination; `None` if there is no such file. It is only read.
    ///
    /// # Errors
    /// Those of the system; [`InvalidData`](ErrorKind::InvalidData) with a
    /// [`DigestsError`](crate::DigestsError) if it is damaged, or of another destination.
    pub fn load(path: impl AsRef<Path>, destination: &Identity) -> io::Result<Option<Self>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let parsed = Self::parse(&text).and_then(|(digests, was)| {
            digests::same(was, destination)?;
            Ok(digests)
        });
        parsed.map(Some).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }
}

impl DigestFile {
    /// The file at a path, for a copy from this source to this destination, with what it says by now. If
    /// there is none it is made, for blocks of `block_size` bytes as in [`Digests::new`]; one that is there
    /// keeps its own. The source is only noted.
    ///
    /// # Errors
    /// As [`Digests::load`]; then the file is as it was.
    pub fn open(
        path: impl Into<PathBuf>,
        source: &Identity,
        destination: &Identity,
        block_size: u64,
    ) -> io::Result<Self> {
        let path = path.into();
        let known = Digests::load(&path, destination)?.unwrap_or_else(|| Digests::new(block_size));
        let mut text = known.head(source, destination) + &known.lines();
        let mut sum = blake3::Hasher::new();
        sum.update(text.as_bytes());
        text += &digests::check(&sum);
        // A copy that still runs, or was killed in the middle of a line, adds to a file without a name.
        let file = replace(&path, text.as_bytes())?;
        let mut journal = Journal { file, len: 0, sum };
        journal.count(&text);
        Ok(Self { path, known, journal: Arc::new(Mutex::new(journal)) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it said when it was opened.
    pub const fn known(&self) -> &Digests {
        &self.known
    }

    /// The same file, as it is by now.
    pub(crate) fn knowing(self, known: Digests) -> Self {
        Self { known, ..self }
    }

    /// Knows nothing more, durably: where the destination turns out not to be what it should be, the next
    /// copy sends all.
    ///
    /// # Errors
    /// Those of the system.
    pub fn forget(&self) -> io::Result<()> {
        let mut lines = String::new();
        digests::unknown(&mut lines, &(0..u64::MAX));
        self.append(&lines)
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
        // What an attempt that failed has left must not stand between sound lines.
        self.file.set_len(self.len)?;
        self.file.seek(SeekFrom::Start(self.len))?;
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        self.sum = sum;
        self.count(&text);
        Ok(())
    }

    /// Counts text that ends in a check, which is in the next check.
    fn count(&mut self, text: &str) {
        self.len += text.len() as u64;
        let check = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
        self.sum.update(&text.as_bytes()[check..]);
    }
}
