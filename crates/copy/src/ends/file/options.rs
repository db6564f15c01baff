//! Options for opening a file for writing.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::stat::{major, minor};

use super::holders::{self, InUse};

/// Folder of device nodes.
const DEVICES: &str = "/dev";
/// The folder below [`DEVICES`] in which files may be created.
const SHARED_MEMORY: &str = "/dev/shm";
/// Largest number of symbolic links that are followed, as in the kernel.
const MAX_LINKS: usize = 40;

/// Options to open a file or a block device for writing.
///
/// A destination may hold other data. A block device is refused if it or one of its partitions is mounted,
/// used for swapping, a part of another device (RAID, LVM, multipath), or claimed by another program. A file
/// that a loop device shows is refused too. No file is created below `/dev`: a missing name there is a
/// mistake, and a file of that name would fill the memory of the host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FileOptions {
    reads: bool,
    creates: bool,
    overrides_use: bool,
}

impl FileOptions {
    /// Creates options that open only what exists and is not in use.
    pub const fn new() -> Self {
        Self { reads: false, creates: false, overrides_use: false }
    }

    /// Sets whether the file must be open for reading as well. Otherwise a file or a block device is open for
    /// reading only if its permissions allow it.
    #[must_use]
    pub const fn with_read(mut self, reads: bool) -> Self {
        self.reads = reads;
        self
    }

    /// Sets whether a missing file is created.
    #[must_use]
    pub const fn with_create(mut self, creates: bool) -> Self {
        self.creates = creates;
        self
    }

    /// Sets whether a file or a block device in use is opened nevertheless.
    #[must_use]
    pub const fn with_override_use(mut self, overrides_use: bool) -> Self {
        self.overrides_use = overrides_use;
        self
    }

    /// Opens a path, and returns whether a file was created. An existing file is not changed.
    ///
    /// # Errors
    /// The errors of the system; [`ResourceBusy`](ErrorKind::ResourceBusy) with an [`InUse`];
    /// [`NotFound`](ErrorKind::NotFound) for a file that would have to be created below `/dev`;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a character device that does not store data.
    pub fn open(self, path: impl AsRef<Path>) -> io::Result<(File, bool)> {
        let path = path.as_ref();
        match self.open_existing(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.creates => {}
            opened => return Ok((opened?, false)),
        }
        match create(path) {
            // Another program has created the file in the meantime.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok((self.open_existing(path)?, false))
            }
            created => Ok((created?, true)),
        }
    }

    fn open_existing(self, path: &Path) -> io::Result<File> {
        let metadata = fs::metadata(path)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if kind.is_char_device() && !self.overrides_use {
            check_character_device(metadata.rdev())?;
        }
        if !self.overrides_use {
            holders::check_loop_devices(&metadata)?;
        }
        let (has_places, is_claimed) =
            (kind.is_file() || kind.is_block_device(), kind.is_block_device());
        let file = self.open_as(path, has_places, is_claimed, &metadata)?;
        // The checks were made for a file of this type, so they do not hold if another file has taken its place.
        if file.metadata()?.file_type() != kind {
            return Err(io::Error::other("it was replaced while it was opened"));
        }
        Ok(file)
    }

    /// Opens a path. A FIFO is not opened for reading as well: its reader would then never see the end of the
    /// stream.
    fn open_as(
        self,
        path: &Path,
        has_places: bool,
        is_claimed: bool,
        metadata: &Metadata,
    ) -> io::Result<File> {
        let open = |reads: bool, is_claimed: bool| {
            let flags = if is_claimed { OFlag::O_EXCL.bits() } else { 0 };
            OpenOptions::new().read(reads).write(true).custom_flags(flags).open(path)
        };
        let open = |is_claimed: bool| match open(self.reads || has_places, is_claimed) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && !self.reads => {
                open(false, is_claimed)
            }
            opened => opened,
        };
        match open(is_claimed) {
            Err(error) if is_claimed && error.raw_os_error() == Some(libc::EBUSY) => {
                if self.overrides_use {
                    return open(false);
                }
                Err(InUse::of_device(metadata.rdev()).into())
            }
            opened => opened,
        }
    }
}

/// Creates a file, but refuses to create it below the folder of devices, even through a link.
fn create(path: &Path) -> io::Result<File> {
    let path = follow(path)?;
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        return Err(ErrorKind::IsADirectory.into());
    }
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or_else(|| Path::new(".")))?;
    check_folder(&folder)?;
    // A link that another program creates here in the meantime is not followed.
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(folder.join(name))?;
    // Syncs the folder to make the name durable; without the name the data of the file cannot be found.
    File::open(folder)?.sync_all()?;
    Ok(file)
}

/// Checks that files may be created in a folder, given by its canonical path.
pub(crate) fn check_folder(folder: &Path) -> io::Result<()> {
    if !folder.starts_with(DEVICES) || folder.starts_with(SHARED_MEMORY) {
        return Ok(());
    }
    let why =
        "there is no such device, and no file is made in /dev, where it would fill the memory";
    Err(io::Error::new(ErrorKind::NotFound, why))
}

/// Resolves the symbolic links of a path; the last one may lead to a missing file.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or_else(|| Path::new("/")).join(target),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::TooManyLinks.into())
}

/// Checks that a character device accepts data as a stream. Others do harm: a write to `/dev/mem` changes the
/// memory of the host, and one to `/dev/watchdog` may restart it.
fn check_character_device(number: u64) -> io::Result<()> {
    const MEMORY: u64 = 1;
    const TERMINALS: u64 = 4;
    const TERMINALS_OF_ALL: u64 = 5;
    const TAPES: u64 = 9;
    let is_known = match (major(number), minor(number)) {
        // Minor numbers of null, zero and full.
        (MEMORY, minor) => matches!(minor, 3 | 5 | 7),
        (TERMINALS | TERMINALS_OF_ALL | TAPES | 136..=143, _) => true,
        (major, minor) => {
            let subsystem = fs::read_link(format!("/sys/dev/char/{major}:{minor}/subsystem"));
            subsystem.is_ok_and(|subsystem| subsystem.ends_with("tty"))
        }
    };
    if is_known {
        return Ok(());
    }
    let why = "it is a character device, which keeps no data; name a block device, as /dev/sda or /dev/nvme0n1";
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::makedev;

    use super::*;

    #[test]
    fn terminals_tapes_and_null_take_data() {
        for (major, minor) in [(1, 3), (1, 5), (1, 7), (4, 1), (5, 0), (5, 1), (136, 0), (9, 0)] {
            assert!(check_character_device(makedev(major, minor)).is_ok(), "{major}:{minor}");
        }
        // Memory, random numbers, a watchdog, a SCSI generic device, an NVMe controller.
        for (major, minor) in [(1, 1), (1, 8), (10, 130), (21, 0), (240, 0)] {
            assert!(check_character_device(makedev(major, minor)).is_err(), "{major}:{minor}");
        }
    }

    #[test]
    fn the_folder_of_devices_is_for_devices() {
        for folder in ["/dev", "/dev/mapper", "/dev/disk/by-id"] {
            assert!(check_folder(Path::new(folder)).is_err(), "{folder}");
        }
        for folder in ["/", "/devices", "/home/dev", "/dev/shm", "/dev/shm/images"] {
            assert!(check_folder(Path::new(folder)).is_ok(), "{folder}");
        }
    }
}
