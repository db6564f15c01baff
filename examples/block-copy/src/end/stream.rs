//! Streams: what comes next, and nothing else.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;

use super::blocking::blocking;
use super::{Destination, Source};
use crate::error::Error;
use crate::pool::Pool;
use crate::side::Side;

/// A pipe, a terminal, a character device, or a file that somebody else has opened.
#[derive(Clone, Debug)]
pub struct StreamEnd {
    file: Arc<File>,
    side: Side,
    name: Arc<str>,
    length: Option<u64>,
    pool: Pool,
}

impl StreamEnd {
    pub(super) fn new(file: Arc<File>, side: Side, name: Arc<str>) -> Self {
        // Without a length the copy only has less to say and to check beforehand.
        let length = rest(&file).ok().flatten();
        Self { file, side, name, length, pool: Pool::default() }
    }

    /// Standard input as a source, standard output as a destination.
    pub(super) fn standard(side: Side) -> Result<Self, Error> {
        let (descriptor, name) = match side {
            Side::Source => (io::stdin().as_fd().try_clone_to_owned(), "standard input"),
            Side::Destination => (io::stdout().as_fd().try_clone_to_owned(), "standard output"),
        };
        let name: Arc<str> = name.into();
        match descriptor {
            Ok(descriptor) => Ok(Self::new(Arc::new(descriptor.into()), side, name)),
            Err(cause) => Err(Error::File { side, name, cause }),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn failed(&self, cause: io::Error) -> Error {
        Error::File { side: self.side, name: Arc::clone(&self.name), cause }
    }
}

/// What is left of a regular file from the place on where its opener left it.
fn rest(mut file: &File) -> io::Result<Option<u64>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    Ok(Some(metadata.len().saturating_sub(file.stream_position()?)))
}

/// Reads until the buffer is full or the stream ends, and says how much that was.
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

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Source for StreamEnd {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn is_sequential(&self) -> bool {
        true
    }

    async fn read(&self, _offset: u64, len: usize) -> Result<Bytes, Error> {
        let (file, pool) = (Arc::clone(&self.file), self.pool.clone());
        let read = move || {
            let mut buffer = pool.take(len);
            let filled = fill(&file, &mut buffer)?;
            buffer.truncate(filled);
            Ok(pool.lend(buffer))
        };
        blocking(read).await.map_err(|cause| self.failed(cause))
    }
}

impl Destination for StreamEnd {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn is_sequential(&self) -> bool {
        true
    }

    async fn write(&self, _offset: u64, data: Bytes) -> Result<(), Error> {
        let file = Arc::clone(&self.file);
        let write = move || (&*file).write_all(&data);
        blocking(write).await.map_err(|cause| self.failed(cause))
    }

    /// Only a regular file has a medium to wait for.
    async fn flush(&self, _length: u64) -> Result<(), Error> {
        let file = Arc::clone(&self.file);
        let flush = move || if file.metadata()?.is_file() { file.sync_all() } else { Ok(()) };
        blocking(flush).await.map_err(|cause| self.failed(cause))
    }
}
