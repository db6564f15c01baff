//! Reads a disk: whole blocks from the socket directly into the caller's buffer, other ranges as parts of whole
//! blocks.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_multipath::max_transfer;
use iscsi_session::BufferPool;
use iscsi_tuner::ReadLimit;

use super::Disk;
use super::blocks::distance;
use crate::boxed::{BoxFuture, boxed};
use crate::error::Error;
use crate::handles::disk::join::{WIDTH, try_join};
use crate::unit::transfer::{Expected, Transfer};

/// Minimum length of the parts into which a traffic class splits a request, in bytes. Shorter parts would cost
/// more than a smoother rate is worth.
const MIN_SHAPED_LEN: usize = 4096;

impl Disk {
    /// Reads `len` bytes from `offset` on.
    ///
    /// While the disk is busy, the memory of a long read is reused for a later read, after every `Bytes` that
    /// shares the memory is dropped. To supply the buffer, use [`read_into`](Self::read_into).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the range does not lie on the disk, or as
    /// [`LogicalUnit::read`](crate::LogicalUnit::read).
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        let Some(blocks) = self.blocks_around(offset, len as u64)? else { return Ok(Bytes::new()) };
        let head = distance(blocks.start, offset);
        let buffers = self.paths.read_buffers();
        let data = buffers.lend(self.read_blocks(&blocks, buffers.clone()).await?);
        Ok(data.slice(head..head + len))
    }

    /// Reads from `offset` on into `buffer` and returns it filled; its length is the number of bytes to read.
    /// If offset and length are whole blocks, the bytes are read from the socket directly into the buffer;
    /// otherwise they are copied. The buffer is lost when the read fails.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the range does not lie on the disk, or as
    /// [`LogicalUnit::read`](crate::LogicalUnit::read).
    pub async fn read_into(&self, offset: u64, mut buffer: BytesMut) -> Result<BytesMut, Error> {
        let len = buffer.len() as u64;
        let Some(blocks) = self.blocks_around(offset, len)? else { return Ok(buffer) };
        if blocks == (offset..offset + len) {
            return self.fill(offset, buffer).await;
        }
        // Boxed to keep the outer future small: most callers read whole blocks, and do not come here.
        let data = Box::pin(self.read_at(offset, buffer.len())).await?;
        buffer.copy_from_slice(&data);
        Ok(buffer)
    }

    /// Reads `len` bytes from `offset` on into a buffer from the pool. If offset and length are
    /// whole blocks of one command, the buffer is taken when the first data arrives.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    pub async fn read_with(
        &self,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> Result<BytesMut, Error> {
        match self.blocks_around(offset, len as u64)? {
            Some(blocks) if blocks == (offset..offset + len as u64) => {
                self.read_blocks(&blocks, buffers).await
            }
            _ => Box::pin(self.read_into(offset, buffers.take(len))).await,
        }
    }

    /// Returns the bytes of the read buffers that are ready for reuse.
    #[cfg(test)]
    pub(crate) fn read_memory(&self) -> u64 {
        self.paths.read_buffers().bytes_ready()
    }

    /// Reads whole blocks into a buffer of the pool.
    async fn read_blocks(
        &self,
        blocks: &Range<u64>,
        buffers: Arc<dyn BufferPool>,
    ) -> Result<BytesMut, Error> {
        let len = distance(blocks.start, blocks.end);
        if len > self.longest_read_of(len) {
            return self.fill(blocks.start, buffers.take(len)).await;
        }
        let count = self.lba(len as u64);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let transfer = Transfer::read(&self.capacity, self.lba(blocks.start), count)?;
        self.read(transfer.with_buffers(buffers)).await
    }

    /// Reads whole blocks into a buffer.
    async fn fill(&self, offset: u64, buffer: BytesMut) -> Result<BytesMut, Error> {
        if buffer.len() > self.longest_read_of(buffer.len()) {
            // Boxed to keep the outer future small: most reads are short, and do not come here.
            return self.fill_in_parts(offset, buffer).await;
        }
        let transfer = Transfer::read_into(&self.capacity, self.lba(offset), buffer)?;
        self.read(transfer).await
    }

    /// Reads whole blocks into a buffer by several commands, and joins the parts without a copy. The length of
    /// each part is chosen when its command is sent: while little has arrived over the link, the parts are
    /// short.
    fn fill_in_parts(
        &self,
        offset: u64,
        mut buffer: BytesMut,
    ) -> BoxFuture<'_, Result<BytesMut, Error>> {
        /// Number of concurrent parts if the link limits the length of a read when the first part starts.
        const FEW: usize = 8;
        boxed(async move {
            let mut lba = self.lba(offset);
            let is_free = self.longest_read_of(buffer.len()) == self.longest_shaped();
            let parts = iter::from_fn(|| {
                let part = buffer.split_to(self.longest_read_of(buffer.len()).min(buffer.len()));
                let at = lba;
                lba += self.lba(part.len() as u64);
                (!part.is_empty()).then_some(async move {
                    self.read(Transfer::read_into(&self.capacity, at, part)?).await
                })
            });
            let mut whole = BytesMut::new();
            for part in try_join(if is_free { WIDTH } else { FEW }, parts).await? {
                whole.unsplit(part);
            }
            Ok(whole)
        })
    }

    /// Returns the length that suits one command of a read of `len` bytes, in bytes, a whole number of blocks.
    fn longest_read_of(&self, len: usize) -> usize {
        let longest = self.longest_shaped();
        if len <= ReadLimit::SHORTEST {
            return longest;
        }
        let max = usize::try_from(self.paths.max_read_len()).unwrap_or(usize::MAX);
        max_transfer(&self.profile, max).min(longest)
    }

    /// Returns the maximum length of one command, in bytes, a whole number of blocks. A traffic class limits the
    /// length, so that no request delays the others for long.
    pub(super) fn longest_shaped(&self) -> usize {
        let Some(max) = self.paths.policy().max_shaped_len() else { return self.max_transfer };
        let max = usize::try_from(max).unwrap_or(usize::MAX).max(MIN_SHAPED_LEN);
        max_transfer(&self.profile, max).min(self.max_transfer)
    }

    /// Sends a read command, and checks that its whole buffer was filled.
    pub(super) fn read(
        &self,
        transfer: Transfer,
    ) -> impl Future<Output = Result<BytesMut, Error>> + Send {
        self.request(transfer, Expected::all_read)
    }
}
