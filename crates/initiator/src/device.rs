//! Devices of bytes: a trait for disks, files, stripes over several disks, and memory.
//!
//! Code that moves bytes needs only this part of a [`Disk`](crate::Disk), so a test can give it another
//! device:
//!
//! ```
//! use std::io;
//! use std::sync::{Mutex, PoisonError};
//!
//! use bytes::{Bytes, BytesMut};
//! use iscsi_initiator::device::{Device, DeviceLimits, IoFuture};
//!
//! #[derive(Debug)]
//! struct Memory(Mutex<Vec<u8>>);
//!
//! impl Memory {
//!     /// Applies `act` to a range of the bytes, if the device has that range.
//!     fn with<T>(&self, at: u64, len: usize, act: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
//!         let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
//!         let start = usize::try_from(at).unwrap_or(usize::MAX);
//!         let range = bytes.get_mut(start..start.saturating_add(len));
//!         range.map(act).ok_or_else(|| io::ErrorKind::InvalidInput.into())
//!     }
//! }
//!
//! impl Device for Memory {
//!     fn capacity(&self) -> u64 {
//!         self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
//!     }
//!
//!     fn limits(&self) -> DeviceLimits {
//!         DeviceLimits::default()
//!     }
//!
//!     fn read_into(&self, offset: u64, mut buffer: BytesMut) -> IoFuture<'_, BytesMut> {
//!         Box::pin(async move {
//!             self.with(offset, buffer.len(), |bytes| buffer.copy_from_slice(bytes))?;
//!             Ok(buffer)
//!         })
//!     }
//!
//!     fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> IoFuture<'_, ()> {
//!         Box::pin(async move {
//!             let data = pages.concat();
//!             self.with(offset, data.len(), |bytes| bytes.copy_from_slice(&data))
//!         })
//!     }
//!
//!     fn flush(&self) -> IoFuture<'_, ()> {
//!         Box::pin(async { Ok(()) })
//!     }
//! }
//!
//! /// Copies from any device to any other one.
//! async fn copy(from: &dyn Device, to: &dyn Device) -> io::Result<()> {
//!     let step = from.limits().preferred_transfer;
//!     for offset in (0..from.capacity()).step_by(step) {
//!         let len = (from.capacity() - offset).min(step as u64) as usize;
//!         to.write_at(offset, vec![from.read_at(offset, len).await?]).await?;
//!     }
//!     to.flush().await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> io::Result<()> {
//! let (from, to) = (Memory(vec![7; 100_000].into()), Memory(vec![0; 100_000].into()));
//! copy(&from, &to).await?;
//! to.write_zeroes(10, 20).await?;
//! assert_eq!(to.read_at(8, 4).await?, [7, 7, 0, 0][..]);
//! # Ok(())
//! # }
//! ```

mod pointers;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
pub use iscsi_session::BufferPool;

use crate::error::Error;

/// The future of a request to a [`Device`].
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// The most zeros that are sent in one request, in bytes.
const MAX_ZEROS: usize = 1 << 20;

/// A device of bytes, such as a disk, a file or memory.
///
/// Requests may have any offset and length; a device splits what is too large for one command. Many
/// requests may run concurrently. Concurrent requests have no order, but a request that begins
/// after a write has returned sees the data of that write. Dropping a future cancels its request: a
/// write may have been carried out in part or not at all, but a later write to the same bytes comes
/// after it.
///
/// The errors of a [`Disk`](crate::Disk) hold an [`Error`], which [`get_ref`](io::Error::get_ref)
/// and `downcast_ref` return.
#[doc(alias = "block device")]
pub trait Device: fmt::Debug + Send + Sync {
    /// Returns the capacity, in bytes.
    fn capacity(&self) -> u64;

    /// Returns what the device can do, and how it is used best.
    fn limits(&self) -> DeviceLimits;

    /// Returns how many concurrent requests of `io_size` bytes keep the device busy now; at least
    /// 1.
    fn queue_depth(&self, io_size: usize) -> usize {
        _ = io_size;
        1
    }

