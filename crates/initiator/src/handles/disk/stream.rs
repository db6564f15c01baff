//! Reads and writes a disk as a stream of bytes.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use crate::error::{CallerCause, Error};
use crate::handles::disk::Disk;
use crate::runtime::Task;
use crate::state::loss_cursor::SeenLosses;

// Each request of a stream is a task, so that the request finishes even while the stream is not polled: other
// requests may wait for the ranges and the budget that it holds.

/// Maximum length of a request, in bytes. A request ends at a multiple of this length, or at the end of the
/// data.
const CHUNK: usize = 256 * 1024;
/// Limits of the number of concurrent requests in one direction; the tuner chooses within them.
const MIN_WINDOW: usize = 16;
const MAX_WINDOW: usize = 256;

/// A [`Disk`] as a stream: [`AsyncRead`](tokio::io::AsyncRead) reads ahead, and
/// [`AsyncWrite`](tokio::io::AsyncWrite) returns before the data is sent.
///
/// A write that fails makes a later call fail, and every call after that: the stream cannot be used again,
/// since data is missing. [`Disk::stream`] makes a new one. A read that fails leaves the position as it was,
/// so the next read begins there.
///
/// `flush` and `shutdown` wait for all writes and then flush the unit's cache: only after one of
/// them is the data on the medium. Reading ends at the capacity; a write beyond it is an error.
/// Dropping the stream discards what is not written yet.
///
/// ```
/// use std::io::SeekFrom;
///
/// use iscsi_initiator::Initiator;
/// use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
///
/// # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let unit = RamDisk::new(512, 4096);
/// # let target = TargetConfig::new("iqn.2026-01.org.example:disk", unit);
/// # let server = Server::start(Target::new(target)).await?;
/// # let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
/// let disk = Initiator::new("iqn.2026-01.org.example:host")?.disk(url).await?;
/// let mut stream = disk.stream(100);
/// let mut source = &b"what an image holds"[..];
/// tokio::io::copy(&mut source, &mut stream).await?;
/// stream.flush().await?;
/// stream.seek(SeekFrom::Start(108)).await?;
/// let mut word = [0; 5];
/// stream.read_exact(&mut word).await?;
/// assert_eq!(&word, b"image");
/// # Ok(())
/// # }
/// ```
///
/// Each [`io::Error`] has the kind that [`ErrorKind`](crate::ErrorKind) names, and holds the
/// [`Error`]. One case differs: a write beyond the capacity is
/// [`StorageFull`](io::ErrorKind::StorageFull), as on any block device, and holds
/// an error of the kind [`InvalidInput`](crate::ErrorKind::InvalidInput).
///
/// ```
/// use iscsi_initiator::{Error, ErrorKind, Url};
///
/// fn needs_room(error: &std::io::Error) -> bool {
///     let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
///     cause.is_some_and(|cause| cause.kind() == ErrorKind::OutOfSpace)
/// }
/// # let error = Error::from(Url::parse("iscsi://").unwrap_err());
/// # assert!(!needs_room(&error.into()));
/// ```
pub struct DiskStream {
    disk: Disk,
    position: u64,
    ahead: ReadAhead,
    behind: WriteBehind,
    flush: Option<Flushing>,
}

impl Disk {
    /// Makes a stream over the disk, from `offset` on: [`AsyncRead`](tokio::io::AsyncRead),
    /// [`AsyncWrite`](tokio::io::AsyncWrite) and [`AsyncSeek`](tokio::io::AsyncSeek).
    pub fn stream(&self, offset: u64) -> DiskStream {
        DiskStream::new(self.clone(), offset)
    }
}

impl DiskStream {
    pub(crate) fn new(disk: Disk, position: u64) -> Self {
        Self {
            disk,
            position,
            ahead: ReadAhead::default(),
            behind: WriteBehind::default(),
            flush: None,
        }
    }

    /// Returns the offset of the next byte to be read or written.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the disk of this stream.
    pub const fn disk(&self) -> &Disk {
        &self.disk
    }

