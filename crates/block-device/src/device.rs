//! The trait of a device of bytes.
//!
//! Design: `docs/design/device.md`.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::buffer_pool::BufferPool;
use crate::error::DeviceError;
use crate::extent::Extent;
use crate::limits::DeviceLimits;
use crate::name::{ContentName, DeviceName};

/// The result of a request to a [`Device`].
pub type DeviceResult<T> = Result<T, DeviceError>;

/// The future of a request to a [`Device`].
pub type DeviceFuture<'a, T> = Pin<Box<dyn Future<Output = DeviceResult<T>> + Send + 'a>>;

/// Maximum number of zeros in one write, in bytes.
const MAX_ZEROS: usize = 1 << 20;

/// A device of bytes, such as a disk, a file or memory.
///
/// Requests may have any offset and length; a device splits a request that is too large for one command. Many
/// requests may run concurrently. Concurrent requests have no order, but a request that begins after a write
/// has returned sees the data of that write. Dropping a future cancels its request: a write may have been
/// executed, in part or not at all, but a later write to the same bytes comes after it.
///
/// A device in front of another one, such as a cache, returns the other device from [`below`](Self::below).
/// The defaults of the methods that take no offset then forward to the device below, except
/// [`name`](Self::name) and [`content_name`](Self::content_name).
#[doc(alias = "block device")]
pub trait Device: fmt::Debug + Send + Sync {
    /// Returns the device that this one is in front of; `None` if it is in front of none.
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    /// Returns the capacity, in bytes.
    fn capacity(&self) -> u64;

    /// Returns the abilities of the device, and which requests suit it. The default forwards to the device
    /// [below](Self::below), and returns `DeviceLimits::default()` if there is none.
    fn limits(&self) -> DeviceLimits {
        self.below().map_or_else(DeviceLimits::default, Device::limits)
    }

    /// Returns how many concurrent requests of `io_size` bytes keep the device busy now; at least 1. The
    /// default forwards to the device [below](Self::below), and returns 1 if there is none.
    fn queue_depth(&self, io_size: usize) -> usize {
        self.below().map_or(1, |below| below.queue_depth(io_size))
    }

    /// Returns how many concurrent reads of `io_size` bytes keep the device busy, if there are only reads. This
    /// may be less than [`queue_depth`](Self::queue_depth). The default forwards to the device
    /// [below](Self::below), and returns `queue_depth` if there is none.
    fn read_depth(&self, io_size: usize) -> usize {
        match self.below() {
            Some(below) => below.read_depth(io_size),
            None => self.queue_depth(io_size),
        }
    }

    /// Returns the number of events after which data that was read before may be out of date, though nothing
    /// was written through this device. While this number stays the same, a cache of data that was read
    /// remains valid. A device that reports no such events returns 0. The default forwards to the device
    /// [below](Self::below), and returns 0 if there is none.
    fn attentions(&self) -> u64 {
        self.below().map_or(0, Device::attentions)
    }

    /// Returns the name by which a later process recognizes the device; `None`, the default, if the device
    /// cannot be recognized later.
    ///
    /// # Errors
    /// When the name cannot be determined.
    fn name(&self) -> DeviceResult<Option<DeviceName>> {
        Ok(None)
    }

    /// Returns a name of the data that the device holds now, which changes with each write; `None`, the
    /// default, if the device has no such name.
    ///
    /// # Errors
    /// When the name cannot be determined.
    fn content_name(&self) -> DeviceResult<Option<ContentName>> {
        Ok(None)
    }

    /// Returns one line of text by which a later process can [end](Self::end_left) the requests that this
    /// process leaves in flight if it is killed. Store the line before anything is written. `None` if no
    /// request outlives the process. The default forwards to the device [below](Self::below), and returns
    /// `None` if there is none.
    fn leaves(&self) -> Option<String> {
        self.below().and_then(Device::leaves)
    }

    /// Ends the requests that a killed process has left in flight. `left` is the text that
    /// [`leaves`](Self::leaves) returned in that process. When this returns without an error, none of those
    /// requests can change the device any more.
    ///
    /// # Errors
    /// When it cannot be confirmed that they have ended.
    fn end_left<'a>(&'a self, left: &'a str) -> DeviceFuture<'a, ()> {
        match self.below() {
            Some(below) => below.end_left(left),
            None => Box::pin(async {
                Err(DeviceError::unsupported("ending what another process has left"))
            }),
        }
    }