    /// Returns how many concurrent reads of `io_size` bytes keep the device busy, if there are only
    /// reads. The default is [`queue_depth`](Self::queue_depth); a device may need fewer.
    fn read_depth(&self, io_size: usize) -> usize {
        self.queue_depth(io_size)
    }

    /// Counts the events after which data that was read before may be out of date, though nothing
    /// was written through this device. While the number stays the same, a cache of what was read
    /// remains valid. A device that reports no such events returns 0; a disk returns
    /// [`Disk::attentions`](crate::Disk::attentions).
    fn attentions(&self) -> u64 {
        0
    }

    /// Returns one line of text by which a later process can [end](Self::end_left) the requests
    /// that this process leaves in flight if it is killed. Store the line before anything is
    /// written. `None` if nothing outlives the process.
    fn leaves(&self) -> Option<String> {
        None
    }

    /// Ends the requests that a process which is gone has left in flight. `left` is the text that
    /// [`leaves`](Self::leaves) returned in that process. When this returns without an error, none
    /// of those requests can change the device any more.
    ///
    /// # Errors
    /// When nothing proves that they have ended.
    fn end_left<'a>(&'a self, left: &'a str) -> IoFuture<'a, ()> {
        _ = left;
        Box::pin(async {
            let why = Error::Unsupported("ending what another process has left");
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        })
    }

    /// Returns whether no request that has returned can still change the device. A write that was
    /// sent over two sessions may have returned while its second copy is in flight.
    fn is_settled(&self) -> bool {
        true
    }

    /// Reads from `offset` on into `buffer` and returns it filled. Its length is the number of
    /// bytes to read.
    ///
    /// # Errors
    /// When the range is not on the device, or the device fails. The buffer is lost.
    fn read_into(&self, offset: u64, buffer: BytesMut) -> IoFuture<'_, BytesMut>;

    /// Reads `len` bytes from `offset` on into a buffer from the pool. The device takes the buffer
    /// as late as it can, so a request that waits holds no memory. The default implementation takes
    /// it immediately.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    fn read_with(
        &self,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> IoFuture<'_, BytesMut> {
        self.read_into(offset, buffers.take(len))
    }

    /// Reads `len` bytes from `offset` on.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Bytes> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len as u64)?;
            Ok(self.read_into(offset, BytesMut::zeroed(len)).await?.freeze())
        })
    }

    /// Writes pages of any lengths, one behind the other, from `offset` on. When this returns,
    /// reads see the data. It survives a power failure only after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// When the range is not on the device, the device is read-only, or it fails.
    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> IoFuture<'_, ()>;

    /// Brings every write that had returned before this call onto the medium.
    ///
    /// # Errors
    /// When the device fails, or may have lost such a write.
    #[doc(alias("sync", "fsync"))]
    fn flush(&self) -> IoFuture<'_, ()>;

    /// Checks that this is still the device that was opened, where another one may take its place
    /// without notice. If it is not, an earlier request may have gone to the other device.
    ///
    /// # Errors
    /// When it is another device, or does not report what it is.
    fn confirm(&self) -> IoFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Marks the bytes of a range as not needed any more. What they read as afterwards is not
    /// defined. Parts of the range that the device cannot deallocate stay as they are.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) if [`DeviceLimits::discard_granularity`] is
    /// `None`; otherwise as [`write_at`](Self::write_at).
    #[doc(alias("unmap", "trim"))]
    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len)?;
            Err(io::Error::new(io::ErrorKind::Unsupported, Error::Unsupported("discarding")))
        })
    }

    /// Makes a range read as zeros; the device may deallocate its storage. The default
    /// implementation writes the zeros as data.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_zeroes(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.write_allocated_zeroes(offset, len)
    }

    /// Makes a range read as zeros and keeps its storage allocated, or allocates it, so that a
    /// later write to the range needs no space.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len)?;
            let step = self.limits().preferred_transfer.clamp(1, MAX_ZEROS);
            let zeros = Bytes::from(vec![0; step]);
            let (mut at, end) = (offset, offset + len);
            while at < end {
                let count = usize::try_from(end - at).map_or(step, |left| left.min(step));
                self.write_at(at, vec![zeros.slice(..count)]).await?;
                at += count as u64;
            }
            Ok(())
        })
    }

    /// Returns what is known of the bytes of a range without reading them. The extents are in
    /// order, without a gap, from `offset` on. None is empty, and two neighbours differ in state.
    ///
    /// There is at least one extent unless the range is empty, and at most [`Extent::MAX_REPORTED`].
    /// The extents may end before the range does: to continue, ask again from the
    /// [end](Extent::end) of the last one. A concurrent write may show or not.
    ///
    /// # Errors
    /// When the range is not on the device, or the device fails. A device that does not know
    /// returns one extent of data.
    fn extents(&self, offset: u64, len: u64) -> IoFuture<'_, Vec<Extent>> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len)?;
            Ok(Extent::all_data(offset, len))
        })
    }

    /// Returns the first extent of a range, or the beginning of it. It is for a caller that needs
    /// no more: a device may ask for one extent only. `None` if the range is empty.
    ///
    /// # Errors
    /// As [`extents`](Self::extents).
    fn first_extent(&self, offset: u64, len: u64) -> IoFuture<'_, Option<Extent>> {
        Box::pin(async move { Ok(self.extents(offset, len).await?.first().copied()) })
    }
}

