//! A device of bytes: what a disk has in common with a file, a stripe over several disks, or memory.
//!
//! Code that moves bytes needs no more of a [`Disk`](crate::Disk) than this, and can be tried on a device
//! of its own:
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
//!     /// Does something with a range of the bytes, if there is one.
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
//! /// Works with any device.
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

/// The result of a request to a [`Device`], when it has ended.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// The most zeros that are sent at once, bytes.
const MAX_ZEROS: usize = 1 << 20;

/// A device of bytes.
///
/// Requests have any offset and length; a device splits those that are too long for it. Many may be in flight concurrently.
/// They have no order among each other, but a request that begins after the end of a write sees its data. Dropping a
/// future gives its request up: a write may have been carried out in part or not at all, but a later write to the same
/// bytes comes after it.
///
/// The errors of a [`Disk`](crate::Disk) hold an [`Error`], which
/// [`get_ref`](io::Error::get_ref) and `downcast_ref` get at.
pub trait Device: fmt::Debug + Send + Sync {
    /// Returns the capacity, bytes.
    fn capacity(&self) -> u64;

    /// Returns what the device can do, and how it is used best.
    fn limits(&self) -> DeviceLimits;

    /// Returns how many concurrent requests of `io_size` bytes keep the device busy now; at least 1.
    fn queue_depth(&self, io_size: usize) -> usize {
        _ = io_size;
        1
    }

    /// Returns how many concurrent reads of `io_size` bytes keep the device busy, if there are no writes. The default is
    /// [`queue_depth`](Self::queue_depth).
    fn read_depth(&self, io_size: usize) -> usize {
        self.queue_depth(io_size)
    }

    /// Counts the reports that the device may not hold what it held, though nothing was written through it. While the number
    /// stays the same, what was read before may be kept. 0 of a device that reports no such thing; of a disk
    /// [`Disk::attentions`](crate::Disk::attentions).
    fn attentions(&self) -> u64 {
        0
    }

    /// Returns the line of text by which a later process [ends](Self::end_left) the requests that this process leaves in flight
    /// if it is killed. Keep it before anything is written. `None` of a device whose requests end with the process.
    fn leaves(&self) -> Option<String> {
        None
    }

    /// Ends the requests that an earlier process has left in flight, by the line that its device has
    /// [returned](Self::leaves): afterwards none of them changes the device any more.
    ///
    /// # Errors
    /// When nothing proves that.
    fn end_left<'a>(&'a self, left: &'a str) -> IoFuture<'a, ()> {
        _ = left;
        Box::pin(async {
            let why = Error::Unsupported("ending what another process has left");
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        })
    }

    /// Returns whether no request that has ended can change the device any more: one that was sent twice may still be in
    /// flight.
    fn is_settled(&self) -> bool {
        true
    }

    /// Reads from `offset` on into a buffer, which comes back filled; its length says how much.
    ///
    /// # Errors
    /// When the range is not on the device, or the device fails. The buffer is lost.
    fn read_into(&self, offset: u64, buffer: BytesMut) -> IoFuture<'_, BytesMut>;

    /// Reads `len` bytes from `offset` on into a buffer of the pool. A device takes the buffer as late as it can, so that a
    /// request that waits holds no memory. The default takes it immediately.
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

    /// Writes pages of any lengths, one behind the other, from `offset` on. When it has ended, reads
    /// see the data; a power failure spares them after a [`flush`](Self::flush) only.
    ///
    /// # Errors
    /// When the range is not on the device, the device is read-only, or it fails.
    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> IoFuture<'_, ()>;

    /// Brings every write that had ended before onto the medium.
    ///
    /// # Errors
    /// When the device fails, or may have lost such a write.
    fn flush(&self) -> IoFuture<'_, ()>;

