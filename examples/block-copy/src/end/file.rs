//! Regular files and block devices: any range, at any time, by several threads.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::blocking::blocking;
use super::{Destination, Source, StreamEnd};
use crate::error::Error;
use crate::pool::Pool;
use crate::side::Side;
use iscsi_initiator::tuning::Size;

/// A regular file or a block device.
#[derive(Clone, Debug)]
pub struct FileEnd {
    file: Arc<File>,
    side: Side,
    name: Arc<str>,
    /// Bytes there were when it was opened.
    length: u64,
    identity: Identity,
    pool: Pool,
}

/// What makes a file the same under another name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Identity {
    /// File system and number of a regular file.
    Inode(u64, u64),
    /// Number of a block device.
    Device(u64),
}

/// What stood behind a path.
#[derive(Debug)]
pub(super) enum Opened {
    /// Any range can be read and written.
    Seekable(FileEnd),
    /// Only what comes next.
    Stream(StreamEnd),
}

/// Opens a path to read from.
pub(super) async fn open_source(path: PathBuf) -> Result<Opened, Error> {
    open(path, Side::Source, |path| File::open(path)).await
}

/// Opens a path to write to; a file that is missing is created. Nothing is changed in one that
/// exists.
pub(super) async fn open_destination(path: PathBuf, verify: bool) -> Result<Opened, Error> {
    open(path, Side::Destination, move |path| {
        OpenOptions::new().read(verify).write(true).create(true).truncate(false).open(path)
    })
    .await
}

async fn open(
    path: PathBuf,
    side: Side,
    open: impl FnOnce(&Path) -> io::Result<File> + Send + 'static,
) -> Result<Opened, Error> {
    let name: Arc<str> = path.to_string_lossy().into();
    let failed = |cause| Error::File { side, name: Arc::clone(&name), cause };
    let file = blocking(move || open(&path)).await.map_err(failed)?;
    let identity = identify(&file).map_err(failed)?;
    let file = Arc::new(file);
    let Some(identity) = identity else {
        return Ok(Opened::Stream(StreamEnd::new(file, side, name)));
    };
    // A block device has no length but where its end is.
    let length = (&*file).seek(SeekFrom::End(0)).map_err(failed)?;
    Ok(Opened::Seekable(FileEnd { file, side, name, length, identity, pool: Pool::default() }))
}

/// Which file this is; `None` for a stream.
fn identify(file: &File) -> io::Result<Option<Identity>> {
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if kind.is_block_device() {
        return Ok(Some(Identity::Device(metadata.rdev())));
    }
    Ok(kind.is_file().then(|| Identity::Inode(metadata.dev(), metadata.ino())))
}

impl FileEnd {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn kind(&self) -> &'static str {
        if self.is_device() { "block device" } else { "file" }
    }

    const fn is_device(&self) -> bool {
        matches!(self.identity, Identity::Device(_))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    fn failed(&self, cause: io::Error) -> Error {
        Error::File { side: self.side, name: Arc::clone(&self.name), cause }
    }
}

impl fmt::Display for FileEnd {
    /// The length of a regular file matters to its readers only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name)?;
        if self.is_device() || self.side == Side::Source {
            write!(f, ", {}", Size(self.length))?;
        }
        Ok(())
    }
}

/// What one visit to another thread should fetch: the visit costs more than a short read.
const STRIDE: usize = 1 << 20;

impl Source for FileEnd {
    fn stride(&self) -> usize {
        STRIDE
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    fn is_sequential(&self) -> bool {
        false
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        let (file, pool) = (Arc::clone(&self.file), self.pool.clone());
        let read = move || {
            let mut buffer = pool.take(len);
            file.read_exact_at(&mut buffer, offset)?;
            Ok(pool.lend(buffer))
        };
        blocking(read).await.map_err(|cause| match cause.kind() == io::ErrorKind::UnexpectedEof {
            true => Error::Shrunk(Arc::clone(&self.name)),
            false => self.failed(cause),
        })
    }
}

impl Destination for FileEnd {
    fn capacity(&self) -> Option<u64> {
        self.is_device().then_some(self.length)
    }

    fn is_sequential(&self) -> bool {
        false
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let file = Arc::clone(&self.file);
        let write = move || file.write_all_at(&data, offset);
        blocking(write).await.map_err(|cause| self.failed(cause))
    }

    /// Cuts a regular file to the length that was copied, and waits until all is on the medium.
    async fn flush(&self, length: u64) -> Result<(), Error> {
        let (file, is_device) = (Arc::clone(&self.file), self.is_device());
        let flush = move || {
            if !is_device {
                file.set_len(length)?;
            }
            file.sync_all()
        };
        blocking(flush).await.map_err(|cause| self.failed(cause))
    }
}
