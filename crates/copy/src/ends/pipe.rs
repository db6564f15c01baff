//! Reads and writes files from their current position on: pipes, terminals, character devices.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use nix::sys::stat::SFlag;

use crate::joined::blocking;

/// A file that is read or written sequentially. Each read and each write runs on tokio's blocking threads.
/// Clones are the same file.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    file: Arc<File>,
    /// Bytes that were peeked at, and are read next.
    ahead: Arc<Mutex<Bytes>>,
}

impl Pipe {
    pub(crate) fn new(file: Arc<File>) -> Self {
        Self { file, ahead: Arc::default() }
    }

    fn ahead(&self) -> MutexGuard<'_, Bytes> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next `len` bytes, or fewer at the end, and keeps them for the next read.
    pub(crate) async fn peek(&self, len: usize) -> io::Result<Bytes> {
        let peeked = self.fill(BytesMut::zeroed(len)).await?.freeze();
        *self.ahead() = peeked.clone();
        Ok(peeked)
    }

    /// Returns the number of bytes from the position of a regular file to its end; `None` for any other file,
    /// and where the system does not report it.
    pub(crate) fn rest(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let read = (&*self.file).stream_position().ok()?.saturating_sub(self.ahead().len() as u64);
        Some(metadata.len().saturating_sub(read))
    }

    /// Fills the buffer. At the end of the file the returned buffer is shorter.
    pub(crate) async fn fill(&self, mut buffer: BytesMut) -> io::Result<BytesMut> {
        let file = Arc::clone(&self.file);
        let ahead = {
            let mut ahead = self.ahead();
            let len = ahead.len().min(buffer.len());
            ahead.split_to(len)
        };
        blocking(move || {
            let (known, rest) = buffer.split_at_mut(ahead.len());
            known.copy_from_slice(&ahead);
            let filled = known.len() + fill(&file, rest)?;
            buffer.truncate(filled);
            Ok(buffer)
        })
        .await
    }

    /// Writes all bytes. When this returns, the kernel has accepted all of them.
    pub(crate) async fn write(&self, data: Bytes) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        blocking(move || (&*file).write_all(&data)).await
    }

    /// Waits until the data is on the medium; returns immediately for a file without one, such as a pipe.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        let sync =
            move || if has_medium(file.metadata()?.mode()) { file.sync_all() } else { Ok(()) };
        blocking(sync).await
    }
}

/// Returns whether data written to a file of this mode (`st_mode`, inode(7)) is stored on a medium.
fn has_medium(mode: u32) -> bool {
    let kind = SFlag::from_bits_truncate(mode) & SFlag::S_IFMT;
    kind == SFlag::S_IFREG || kind == SFlag::S_IFBLK
}

/// Reads until the buffer is full or the file ends, and returns the number of bytes.
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
    use super::*;

    #[test]
    fn files_and_block_devices_have_a_medium() {
        const PERMISSIONS: u32 = 0o644;
        let kinds = [
            (SFlag::S_IFREG, true),
            (SFlag::S_IFBLK, true),
            (SFlag::S_IFIFO, false),
            (SFlag::S_IFCHR, false),
            (SFlag::S_IFSOCK, false),
        ];
        for (kind, expected) in kinds {
            assert_eq!(has_medium(kind.bits() | PERMISSIONS), expected, "{kind:?}");
        }
    }
}