    /// Checks that this is still the device that was opened, if another one may take its place without a report. If it is
    /// not, earlier requests may have gone to the other one.
    ///
    /// # Errors
    /// When it is another one, or does not answer.
    fn confirm(&self) -> IoFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Gives the bytes of a range back, which are not needed any more. What they read as afterwards is not defined; parts of the range that the device cannot give back stay as they are.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) unless [`DeviceLimits::discard_granularity`] is
    /// there; otherwise as [`write_at`](Self::write_at).
    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len)?;
            Err(io::Error::new(io::ErrorKind::Unsupported, Error::Unsupported("discarding")))
        })
    }

    /// Makes a range read as zeros; the device may give its storage back. The default writes the zeros as data.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_zeroes(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.write_allocated_zeroes(offset, len)
    }

    /// Makes a range read as zeros and keep its storage, or get some: a later write needs none. The default writes the zeros
    /// as data.
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

    /// Returns what is known of the bytes of a range without reading them: extents in order, without a gap,
    /// from `offset` on; none of them empty, and no two neighbours in the same state. There is at least
    /// one unless the range is empty, and there are [`Extent::MAX_TOLD`] at most. They may end before the
    /// range does: ask again from the [end](Extent::end) of the last. A write that begins meanwhile may
    /// show or not.
    ///
    /// # Errors
    /// When the range is not on the device, or the device fails. A device that does not know reports
    /// that all is data, as the default does.
    fn extents(&self, offset: u64, len: u64) -> IoFuture<'_, Vec<Extent>> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len)?;
            Ok(Extent::all_data(offset, len))
        })
    }

    /// Returns the first of the [extents](Self::extents) of a range, or its beginning. A device may find it faster than all.
    /// `None` of an empty range.
    ///
    /// # Errors
    /// As [`extents`](Self::extents).
    fn first_extent(&self, offset: u64, len: u64) -> IoFuture<'_, Option<Extent>> {
        Box::pin(async move { Ok(self.extents(offset, len).await?.first().copied()) })
    }
}

/// What a [`Device`] can do, and how it is used best. It may grow; make one from the
/// [default](Self::default) by setting fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// What is aligned to it is read and written as it is; a write that begins or ends elsewhere also
    /// reads. Bytes, a power of two or not, at least 1.
    pub block_size: u32,
    /// Requests that begin and end at multiples of it are the cheapest: the physical block. Bytes, a
    /// multiple of the block size.
    pub preferred_alignment: u64,
    /// The length of request that suits the device, bytes, at least 1.
    pub preferred_transfer: usize,
    /// Longer requests are split, bytes.
    pub max_transfer: usize,
    /// [`Device::discard`] gives storage back, in multiples of this many bytes; `None` if it is not
    /// supported.
    pub discard_granularity: Option<u64>,
    /// [`Device::write_zeroes`] costs less than to write zeros as data.
    pub has_fast_zeroes: bool,
    /// Every write is refused.
    pub is_read_only: bool,
    /// Writes end before they are on the medium, so that [`Device::flush`] has something to do.
    pub has_volatile_cache: bool,
}

impl Default for DeviceLimits {
    /// A device that takes any byte, in requests of 1 MiB, and has nothing else to offer.
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

/// Consecutive bytes of a device in the same state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Extent {
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// What is known of them.
    pub state: ExtentState,
}

/// What is known of the bytes of an [`Extent`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ExtentState {
    /// They may be anything, and must be read.
    Data,
    /// They have no storage, and read as zeros.
    Deallocated,
    /// They have storage, but hold no data, and read as zeros.
    Anchored,
    /// They hold no data, but what they read as is not known.
    Unknown,
}

impl Extent {
    /// The most extents of one answer: whatever a device holds, an answer takes little memory, and little time.
    pub const MAX_TOLD: usize = 4096;

    /// Creates an extent of `len` bytes.
    pub const fn new(offset: u64, len: u64, state: ExtentState) -> Self {
        Self { offset, len, state }
    }

    /// Returns where the next extent begins.
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
