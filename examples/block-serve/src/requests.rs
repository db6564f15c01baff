//! What becomes of a request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use iscsi_initiator::device::{Device, DeviceError, DeviceErrorKind, DeviceResult};
use iscsi_nbd::server::Replies;
use iscsi_nbd::{Command, MetaContext, Request};

use crate::export::{errno, failure, status};
use crate::losses::Told;

/// Bytes that are read at once for who wants them in memory soon.
const CACHED_AT_ONCE: u64 = 64 << 10;

/// What was asked for and done, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) clients: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

/// What the requests of one connection have in common.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) replies: Replies,
    pub(crate) contexts: Vec<MetaContext>,
    pub(crate) has_cache: bool,
    pub(crate) told: Told,
    pub(crate) counters: Arc<Counters>,
}

/// What goes out for a request: a head, and data behind it.
type Answer = (Bytes, Bytes);

impl Requests {
    /// Carries out a request with its data.
    pub(crate) async fn answer(&self, request: Request, data: Bytes) -> Answer {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        match self.carry_out(&request, data).await {
            Ok(answer) => answer,
            Err(error) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(?request, %error, "a request has failed");
                let reply = self.replies.error(request.cookie, errno(&error), &error.to_string());
                (reply, Bytes::new())
            }
        }
    }

    async fn carry_out(&self, request: &Request, data: Bytes) -> DeviceResult<Answer> {
        let (device, offset, len) = (&self.device, request.offset, u64::from(request.length));
        let told = self.told.count();
        let is_durable = match request.command {
            Command::Read { .. } => {
                let len = usize::try_from(len).map_err(io::Error::other)?;
                let data = device.read_at(offset, len).await?;
                self.counters.bytes_read.fetch_add(data.len() as u64, Ordering::Relaxed);
                return Ok((Bytes::from(self.replies.read(request)), data));
            }
            Command::BlockStatus { .. } => return self.block_status(request).await,
            Command::Write { fua } => {
                self.counters.bytes_written.fetch_add(len, Ordering::Relaxed);
                device.write_at(offset, vec![data]).await?;
                fua
            }
            Command::WriteZeroes { fua, no_hole, fast } => {
                self.write_zeroes(request, no_hole, fast).await?;
                fua
            }
            Command::Trim { fua } => {
                device.discard(offset, len).await?;
                fua
            }
            Command::Flush => {
                self.told.flush(&**device).await.map_err(as_loss)?;
                false
            }
            Command::Cache => {
                self.cache(offset, len).await?;
                false
            }
        };
        if is_durable {
            self.told.flush_for_write(&**device, told).await.map_err(as_loss)?;
        }
        Ok((Bytes::from(self.replies.done(request.cookie)), Bytes::new()))
    }

    async fn write_zeroes(&self, request: &Request, no_hole: bool, fast: bool) -> DeviceResult<()> {
        let (device, offset, len) = (&self.device, request.offset, u64::from(request.length));
        if fast && !device.limits().has_fast_zeroes {
            return Err(DeviceErrorKind::Unsupported.into());
        }
        if no_hole {
            device.write_allocated_zeroes(offset, len).await
        } else {
            device.write_zeroes(offset, len).await
        }
    }

    /// Reads what will be asked for soon, if there is a memory to keep it in.
    async fn cache(&self, offset: u64, len: u64) -> DeviceResult<()> {
        if !self.has_cache {
            return Ok(());
        }
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let count = (end - at).min(CACHED_AT_ONCE);
            self.device.read_at(at, usize::try_from(count).map_err(io::Error::other)?).await?;
            at += count;
        }
        Ok(())
    }

    async fn block_status(&self, request: &Request) -> DeviceResult<Answer> {
        let (offset, len) = (request.offset, u64::from(request.length));
        let extents = if matches!(request.command, Command::BlockStatus { one: true }) {
            self.device.first_extent(offset, len).await?.into_iter().collect()
        } else {
            self.device.extents(offset, len).await?
        };
        let mut answer = Vec::new();
        for (at, context) in (1..).zip(&self.contexts) {
            let is_done = at == self.contexts.len();
            let extents = extents.iter().map(status);
            let chunk = self.replies.block_status(request, context.id, extents, is_done);
            answer.extend_from_slice(&chunk.ok_or(DeviceErrorKind::InvalidInput)?);
        }
        Ok((answer.into(), Bytes::new()))
    }
}

/// A flush tells of earlier writes, once. A client that waits for room where there was none would flush again when there is
/// some, and hear that all is well.
fn as_loss(error: DeviceError) -> DeviceError {
    let is_full = failure(&error) == DeviceErrorKind::OutOfSpace;
    if is_full { error.with_kind(DeviceErrorKind::Other) } else { error }
}
