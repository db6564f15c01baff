//! Answers writes before the device has them. The memory of these writes is the write-behind window.
//!
//! Without the window, a client with few requests in flight waits a round trip for each write. With it, the
//! client waits only for the rate of the link. The window behaves like a page cache: every later read sees an
//! answered write, and the write is safe after the next flush. If a write fails after it was answered, only a
//! flush can report that, once for each handle.
//!
//! Design: `docs/design/serving.md`.

mod failures;
mod pending;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::{
    Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceLimits, DeviceResult, Extent,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use failures::is_loss;
use failures::{Failures, Run};
use pending::{Content, Entry, Pending};

/// Bytes of the window that a change without data takes.
const ENTRY_LEN: u64 = 4096;

/// A device whose writes are answered immediately, while the window has room for them.
///
/// Writes to the same bytes reach the device one after the other, in the order in which they were answered. All
/// [handles](Self::handle) share the window.
#[derive(Debug)]
pub struct WriteBehind {
    shared: Arc<Shared>,
    device: Arc<dyn Device>,
    /// Number of failures that this handle has reported already, or need not report.
    reported: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    /// One permit per free byte of the window.
    room: Arc<Semaphore>,
    /// Size of the window in bytes.
    size: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pending: Pending,
    failures: Failures,
}

impl WriteBehind {
    /// Creates a window of `window` bytes, at least 4 KiB, in front of a device.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, window: u32) -> Self {
        let size = window.max(u32::try_from(ENTRY_LEN).unwrap_or(u32::MAX));
        let room = Arc::new(Semaphore::new(size as usize));
        let shared = Shared { room, size, state: Mutex::default() };
        Self { shared: Arc::new(shared), device, reported: AtomicU64::new(0) }
    }

    /// Creates a further handle, which reports each later failure as well. Of earlier failures it reports only
    /// those that no handle has reported. `device` is a separate handle of the same device.
    #[must_use]
    pub fn handle(&self, device: Arc<dyn Device>) -> Self {
        let reported = AtomicU64::new(self.shared.lock().failures.reported_before_new_handle());
        Self { shared: Arc::clone(&self.shared), device, reported }
    }

