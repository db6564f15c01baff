//! A disk as a stream of bytes, with blocking calls.

use std::io::{self, Read, Seek, SeekFrom, Write};

use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::blocking::disk::Disk;

/// A [`Disk`] as a stream: [`Read`] reads ahead, and [`Write`] returns before the data is sent.
///
/// A write that fails makes a later call fail, and every call after that: the stream cannot be used again,
/// since data is missing. [`Disk::stream`] makes a new one. A read that fails leaves the position as it was,
/// so the next read begins there.
///
/// [`flush`](Write::flush) waits for all writes and then flushes the unit's cache: only after it is
/// the data on the medium. Reading ends at the capacity; a write beyond it fails with
/// `StorageFull`. Dropping the stream discards what is not written yet: flush it first.
#[derive(Debug)]
pub struct DiskStream {
    /// Declared first, so that it is dropped before the disk is logged out.
    stream: crate::DiskStream,
    disk: Disk,
}

impl Disk {
    /// Makes a stream over the disk, from `offset` on: [`Read`], [`Write`] and [`Seek`].
    pub fn stream(&self, offset: u64) -> DiskStream {
        DiskStream { stream: self.get_ref().stream(offset), disk: self.clone() }
    }
}

impl DiskStream {
    /// Returns the offset of the next byte to be read or written.
    pub const fn position(&self) -> u64 {
        self.stream.position()
    }

    /// Returns the disk of this stream.
    pub const fn disk(&self) -> &Disk {
        &self.disk
    }
}

impl Read for DiskStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.disk.block_on(self.stream.read(buffer))?
    }
}

impl Write for DiskStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.disk.block_on(self.stream.write(data))?
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.block_on(self.stream.flush())?
    }
}

impl Seek for DiskStream {
    fn seek(&mut self, seek: SeekFrom) -> io::Result<u64> {
        self.disk.block_on(self.stream.seek(seek))?
    }

    /// Returns the position without dropping what was read ahead, unlike a seek to that position.
    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position())
    }
}