    fn target_of(&self, seek: SeekFrom) -> Option<u64> {
        match seek {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(distance) => self.disk.capacity().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        }
    }
}

impl fmt::Debug for DiskStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStream")
            .field("disk", &self.disk)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// Bytes that are read in advance.
#[derive(Default)]
struct ReadAhead {
    current: Bytes,
    requests: VecDeque<Slot>,
    /// Offset of the next request.
    next: u64,
}

enum Slot {
    Reading(Task<Bytes>),
    Done(Result<Bytes, Error>),
}

impl ReadAhead {
    /// Returns the next bytes at `position`; no bytes at the end of the disk.
    fn poll(
        &mut self,
        disk: &Disk,
        position: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<&mut Bytes, Error>> {
        if !self.current.is_empty() {
            return Poll::Ready(Ok(&mut self.current));
        }
        if self.requests.is_empty() {
            self.next = position;
        }
        self.extend(disk);
        self.requests.iter_mut().for_each(|slot| slot.poll(context));
        match self.requests.pop_front() {
            None => Poll::Ready(Ok(&mut self.current)),
            Some(Slot::Done(Ok(bytes))) => {
                self.current = bytes;
                Poll::Ready(Ok(&mut self.current))
            }
            Some(Slot::Done(Err(error))) => {
                // The next call reads again at the same position, so the other requests, which read the bytes
                // after it, are dropped.
                self.clear();
                Poll::Ready(Err(error))
            }
            Some(reading @ Slot::Reading(_)) => {
                self.requests.push_front(reading);
                Poll::Pending
            }
        }
    }

    fn extend(&mut self, disk: &Disk) {
        let window = window(disk);
        while self.requests.len() < window
            // The capacity is read for each request, because the unit may shrink meanwhile.
            && let Some(count) = count_at(self.next, disk.capacity())
        {
            let (disk, offset) = (disk.clone(), self.next);
            let request = Task::spawn(async move { disk.read_at(offset, count).await });
            self.requests.push_back(Slot::Reading(request));
            self.next += count as u64;
        }
    }

    fn clear(&mut self) {
        self.current.clear();
        self.requests.clear();
    }
}

impl Slot {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Self::Reading(request) = self
            && let Poll::Ready(result) = Pin::new(request).poll(context)
        {
            *self = Self::Done(result);
        }
    }
}

/// Bytes from the caller that are not written yet.
#[derive(Default)]
struct WriteBehind {
    buffer: BytesMut,
    /// Offset of the bytes in the buffer.
    start: u64,
    requests: Vec<Task<()>>,
    /// Error of the first write that failed.
    ///
    /// Invariant: after it is set, no call succeeds, because a flush must not succeed while data is missing.
    failed: Option<Error>,
}

impl WriteBehind {
    /// Buffers as many of `bytes` as fit into the current request; returns their number.
    fn push(&mut self, position: u64, bytes: &[u8], disk: &Disk) -> usize {
        if self.buffer.is_empty() {
            self.start = position;
            self.buffer.reserve(CHUNK);
        }
        let room = usize::try_from(to_boundary(position)).unwrap_or(CHUNK);
        let count = bytes.len().min(room);
        self.buffer.extend_from_slice(bytes.get(..count).unwrap_or(bytes));
        if count == room {
            self.send(disk);
        }
        count
    }

    fn send(&mut self, disk: &Disk) {
        if self.buffer.is_empty() || self.failed.is_some() {
            return;
        }
        let (disk, offset) = (disk.clone(), self.start);
        let data = self.buffer.split().freeze();
        self.requests.push(Task::spawn(async move { disk.write_at(offset, data).await }));
    }

