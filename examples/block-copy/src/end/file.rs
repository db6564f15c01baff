//! Regular files and block devices: any range, at any time, by several threads.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iscsi_copy::{Destination, Device, FileDevice, Source};
use tokio::task::spawn_blocking;

use super::StreamEnd;
use crate::error::Error;
use crate::side::Side;
use iscsi_initiator::tuning::Size;

/// A regular file or a block device.
#[derive(Clone, Debug)]
pub struct FileEnd {
    device: FileDevice,
    side: Side,
    name: Arc<str>,
    identity: Identity,
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
    let opening = {
        let name = Arc::clone(&name);
        spawn_blocking(move || {
            let file = open(&path)?;
            let Some(identity) = identify(&file)? else {
                return Ok(Opened::Stream(StreamEnd::new(file, name)));
            };
            let device = FileDevice::from_file(file)?;
            Ok(Opened::Seekable(FileEnd { device, side, name, identity }))
        })
    };
    let opened = opening.await.map_err(io::Error::from).flatten();
    opened.map_err(|cause| Error::File { side, name, cause })
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
    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) const fn kind(&self) -> &'static str {
        if self.device.is_block_device() { "block device" } else { "file" }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    pub(super) fn to_source(&self) -> Source {
        Source::device(self.device.clone())
    }

    pub(super) fn to_destination(&self) -> Destination {
        Destination::file(self.device.clone())
    }
}

impl fmt::Display for FileEnd {
    /// The length of a regular file matters to its readers only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name)?;
        if self.device.is_block_device() || self.side == Side::Source {
            write!(f, ", {}", Size(self.device.capacity()))?;
        }
        Ok(())
    }
}