    /// Returns whether every request that has returned is also unable to change the device any more. A write
    /// that was sent over two sessions, for example, may have returned while its second copy is in flight. The
    /// default forwards to the device [below](Self::below), and returns `true` if there is none.
    fn is_settled(&self) -> bool {
        self.below().is_none_or(Device::is_settled)
    }

    /// Reads from `offset` on into `buffer` and returns it filled. The length of `buffer` is the number of bytes
    /// to read.
    ///
    /// # Errors
    /// When the range is not on the device, or the device fails. The buffer is lost.
    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut>;

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
    ) -> DeviceFuture<'_, BytesMut> {
        self.read_into(offset, buffers.take(len))
    }

    /// Reads `len` bytes from `offset` on.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    fn read_at(&self, offset: u64, len: usize) -> DeviceFuture<'_, Bytes> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len as u64)?;
            Ok(self.read_into(offset, BytesMut::zeroed(len)).await?.freeze())
        })
    }

    /// Writes pages of any lengths, one after the other, from `offset` on. When this returns, reads see the
    /// data. The data survive a power failure only after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// When the range is not on the device, the device is read-only, or it fails.
    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()>;

    /// Brings every write that had returned before this call onto the medium.
    ///
    /// # Errors
    /// When the device fails, or may have lost a write that returned before the flush does
    /// ([`LostWrites`](crate::DeviceErrorKind::LostWrites)). If a write that was in flight at the loss returns
    /// later and may be lost as well, the next flush reports the loss again.
    #[doc(alias("sync", "fsync"))]
    fn flush(&self) -> DeviceFuture<'_, ()>;

    /// Checks that this is still the device that was opened, in case another device can take its place
    /// unnoticed. If it is not, an earlier request may have gone to the other device. The default forwards to the
    /// device [below](Self::below), and succeeds if there is none.
    ///
    /// # Errors
    /// When it is another device, or does not report its identity.
    fn confirm(&self) -> DeviceFuture<'_, ()> {
        match self.below() {
            Some(below) => below.confirm(),
            None => Box::pin(async { Ok(()) }),
        }
    }

    /// Marks the bytes of a range as not needed any more. A later read may return any bytes there. Parts of
    /// the range that the device cannot deallocate stay as they are.
    ///
    /// # Errors
    /// [`Unsupported`](crate::DeviceErrorKind::Unsupported) if [`DeviceLimits::discard_granularity`] is
    /// `None`; otherwise as [`write_at`](Self::write_at).
    #[doc(alias("unmap", "trim"))]
    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len)?;
            Err(DeviceError::unsupported("discarding"))
        })
    }

    /// Makes a range read as zeros; the device may deallocate its storage. The default
    /// implementation writes the zeros as data.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        self.write_allocated_zeroes(offset, len)
    }

    /// Makes a range read as zeros and keeps its storage allocated, or allocates it, so that a
    /// later write to the range needs no space.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
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

    /// Returns the states of the bytes of a range, without reading them. The extents are in order, without a
    /// gap, from `offset` on. No extent is empty, and neighbouring extents differ in state.
    ///
    /// There is at least one extent unless the range is empty, and at most [`Extent::MAX_REPORTED`]. The
    /// extents may end before the range does: to continue, call this again from the [end](Extent::end) of the
    /// last one. The result may include a concurrent write or not.
    ///
    /// # Errors
    /// When the range is not on the device, or the device fails. A device that does not know the states
    /// returns one extent of data.
    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(async move {
            check_range(self.capacity(), offset, len)?;
            Ok(Extent::all_data(offset, len))
        })
    }

    /// Returns the first extent of a range, or only its beginning. A device may query one extent only, so
    /// this costs less than [`extents`](Self::extents). `None` if the range is empty.
    ///
    /// # Errors
    /// As [`extents`](Self::extents).
    fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
        Box::pin(async move { Ok(self.extents(offset, len).await?.first().copied()) })
    }
}