    /// Waits until fewer than `limit` requests are in flight, or one has failed.
    fn poll_below(&mut self, limit: usize, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Self { requests, failed, .. } = self;
        requests.retain_mut(|request| match Pin::new(request).poll(context) {
            Poll::Pending => true,
            Poll::Ready(ended) => {
                if let Err(error) = ended {
                    failed.get_or_insert(error);
                }
                false
            }
        });
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        if self.requests.len() < limit { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Sends the buffered bytes, and waits until all writes have ended.
    fn poll_settled(&mut self, disk: &Disk, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.send(disk);
        self.poll_below(1, context)
    }
}

/// A flush of the disk. It may end while no caller waits for its result. So a loss that the flush finds counts
/// as reported only when a caller takes the result.
struct Flushing {
    task: Task<()>,
    seen: SeenLosses,
}

impl Flushing {
    fn begin(disk: &Disk) -> Self {
        let seen = disk.unit.losses().begin();
        let disk = disk.clone();
        Self { task: Task::spawn(async move { disk.flush_unreported(seen).await }), seen }
    }

    fn poll(&mut self, disk: &Disk, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(Pin::new(&mut self.task).poll(context))?;
        Poll::Ready(disk.unit.losses().end(self.seen))
    }
}

/// Returns how many concurrent requests of [`CHUNK`] bytes fill the link.
fn window(disk: &Disk) -> usize {
    disk.queue_depth(CHUNK).clamp(MIN_WINDOW, MAX_WINDOW)
}

/// Returns the length of a read that begins at `position`, in bytes; `None` at the end of the disk.
fn count_at(position: u64, capacity: u64) -> Option<usize> {
    let left = capacity.checked_sub(position).filter(|left| *left > 0)?;
    usize::try_from(left.min(to_boundary(position))).ok()
}

/// Returns the number of bytes from `position` to the next multiple of [`CHUNK`]; never 0.
const fn to_boundary(position: u64) -> u64 {
    CHUNK as u64 - position % CHUNK as u64
}

impl AsyncRead for DiskStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.behind.poll_settled(&this.disk, context))?;
        let bytes = ready!(this.ahead.poll(&this.disk, this.position, context))?;
        let count = bytes.len().min(into.remaining());
        into.put_slice(bytes.get(..count).unwrap_or_default());
        bytes.advance(count);
        this.position += count as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for DiskStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.ahead.clear();
        this.flush = None;
        ready!(this.behind.poll_below(window(&this.disk), context))?;
        let capacity = this.disk.capacity();
        let left = usize::try_from(capacity.saturating_sub(this.position)).unwrap_or(usize::MAX);
        if left == 0 && !bytes.is_empty() {
            let (offset, len) = (this.position, bytes.len() as u64);
            let error = Error::from(CallerCause::OutOfRange { offset, len, capacity });
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::StorageFull, error)));
        }
        let bytes = bytes.get(..left).unwrap_or(bytes);
        let count = this.behind.push(this.position, bytes, &this.disk);
        this.position += count as u64;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.behind.poll_settled(&this.disk, context))?;
        let flush = this.flush.get_or_insert_with(|| Flushing::begin(&this.disk));
        let result = ready!(flush.poll(&this.disk, context));
        this.flush = None;
        Poll::Ready(result.map_err(Into::into))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncSeek for DiskStream {
    fn start_seek(mut self: Pin<&mut Self>, seek: SeekFrom) -> io::Result<()> {
        let this = &mut *self;
        let Some(position) = this.target_of(seek) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a seek before the first byte",
            ));
        };
        this.behind.send(&this.disk);
        this.ahead.clear();
        this.position = position;
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = &mut *self;
        // Earlier writes must have ended before later writes that overlap them begin.
        ready!(this.behind.poll_settled(&this.disk, context))?;
        Poll::Ready(Ok(this.position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_at_multiples_of_a_chunk_and_at_the_end_of_the_disk() {
        let chunk = CHUNK as u64;
        assert_eq!(count_at(0, chunk * 2), Some(CHUNK));
        assert_eq!(count_at(chunk - 1, chunk * 2), Some(1));
        assert_eq!(count_at(chunk, chunk + 512), Some(512));
        for capacity in [chunk, chunk - 512, 0] {
            assert_eq!(count_at(chunk, capacity), None, "it may have become smaller");
        }
    }
}
