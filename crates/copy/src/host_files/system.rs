//! Implements the file operations with the operating system's files.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use super::{HostFiles, KeptFile, NewFile};
use crate::boxed::IoFuture;
use crate::ends::file::options::check_folder;
use crate::joined::blocking;

/// Prefix of the temporary names of new files.
const PREFIX: &str = ".iscsi-copy.";

/// The operating system's files.
#[derive(Debug)]
pub(crate) struct SystemFiles;

impl HostFiles for SystemFiles {
    fn read(&self, path: &Path, title: &str) -> io::Result<Option<Vec<u8>>> {
        read(&resolved(path)?, title)
    }

    /// Creates the new file under a random name that does not exist yet. At a predictable name another program
    /// could have put a file or a link, which would be overwritten. The new file gets the permissions of the
    /// old one; without an old file, only the user of this process has access.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let path = resolved(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        check_folder(&fs::canonicalize(folder)?)?;
        let opened = File::open(folder)?;
        let file = Builder::new().prefix(PREFIX).tempfile_in(folder)?;
        if let Ok(before) = fs::symlink_metadata(&path) {
            file.as_file().set_permissions(Permissions::from_mode(before.mode() & 0o777))?;
        }
        Ok(Box::new(NewSystemFile { file, path, folder: opened }))
    }

    /// Runs the work on tokio's blocking threads.
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> IoFuture<'_, ()> {
        Box::pin(blocking(move || {
            work();
            Ok(())
        }))
    }
}

#[derive(Debug)]
struct NewSystemFile {
    file: NamedTempFile,
    path: PathBuf,
    folder: File,
}

impl NewFile for NewSystemFile {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.as_file().sync_all()
    }

    fn take_place(self: Box<Self>) -> io::Result<Box<dyn KeptFile>> {
        let Self { file, path, folder } = *self;
        let file = file.persist(path).map_err(|error| error.error)?;
        Ok(Box::new(SystemFile { file, folder }))
    }
}

#[derive(Debug)]
struct SystemFile {
    file: File,
    folder: File,
}

impl KeptFile for SystemFile {
    /// Syncs the folder, which makes the name durable.
    fn sync_name(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn write_at(&self, text: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(text, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Reads a file; `None` if there is no file. The path may lead to a pipe. If the file does not begin with
/// `title`, only its beginning is read: it belongs to another program, and may be a disk.
pub(crate) fn read(path: &Path, title: &str) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    Read::by_ref(&mut file).take(title.len() as u64).read_to_end(&mut text)?;
    if text == title.as_bytes() {
        file.read_to_end(&mut text)?;
    }
    Ok(Some(text))
}

/// Follows a symbolic link to its file. Anything but a regular file is refused: a pipe would block, and a
/// device would be replaced by a file.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let invalid = |why| io::Error::new(ErrorKind::InvalidInput, why);
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path.to_owned()),
        metadata => metadata?,
    };
    if !metadata.is_symlink() {
        let why = "it is no regular file; name another one";
        return if metadata.is_file() { Ok(path.to_owned()) } else { Err(invalid(why)) };
    }
    match fs::canonicalize(path) {
        // A link to a missing file is refused: otherwise its creator would decide where a new file appears.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(invalid("it is a link that leads nowhere; name the file itself"))
        }
        resolved => self::resolved(&resolved?),
    }
}