/// Describes what a [`Device`] can do, and how it is used best. Fields may be added: make one from
/// the [default](Self::default) by setting fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Block size, in bytes, at least 1, a power of two or not. Requests that are aligned to it
    /// need nothing else; a write that begins or ends elsewhere also reads.
    pub block_size: u32,
    /// Alignment of the cheapest requests, in bytes: the physical block, a multiple of the block
    /// size.
    pub preferred_alignment: u64,
    /// Length of a request that suits the device, in bytes, at least 1.
    pub preferred_transfer: usize,
    /// The most bytes of one request to the device; longer ones are split.
    pub max_transfer: usize,
    /// Unit in which [`Device::discard`] deallocates, in bytes; `None` if discard is not supported.
    pub discard_granularity: Option<u64>,
    /// Whether [`Device::write_zeroes`] costs less than writing zeros as data.
    pub has_fast_zeroes: bool,
    /// Whether every write is refused.
    pub is_read_only: bool,
    /// Whether writes return before they are on the medium, so that [`Device::flush`] has work to
    /// do.
    pub has_volatile_cache: bool,
}

impl Default for DeviceLimits {
    /// Describes a device that takes any byte, in requests of 1 MiB, and supports nothing else.
    fn default() -> Self {
        Self {
            block_size: 1,
            preferred_alignment: 1,
            preferred_transfer: 1 << 20,
            max_transfer: usize::MAX,
            discard_granularity: None,
            has_fast_zeroes: false,
            is_read_only: false,
            has_volatile_cache: false,
        }
    }
}

/// A run of bytes of a device that are in one state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length, in bytes.
    pub len: u64,
    /// State of these bytes.
    pub state: ExtentState,
}

/// State of the bytes of an [`Extent`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ExtentState {
    /// Holds data, which must be read.
    Data,
    /// Has no storage, and reads as zeros.
    Deallocated,
    /// Has storage but no data, and reads as zeros.
    Anchored,
    /// Holds no data; what it reads as is not known.
    Unknown,
}

impl Extent {
    /// The most extents that one answer holds, so that an answer takes little memory and little
    /// time.
    pub const MAX_REPORTED: usize = 4096;

    /// Makes an extent of `len` bytes from `offset` on.
    pub const fn new(offset: u64, len: u64, state: ExtentState) -> Self {
        Self { offset, len, state }
    }

    /// Returns the offset behind the last byte, where the next extent begins.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// The extents of a range of which nothing is known.
    pub(crate) fn all_data(offset: u64, len: u64) -> Vec<Self> {
        if len == 0 { Vec::new() } else { vec![Self::new(offset, len, ExtentState::Data)] }
    }
}

