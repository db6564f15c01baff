//! Regular files and block devices, of which several threads can read and write any range.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iscsi_copy::{Destination, Device, FileDevice, FileOptions, Identity as CopyIdentity, Source};
use iscsi_examples_common::standard_output;
use tokio::task::spawn_blocking;

use super::StreamEnd;
use super::medium::FileId;
use crate::error::Error;
use crate::side::Side;
use iscsi_tuner::Size;

/// A regular file or a block device.
#[derive(Clone, Debug)]
pub struct FileEnd {
    device: FileDevice,
    side: Side,
    name: Arc<str>,
    identity: FileId,
    /// The path, if the file was created for this copy.
    made: Option<Arc<Path>>,
    is_standard_output: bool,
}

/// The way in which a destination is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    /// Whether the destination will be verified.
    pub reads_back: bool,
    /// Whether a missing file is created.
    pub creates: bool,
    /// Whether a destination in use is written to.
    pub overrides_use: bool,
}

/// The kind of file at a path.
#[derive(Debug)]
pub(super) enum Opened {
    /// Any range can be read and written.
    Seekable(FileEnd),
    /// Bytes can only be read or written in sequence.
    Stream(StreamEnd),
}

/// Opens a path to read from.
pub(super) async fn open_source(path: PathBuf) -> Result<Opened, Error> {
    open(path, Side::Source, |path| Ok((File::open(path)?, false))).await
}

/// Opens the destination of a finished copy to read it back.
pub(super) async fn open_copy(path: PathBuf) -> Result<Opened, Error> {
    open(path, Side::Destination, |path| Ok((File::open(path)?, false))).await
}

/// Opens a path to write to. An existing file is not changed.
pub(super) async fn open_destination(path: PathBuf, access: Access) -> Result<Opened, Error> {
    let Access { reads_back, creates, overrides_use } = access;
    let options = FileOptions::new()
        .with_read(reads_back)
        .with_create(creates)
        .with_override_use(overrides_use);
    open(path, Side::Destination, move |path| options.open(path)).await
}

/// Opens a path with the function `open`, which returns the file, and whether the file was created.
async fn open(
    path: PathBuf,
    side: Side,
    open: impl FnOnce(&Path) -> io::Result<(File, bool)> + Send + 'static,
) -> Result<Opened, Error> {
    let name: Arc<str> = path.to_string_lossy().into();
    let opening = {
        let name = Arc::clone(&name);
        spawn_blocking(move || {
            let (file, is_new) = open(&path)?;
            let metadata = file.metadata()?;
            let Some(identity) = identify(&metadata)? else {
                return Ok(Opened::Stream(StreamEnd::new(file, name)));
            };
            let device = FileDevice::from_file(file)?;
            let made = is_new.then(|| path.into());
            let is_standard_output = standard_output::is(&metadata);
            let end = FileEnd { device, side, name, identity, made, is_standard_output };
            Ok(Opened::Seekable(end))
        })
    };
    let opened = opening.await.map_err(io::Error::from).flatten();
    opened.map_err(|cause| Error::File { side, name, cause: cause.into() })
}

/// Returns the identity of a file; `None` for a stream.
fn identify(metadata: &Metadata) -> io::Result<Option<FileId>> {
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if kind.is_block_device() {
        return Ok(Some(FileId::Device(metadata.rdev())));
    }
    Ok(kind.is_file().then(|| FileId::Inode(metadata.dev(), metadata.ino())))
}

/// Returns the bytes of a logical block of a block device, by its device number. A partition has the value of
/// its disk.
fn logical_block_size(number: u64) -> Option<u64> {
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let text = folder
        .ancestors()
        .take(2)
        .find_map(|folder| fs::read_to_string(folder.join("queue/logical_block_size")).ok());
    text?.trim().parse().ok()
}

impl FileEnd {
    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) const fn kind(&self) -> &'static str {
        if self.device.is_block_device() { "block device" } else { "file" }
    }

    pub(super) const fn id(&self) -> FileId {
        self.identity
    }

    pub(super) const fn is_standard_output(&self) -> bool {
        self.is_standard_output
    }

    /// Returns the length in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    /// Returns the length as text. A destination that is a regular file has no length yet: the copy sets it.
    pub(super) fn size(&self) -> Option<String> {
        let matters = self.device.is_block_device() || self.side == Side::Source;
        matters.then(|| Size(self.capacity()).to_string())
    }

    /// Removes the file if it was created for this copy and is still empty.
    pub(super) async fn remove_if_empty(&self) {
        let Self { made: Some(path), identity, .. } = self.clone() else { return };
        let removing = spawn_blocking(move || {
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.len() == 0 && identify(&metadata)? == Some(identity) {
                fs::remove_file(&path)?;
            }
            Ok::<_, io::Error>(())
        });
        // If the removal fails, an empty file remains, which does no harm.
        _ = removing.await;
    }

    /// Returns the bytes of a logical block of a block device.
    pub(super) fn block_size(&self) -> Option<u64> {
        match self.identity {
            FileId::Device(number) => logical_block_size(number),
            FileId::Inode(..) => None,
        }
    }

    /// Returns the device.
    pub(super) const fn device(&self) -> &FileDevice {
        &self.device
    }

    pub(super) const fn is_regular(&self) -> bool {
        !self.device.is_block_device()
    }

    pub(super) fn source_identity(&self) -> Result<CopyIdentity, Error> {
        self.identified(CopyIdentity::of_source(&self.device))
    }

    pub(super) fn source_in_use_identity(&self) -> Result<CopyIdentity, Error> {
        self.identified(CopyIdentity::of_source_in_use(&self.device))
    }

    pub(super) fn destination_identity(&self) -> Result<CopyIdentity, Error> {
        self.identified(CopyIdentity::of_destination(&self.device))
    }

    fn identified(&self, identity: io::Result<CopyIdentity>) -> Result<CopyIdentity, Error> {
        let name = Arc::clone(&self.name);
        identity.map_err(|cause| Error::File { side: self.side, name, cause: cause.into() })
    }

    pub(super) fn to_source(&self) -> Source {
        Source::device(self.device.clone())
    }

    pub(super) fn to_destination(&self) -> Destination {
        Destination::file(self.device.clone())
    }
}

impl fmt::Display for FileEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name)?;
        self.size().map_or(Ok(()), |size| write!(f, ", {size}"))
    }
}
