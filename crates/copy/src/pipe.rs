//! Files that are read or written from where they stand on: pipes, terminals, character devices.

use std::fs::{File, FileType};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::blocking::blocking;

/// A file of which only what comes next is read or written. Each read and each write is one visit to
/// a thread that may block; clones are the same file.
#[derive(Clone, Debug)]
pub(crate) struct Pipe(Arc<File>);

impl Pipe {
    pub(crate) const fn new(file: Arc<File>) -> Self {
        Self(file)
    }

    /// What is left of a regular file from the place on where its opener left it; `None` for any
    /// other, and where the system does not tell.
    pub(crate) fn rest(&self) -> Option<u64> {
        let metadata = self.0.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(metadata.len().saturating_sub((&*self.0).stream_position().ok()?))
    }

    /// Reads until the buffer is full, or the file ends: then it comes back shorter.
    pub(crate) async fn fill(&self, mut buffer: BytesMut) -> io::Result<BytesMut> {
        let file = Arc::clone(&self.0);
        blocking(move || {
            let filled = fill(&file, &mut buffer)?;
            buffer.truncate(filled);
            Ok(buffer)
        })
        .await
    }

    /// Writes all. When it has ended, the system has all of it.
    pub(crate) async fn write(&self, data: Bytes) -> io::Result<()> {
        let file = Arc::clone(&self.0);
        blocking(move || (&*file).write_all(&data)).await
    }

    /// Waits for the medium, where there is one.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        let file = Arc::clone(&self.0);
        blocking(
            move || {
                if has_medium(file.metadata()?.file_type()) { file.sync_all() } else { Ok(()) }
            },
        )
        .await
    }
}

/// Whether what is written to such a file ends up on a medium, after a while or at a sync.
fn has_medium(kind: FileType) -> bool {
    kind.is_file() || kind.is_block_device()
}

/// Reads until the buffer is full or the file ends, and says how much that was.
fn fill(mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use nix::sys::stat::{Mode, SFlag, makedev, mknod};

    use super::*;

    fn kind(path: &Path) -> FileType {
        fs::symlink_metadata(path).unwrap().file_type()
    }

    /// A block device that the system has, or one that is made at a path, as far as that is allowed.
    fn block_device(path: &Path) -> Option<FileType> {
        let kinds = fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().file_type().unwrap());
        let made = || mknod(path, SFlag::S_IFBLK, Mode::S_IRUSR, makedev(7, 0)).ok();
        kinds.into_iter().find(FileTypeExt::is_block_device).or_else(|| made().map(|()| kind(path)))
    }

    #[test]
    fn files_and_block_devices_have_a_medium() {
        let folder = std::env::temp_dir().join(format!("iscsi-copy-kinds-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, pipe, device) =
            (folder.join("file"), folder.join("pipe"), folder.join("device"));
        fs::write(&file, b"").unwrap();
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR).unwrap();
        let (file, pipe, device) = (kind(&file), kind(&pipe), block_device(&device));
        fs::remove_dir_all(&folder).unwrap();
        assert!(has_medium(file));
        assert!(device.is_none_or(has_medium));
        assert!(!has_medium(pipe) && !has_medium(kind(Path::new("/dev/null"))));
    }
}