impl ExtentState {
    /// Returns whether the bytes read as zeros, so that they need not be read.
    pub const fn reads_zeros(self) -> bool {
        matches!(self, Self::Deallocated | Self::Anchored)
    }
}

/// Whether a range lies on a device.
fn check_range(capacity: u64, offset: u64, len: u64) -> io::Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= capacity) {
        return Ok(());
    }
    let error = Error::OutOfRange { offset, len, capacity };
    Err(io::Error::new(io::ErrorKind::InvalidInput, error))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A device that has what every device must have, and no more.
    #[derive(Debug)]
    struct Memory {
        bytes: Mutex<Vec<u8>>,
        /// The lengths of the writes that came.
        writes: Mutex<Vec<usize>>,
    }

    impl Device for Memory {
        fn capacity(&self) -> u64 {
            self.bytes.lock().unwrap().len() as u64
        }

        fn limits(&self) -> DeviceLimits {
            DeviceLimits { preferred_transfer: 8, ..DeviceLimits::default() }
        }

        fn read_into(&self, offset: u64, mut buffer: BytesMut) -> IoFuture<'_, BytesMut> {
            Box::pin(async move {
                let start = usize::try_from(offset).unwrap();
                let end = start + buffer.len();
                buffer.copy_from_slice(&self.bytes.lock().unwrap()[start..end]);
                Ok(buffer)
            })
        }

        fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> IoFuture<'_, ()> {
            Box::pin(async move {
                let start = usize::try_from(offset).unwrap();
                let data = pages.concat();
                self.writes.lock().unwrap().push(data.len());
                self.bytes.lock().unwrap()[start..start + data.len()].copy_from_slice(&data);
                Ok(())
            })
        }

        fn flush(&self) -> IoFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }
    }

    fn memory(bytes: &[u8]) -> Arc<dyn Device> {
        Arc::new(Memory { bytes: Mutex::new(bytes.to_vec()), writes: Mutex::default() })
    }

    #[tokio::test]
    async fn a_device_without_more_reads_in_pages_and_knows_of_no_hole() {
        let device = memory(b"abcdefgh");
        assert_eq!(device.read_at(2, 3).await.unwrap(), &b"cde"[..]);
        let data = Extent::new(1, 7, ExtentState::Data);
        assert_eq!(device.extents(1, 7).await.unwrap(), [data]);
        assert!(device.extents(8, 0).await.unwrap().is_empty());
        assert_eq!((device.queue_depth(1 << 20), data.end()), (1, 8));
        let error = device.discard(0, 4).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.get_ref().is_some_and(|error| error.is::<Error>()));
    }

    #[tokio::test]
    async fn zeros_are_data_where_there_is_no_other_way() {
        let memory = Memory { bytes: Mutex::new(vec![b'x'; 30]), writes: Mutex::default() };
        memory.write_zeroes(3, 20).await.unwrap();
        assert_eq!(
            memory.read_at(0, 30).await.unwrap(),
            [&b"xxx"[..], &[0; 20], b"xxxxxxx"].concat()
        );
        assert_eq!(*memory.writes.lock().unwrap(), [8, 8, 4]);
    }

    #[tokio::test]
    async fn what_does_not_lie_on_the_device_is_refused() {
        let device = memory(&[0; 8]);
        for (offset, len) in [(0, 9), (9, 0), (8, 1), (u64::MAX, 2)] {
            let count = usize::try_from(len).unwrap();
            let ends = [
                device.read_at(offset, count).await.map(drop),
                device.write_zeroes(offset, len).await,
                device.discard(offset, len).await,
                device.extents(offset, len).await.map(drop),
            ];
            for end in ends {
                assert_eq!(end.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{offset} {len}");
            }
        }
    }

    #[test]
    fn zeros_are_what_is_said_to_be() {
        let zeros = [ExtentState::Deallocated, ExtentState::Anchored];
        assert!(zeros.into_iter().all(ExtentState::reads_zeros));
        assert!(!ExtentState::Data.reads_zeros() && !ExtentState::Unknown.reads_zeros());
    }
}