/// Returns the range of `len` bytes at `offset`, if it lies on a device of `capacity` bytes.
///
/// # Errors
/// [`InvalidInput`](crate::DeviceErrorKind::InvalidInput) if it does not.
pub fn check_range(capacity: u64, offset: u64, len: u64) -> DeviceResult<Range<u64>> {
    let end = offset.checked_add(len).filter(|end| *end <= capacity);
    end.map(|end| offset..end).ok_or_else(|| DeviceError::out_of_range(offset, len, capacity))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::error_kind::DeviceErrorKind;
    use crate::extent::ExtentState;

    /// A device with the required methods only.
    #[derive(Debug)]
    struct Memory {
        bytes: Mutex<Vec<u8>>,
        /// Lengths of the writes, in bytes.
        writes: Mutex<Vec<usize>>,
    }

    impl Device for Memory {
        fn capacity(&self) -> u64 {
            self.bytes.lock().unwrap().len() as u64
        }

        fn limits(&self) -> DeviceLimits {
            DeviceLimits { preferred_transfer: 8, ..DeviceLimits::default() }
        }

        fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
            Box::pin(async move {
                let start = usize::try_from(offset).unwrap();
                let end = start + buffer.len();
                buffer.copy_from_slice(&self.bytes.lock().unwrap()[start..end]);
                Ok(buffer)
            })
        }

        fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
            Box::pin(async move {
                let start = usize::try_from(offset).unwrap();
                let data = pages.concat();
                self.writes.lock().unwrap().push(data.len());
                self.bytes.lock().unwrap()[start..start + data.len()].copy_from_slice(&data);
                Ok(())
            })
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
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
        assert_eq!(error.kind(), DeviceErrorKind::Unsupported);
        let error = device.end_left("").await.unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Unsupported);
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
                assert_eq!(
                    end.unwrap_err().kind(),
                    DeviceErrorKind::InvalidInput,
                    "{offset} {len}"
                );
            }
        }
    }

    /// A device in front of another one, with the required methods only.
    #[derive(Debug)]
    struct Layer(Peculiar);

    /// A device whose result of each method differs from the default.
    #[derive(Debug)]
    struct Peculiar;

    impl Device for Peculiar {
        fn capacity(&self) -> u64 {
            7
        }

        fn limits(&self) -> DeviceLimits {
            DeviceLimits { block_size: 7, ..DeviceLimits::default() }
        }

        fn queue_depth(&self, io_size: usize) -> usize {
            io_size + 1
        }

        fn read_depth(&self, io_size: usize) -> usize {
            io_size + 2
        }

        fn attentions(&self) -> u64 {
            3
        }

        fn leaves(&self) -> Option<String> {
            Some("left".to_owned())
        }

        fn end_left<'a>(&'a self, left: &'a str) -> DeviceFuture<'a, ()> {
            Box::pin(async move { Err(DeviceError::new(DeviceErrorKind::Other, left)) })
        }

        fn is_settled(&self) -> bool {
            false
        }

        fn read_into(&self, _: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
            Box::pin(async move { Ok(buffer) })
        }

        fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn confirm(&self) -> DeviceFuture<'_, ()> {
            Box::pin(async { Err(DeviceErrorKind::AnotherDevice.into()) })
        }
    }

    impl Device for Layer {
        fn below(&self) -> Option<&dyn Device> {
            Some(&self.0)
        }

        fn capacity(&self) -> u64 {
            5
        }

        fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
            self.0.read_into(offset + 1, buffer)
        }

        fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
            self.0.write_at(offset + 1, pages)
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
            self.0.flush()
        }
    }

    #[tokio::test]
    async fn a_layer_answers_as_the_device_below_where_no_place_is_named() {
        let layer = Layer(Peculiar);
        assert_eq!((layer.capacity(), layer.limits()), (5, Peculiar.limits()));
        assert_eq!((layer.queue_depth(10), layer.read_depth(10)), (11, 12));
        assert_eq!((layer.attentions(), layer.is_settled()), (3, false));
        assert_eq!(layer.leaves().as_deref(), Some("left"));
        assert_eq!(layer.end_left("theirs").await.unwrap_err().to_string(), "theirs");
        assert_eq!(layer.confirm().await.unwrap_err().kind(), DeviceErrorKind::AnotherDevice);
        // The layer has no name of its own: that of the device below must not be used, because the layer may
        // hold data that the device below lacks.
        assert!(layer.name().unwrap().is_none() && layer.content_name().unwrap().is_none());
        assert_eq!(
            layer.first_extent(0, 9).await.unwrap_err().kind(),
            DeviceErrorKind::InvalidInput
        );
    }
}