    /// Returns how many bytes of the window the changes take that are not on the device yet. Each takes at least 4 KiB.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        u64::from(self.shared.size) - self.shared.room.available_permits() as u64
    }

    /// Returns the number of changes that have failed after they were answered, since the start.
    #[must_use]
    pub fn failed_changes(&self) -> u64 {
        self.shared.lock().failures.count()
    }

    /// Begins a change of the device, when the window has room for it. The change continues even if the caller
    /// does not wait for its end.
    async fn begin(&self, range: Range<u64>, content: Content, is_answered: bool) -> Running {
        let len = content.len().max(ENTRY_LEN).min(self.shared.size.into());
        let room = Arc::clone(&self.shared.room);
        let room = room.acquire_many_owned(u32::try_from(len).unwrap_or(u32::MAX)).await;
        let (entry, before) = self.shared.lock().pending.push(range, content);
        let change = Change {
            shared: Arc::clone(&self.shared),
            entry: Arc::clone(&entry),
            is_answered,
            is_over: false,
            _room: room.ok(),
        };
        let device = Arc::clone(&self.device);
        Running(tokio::spawn(change.carry_out(device, before)))
    }

    /// Changes a range. Returns as soon as the change is in the window. Only if it cannot succeed, because it
    /// is out of range or the device is read-only, waits for the error.
    async fn change(&self, offset: u64, len: u64, content: Content) -> DeviceResult<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.device.capacity());
        let is_possible = end.is_some() && !self.device.limits().is_read_only;
        let running = self.begin(offset..offset.saturating_add(len), content, is_possible).await;
        if is_possible { Ok(()) } else { running.end().await }
    }

    async fn read(&self, offset: u64, mut buffer: BytesMut) -> DeviceResult<BytesMut> {
        let range = offset..offset + buffer.len() as u64;
        let over = self.shared.lock().pending.overlapping(&range);
        if !pending::cover(&over, &range) {
            buffer = self.device.read_into(offset, buffer).await?;
        }
        pending::overlay(&over, offset, &mut buffer);
        Ok(buffer)
    }

    async fn flush_all(&self) -> DeviceResult<()> {
        // Read before the flush, so that concurrent flushes of one handle report the same failures.
        let reported = self.reported.load(Ordering::SeqCst);
        let before = self.shared.lock().pending.all();
        for entry in before {
            entry.ended().await;
        }
        let flushed = self.device.flush().await;
        let failed = {
            let mut state = self.shared.lock();
            let (count, failure) = state.failures.report_to_handle(reported);
            self.reported.fetch_max(count, Ordering::SeqCst);
            failure
        };
        // If this flush has a temporary error, the recorded failure replaces it: after a temporary error the
        // client would flush again, and that flush would succeed.
        failed.map_or(flushed, Err)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that executes a change.
struct Running(tokio::task::JoinHandle<DeviceResult<()>>);

impl Running {
    async fn end(self) -> DeviceResult<()> {
        self.0.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }
}

/// A change in flight. Dropping it ends the change. If the device has not responded by then, the change counts
/// as failed.
struct Change {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
    /// Whether the caller was answered already and so cannot receive the result.
    is_answered: bool,
    /// Whether the device has answered.
    is_over: bool,
    _room: Option<OwnedSemaphorePermit>,
}

impl Change {
    async fn carry_out(
        mut self,
        device: Arc<dyn Device>,
        before: Vec<Arc<Entry>>,
    ) -> DeviceResult<()> {
        for earlier in before {
            earlier.ended().await;
        }
        let Range { start, end } = self.entry.range;
        let result = match &self.entry.content {
            Content::Data(pages) => device.write_at(start, pages.clone()).await,
            Content::Zeros => device.write_zeroes(start, end - start).await,
            Content::AllocatedZeros => device.write_allocated_zeroes(start, end - start).await,
            Content::Unknown => device.discard(start, end - start).await,
        };
        match result {
            Ok(()) => self.record_success(),
            // Recorded before it is logged, because a subscriber of the log may panic.
            Err(error) if self.is_answered => self.record_failure(error),
            Err(error) => {
                self.is_over = true;
                return Err(error);
            }
        }
        self.is_over = true;
        Ok(())
    }

    fn record_success(&self) {
        let run = self.shared.lock().failures.end_run();
        if let Some(Run { writes, bytes }) = run {
            tracing::warn!(
                "writes reach the unit again; {writes} of them that were answered before, {bytes} bytes, have failed"
            );
        }
    }

    /// Records a failure for the next flush of each handle, because the caller was answered already.
    fn record_failure(&self, error: DeviceError) {
        let Range { start, end } = self.entry.range;
        let why = error.to_string();
        let is_first = self.shared.lock().failures.add(error, end - start);
        if is_first {
            tracing::error!(offset = start, len = end - start, error = %why, "a write that was answered has failed");
        } else {
            tracing::debug!(offset = start, len = end - start, error = %why, "so has another one");
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if self.is_answered && !self.is_over {
            let Range { start, end } = self.entry.range;
            let given_up = DeviceError::new(DeviceErrorKind::Other, "it was given up");
            state.failures.add(given_up, end - start);
        }
        state.pending.remove(&self.entry);
        drop(state);
        self.entry.end();
    }
}

impl Device for WriteBehind {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.device)
    }

    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn limits(&self) -> DeviceLimits {
        let mut limits = self.device.limits();
        limits.has_volatile_cache = true;
        limits
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(self.read(offset, buffer))
    }

    /// Waits until the window has room for the data.
    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let content = Content::Data(pages);
            let len = content.len();
            self.change(offset, len, content).await
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(self.flush_all())
    }

    /// Waits until the device has executed the discard. A failed discard loses no data, so its result is
    /// returned to the caller.
    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            self.begin(offset..offset.saturating_add(len), Content::Unknown, false)
                .await
                .end()
                .await
        })
    }

    /// Waits until the window has room for one more change.
    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(self.change(offset, len, Content::Zeros))
    }

    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(self.change(offset, len, Content::AllocatedZeros))
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(async move {
            let range = offset..offset + len;
            let over = self.shared.lock().pending.overlapping(&range);
            let extents = self.device.extents(offset, len).await?;
            Ok(pending::as_data(&over, extents))
        })
    }

    fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
        Box::pin(async move {
            let over = self.shared.lock().pending.overlapping(&(offset..offset + len));
            let first = self.device.first_extent(offset, len).await?;
            Ok(pending::as_data(&over, first.into_iter().collect()).first().copied())
        })
    }
}

#[cfg(test)]
mod tests;
