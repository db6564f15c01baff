//! Presents a part of a device as a device.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_block_device::{
    BufferPool, Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceResult, Extent,
};

/// A range of a device, as a device of its own.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    device: Arc<dyn Device>,
    range: Range<u64>,
}

impl Window {
    /// Creates a window of `range`. The part of `range` beyond the end of the device is left out.
    pub(crate) fn new(device: Arc<dyn Device>, range: Range<u64>) -> Self {
        let end = range.end.min(device.capacity());
        Self { device, range: range.start.min(end)..end }
    }

    /// Returns the device offset of a range in the window.
    fn place(&self, offset: u64, len: u64) -> DeviceResult<u64> {
        let start = self.range.start.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(len));
        start.filter(|_| end.is_some_and(|end| end <= self.range.end)).ok_or_else(|| {
            DeviceError::new(
                DeviceErrorKind::InvalidInput,
                "the range does not lie on the part of the device",
            )
        })
    }
}

impl Device for Window {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.device)
    }

    fn capacity(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            let place = self.place(offset, buffer.len() as u64)?;
            self.device.read_into(place, buffer).await
        })
    }

    fn read_with(
        &self,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            self.device.read_with(self.place(offset, len as u64)?, len, buffers).await
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let len: usize = pages.iter().map(Bytes::len).sum();
            self.device.write_at(self.place(offset, len as u64)?, pages).await
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move { self.device.discard(self.place(offset, len)?, len).await })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move { self.device.write_zeroes(self.place(offset, len)?, len).await })
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(async move {
            let mut extents = self.device.extents(self.place(offset, len)?, len).await?;
            extents.retain(|extent| extent.offset >= self.range.start);
            extents.iter_mut().for_each(|extent| extent.offset -= self.range.start);
            Ok(extents)
        })
    }

    fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
        Box::pin(async move {
            let first = self.device.first_extent(self.place(offset, len)?, len).await?;
            Ok(first.map(|found| Extent::new(offset, found.len, found.state)))
        })
    }
}
