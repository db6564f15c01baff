//! A disk as a stream of bytes whose calls wait.

use std::io::{self, Read, Seek, SeekFrom, Write};

use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::blocking::disk::Disk;

/// A [`Disk`] as a stream: [`Read`] reads ahead, [`Write`] writes behind.
///
/// An error of a write shows at a later call, and at every call from then on: what was not written stays
/// missing, so the stream is done for; [`Disk::stream`] gives another. A read that fails moves nothing: the next one
/// begins at the same position. [`flush`](Write::flush) waits for all writes and then flushes the unit's cache, so only
/// after it is the data on the medium. Reading ends at the capacity; writing at it is an error, `StorageFull`. Dropping
/// the stream gives up what is not written yet: flush it first.
#[derive(Debug)]
pub struct DiskStream {
    /// Declared first, so that it is dropped before the disk is logged out.
    stream: crate::DiskStream,
    disk: Disk,
}

impl Disk {
    /// A stream over the disk, from `offset` on: [`Read`], [`Write`] and [`Seek`].
    pub fn stream(&self, offset: u64) -> DiskStream {
        DiskStream { stream: self.get_ref().stream(offset), disk: self.clone() }
    }
}

impl DiskStream {
    /// Where the next byte is read or written.
    pub const fn position(&self) -> u64 {
        self.stream.position()
    }

    /// The disk that this is a stream of.
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

    /// Unlike a seek to where the stream is already, it leaves alone what has been read ahead.
    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position())
    }
}
