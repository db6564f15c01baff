//! A disk as a device of bytes.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Disk;
use crate::device::{BufferPool, Device, DeviceLimits, Extent, IoFuture};
use crate::error::Error;

impl Device for Disk {
    fn capacity(&self) -> u64 {
        self.capacity()
    }

    fn limits(&self) -> DeviceLimits {
        let profile = self.profile();
        let plan = self.unit().session().plan();
        let planned = plan.and_then(|plan| usize::try_from(plan.io_size.value).ok());
        let block_size = self.block_size();
        DeviceLimits {
            block_size,
            preferred_alignment: profile.capacity.physical_block_size.max(block_size.into()),
            preferred_transfer: planned.unwrap_or(usize::MAX).clamp(1, self.max_transfer()),
            max_transfer: self.max_transfer(),
            discard_granularity: self
                .has_unmap()
                .then(|| u64::from(self.granules().len) * u64::from(block_size)),
            has_fast_zeroes: self.has_fast_zeroes(),
            is_read_only: profile.write_protected,
            // It may have been switched on since the disk was opened.
            has_volatile_cache: profile.write_cache != Some(false)
                || self.unit.state().lock().durability.has_cache(),
        }
    }

    fn attentions(&self) -> u64 {
        self.attentions()
    }

    /// Returns the name of the initiator, and the ISIDs that the sessions of the disk may have;
    /// `None` for a disk that was opened over an existing session.
    fn leaves(&self) -> Option<String> {
        self.opener.as_ref().map(|opener| opener.leaves())
    }

    /// Logs in once under each of these ISIDs, and logs out again: at the login the target ends
    /// what is left of the session that had the ISID (RFC 7143 §6.3.5).
    fn end_left<'a>(&'a self, left: &'a str) -> IoFuture<'a, ()> {
        Box::pin(async move {
            let opener = self.opener.as_ref().ok_or(io::ErrorKind::Unsupported)?;
            opener.end_left(left).await
        })
    }

    fn is_settled(&self) -> bool {
        self.is_settled()
    }

    fn queue_depth(&self, io_size: usize) -> usize {
        self.queue_depth(io_size)
    }

    fn read_depth(&self, io_size: usize) -> usize {
        self.read_depth(io_size)
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> IoFuture<'_, BytesMut> {
        boxed(self.read_into(offset, buffer))
    }

    fn read_with(
        &self,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> IoFuture<'_, BytesMut> {
        boxed(self.read_with(offset, len, buffers))
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Bytes> {
        boxed(self.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> IoFuture<'_, ()> {
        boxed(self.write_at(offset, pages))
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        boxed(self.flush())
    }

    fn confirm(&self) -> IoFuture<'_, ()> {
        boxed(self.confirm_unit())
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        boxed(self.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        boxed(self.write_zeroes(offset, len))
    }

    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        boxed(self.write_allocated_zeroes(offset, len))
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<'_, Vec<Extent>> {
        boxed(self.extents(offset, len))
    }

    fn first_extent(&self, offset: u64, len: u64) -> IoFuture<'_, Option<Extent>> {
        boxed(self.first_extent(offset, len))
    }
}

fn boxed<'a, T>(request: impl Future<Output = Result<T, Error>> + Send + 'a) -> IoFuture<'a, T> {
    Box::pin(async move { request.await.map_err(io::Error::from) })
}
