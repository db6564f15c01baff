//! A cache of a device, which keeps read data in memory and reads ahead.
//!
//! Use it only for a unit that no other host writes to: it does not see the changes of other hosts. A write
//! through this device removes its bytes from the cache when it begins and again when it ends, so that no
//! concurrent read leaves old data there. The bytes of a failed write are not cached, because the unit may
//! still execute that write, until a later write of the same bytes has succeeded.
//!
//! A report of the device ([`Device::attentions`]: resets, losses, another size, another unit) empties the
//! cache, and the data of reads in flight are not cached. A device reports only in response to a request. So
//! while all reads are served from memory, the cache sends it a request from time to time.
//!
//! Design: `docs/design/serving.md`.

mod chunks;
mod fills;
mod known_extents;
mod streams;
mod uncertain;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::{Device, DeviceFuture, DeviceResult, Extent, ExtentState};
use tokio::time::Instant;

use chunks::Chunks;
use fills::{Fill, Fills};
use known_extents::KnownExtents;
use streams::Streams;
use uncertain::Uncertain;

/// Bytes of the longest read that is cached. Longer reads fill the link without a cache, and would evict data
/// that are needed again.
const MAX_KEPT_READ: usize = 128 << 10;
/// Least number of bytes in a request for extents.
const EXTENTS_ASKED: u64 = 256 << 20;
/// After this time without a request to the device, a read from memory causes a request, so that the device can
/// report changes.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// A device with a cache of its data, and of its extents.
#[derive(Debug)]
pub struct Cache {
    shared: Arc<Shared>,
    device: Arc<dyn Device>,
}

/// Statistics of a cache. All numbers count bytes since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes requested by reads that the cache serves.
    pub asked: u64,
    /// Bytes in memory when reads requested them; a part of `asked`.
    pub found: u64,
    /// Bytes that were read ahead of a request.
    pub read_ahead: u64,
    /// Bytes of reads that bypassed the cache, because they are too long.
    pub passed_by: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The device whose reports are counted. The requests go to the device of each handle.
    device: Arc<dyn Device>,
}

#[derive(Debug)]
struct State {
    /// Number of the device's reports when the cached data were read.
    attentions: u64,
    chunks: Chunks,
    extents: KnownExtents,
    /// Reads of the device in flight. `questions` has the requests for its extents.
    fills: Fills,
    questions: Fills,
    streams: Streams,
    stats: CacheStats,
    /// Time of the last request to the device.
    asked: Instant,
    /// Ranges of failed changes that the device may still execute.
    uncertain: Uncertain,
}

/// The next step in serving a read.
enum Step {
    /// All bytes were in memory, and are in the buffer.
    Ready,
    /// A read of some of these bytes is in flight: wait for it.
    Wait(Arc<Fill>),
    /// This range of the device must be read.
    Fill(Filling),
}

impl CacheStats {
    /// Returns the share of the requested bytes that were in memory, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of some digits")]
    pub fn hit_rate(&self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.found as f64 / self.asked as f64 }
    }
}

impl Cache {
    /// Creates a cache of `bytes` bytes in front of a device.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, bytes: u64) -> Self {
        let state = State {
            attentions: device.attentions(),
            chunks: Chunks::new(device.limits().block_size, device.capacity(), bytes),
            extents: KnownExtents::default(),
            fills: Fills::default(),
            questions: Fills::default(),
            // Half of the memory is for data that were requested once, and data that were read ahead. At most a
            // quarter of that half is for one reader.
            streams: Streams::new(bytes / 8),
            stats: CacheStats::default(),
            asked: Instant::now(),
            uncertain: Uncertain::default(),
        };
        let shared = Shared { state: Mutex::new(state), device: Arc::clone(&device) };
        Self { shared: Arc::new(shared), device }
    }

    /// Creates another handle of the same cache. `device` is a separate handle of the same device.
    #[must_use]
    pub fn handle(&self, device: Arc<dyn Device>) -> Self {
        Self { shared: Arc::clone(&self.shared), device }
    }

    /// Returns the statistics of the cache.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.shared.lock().stats
    }

    /// Empties the cache.
    pub fn clear(&self) {
        self.shared.lock().forget_all();
    }

    async fn read(&self, offset: u64, mut buffer: BytesMut) -> DeviceResult<BytesMut> {
        let range = offset..offset + buffer.len() as u64;
        if buffer.len() > MAX_KEPT_READ || range.end > self.kept_capacity() {
            self.shared.lock().stats.passed_by += buffer.len() as u64;
            return self.device.read_into(offset, buffer).await;
        }
        let ahead = self.shared.lock().begin_read(&range);
        if let Some(ahead) = ahead {
            let further = self.handle(Arc::clone(&self.device));
            tokio::spawn(async move { drop(further.keep(ahead, None).await) });
        }
        self.keep(range, Some(&mut buffer)).await?;
        Ok(buffer)
    }

    /// Returns the end of the range that may be cached. If the device has grown since it was opened, the new
    /// part is not cached.
    fn kept_capacity(&self) -> u64 {
        self.shared.lock().chunks.capacity().min(self.device.capacity())
    }

    /// Asks the device to confirm its identity, if it has received no request for [`MAX_SILENCE`]. This does
    /// not wait for the response: the next request receives the report or the error.
    fn break_silence(&self) {
        {
            let mut state = self.shared.lock();
            if state.asked.elapsed() < MAX_SILENCE {
                return;
            }
            state.asked = Instant::now();
        }
        let device = Arc::clone(&self.device);
        tokio::spawn(async move {
            if let Err(error) = device.confirm().await {
                tracing::debug!(%error, "the unit does not say that it is what it was");
            }
        });
    }

    /// Reads the bytes of a range that are not in memory, and copies the range to `buffer`.
    async fn keep(&self, range: Range<u64>, mut buffer: Option<&mut BytesMut>) -> DeviceResult<()> {
        loop {
            match self.shared.next_step(&range, buffer.as_deref_mut()) {
                Step::Ready => {
                    self.break_silence();
                    return Ok(());
                }
                Step::Wait(fill) => fill.ended().await,
                Step::Fill(filling) => {
                    let missing = filling.fill.range.clone();
                    let len = usize::try_from(missing.end - missing.start).unwrap_or(usize::MAX);
                    let data = self.device.read_at(missing.start, len).await?;
                    if let Some(buffer) = buffer.as_deref_mut() {
                        chunks::copy_overlap(missing.start, &data, range.start, buffer);
                    }
                    let is_of_one_time = filling.end(&data);
                    let is_whole = missing.start <= range.start && range.end <= missing.end;
                    if let Some(buffer) = buffer.filter(|_| !is_of_one_time && !is_whole) {
                        // The device has reported a change meanwhile, so the bytes from memory may be older
                        // than the bytes just read. The whole range is read again.
                        let data = self.device.read_at(range.start, buffer.len()).await?;
                        buffer.copy_from_slice(&data);
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Executes a change of a range. `becomes` is the state of the range's extent after it, if known.
    async fn change(
        &self,
        range: Range<u64>,
        becomes: Option<ExtentState>,
        change: DeviceFuture<'_, ()>,
    ) -> DeviceResult<()> {
        {
            let mut state = self.shared.lock();
            state.forget(&range, becomes);
            state.asked = Instant::now();
        }
        let changing = Changing { shared: &self.shared, range, becomes, has_ended_well: false };
        let result = change.await;
        changing.end(result.is_ok());
        result
    }
}

impl Shared {
    /// Locks the state. If the device has reported something, empties the cache first.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clear_if_changed(self.device.attentions());
        state
    }

    fn next_step(self: &Arc<Self>, range: &Range<u64>, buffer: Option<&mut BytesMut>) -> Step {
        let mut state = self.lock();
        let Some(missing) = state.chunks.missing(range) else {
            if let Some(buffer) = buffer {
                state.chunks.copy(range, buffer);
            }
            return Step::Ready;
        };
        if let Some(fill) = state.fills.overlapping(&missing) {
            return Step::Wait(fill);
        }
        if let Some(buffer) = buffer {
            state.chunks.copy(range, buffer);
        }
        state.asked = Instant::now();
        let fill = state.fills.begin(missing);
        Step::Fill(Filling { shared: Arc::clone(self), fill, attentions: state.attentions })
    }
}

impl State {
    /// Records a read. Returns the range to read ahead, if any.
    fn begin_read(&mut self, range: &Range<u64>) -> Option<Range<u64>> {
        self.stats.asked += range.end - range.start;
        self.stats.found += self.chunks.present(range);
        let ahead = self.streams.advance(range)?;
        let ahead = ahead.start..ahead.end.min(self.chunks.capacity());
        if ahead.is_empty() || !self.uncertain.within(&ahead).is_empty() {
            return None;
        }
        self.stats.read_ahead += ahead.end - ahead.start;
        Some(ahead)
    }

    fn forget(&mut self, range: &Range<u64>, becomes: Option<ExtentState>) {
        self.fills.spoil(range);
        self.questions.spoil(range);
        self.chunks.remove(range);
        self.extents.replace(range, becomes);
    }

    /// Empties the cache if the device has sent reports since the cached data were read.
    fn clear_if_changed(&mut self, attentions: u64) {
        if self.attentions != attentions {
            tracing::debug!("the unit may have changed: what was read before is not kept");
            self.attentions = attentions;
            self.forget_all();
        }
    }

    fn forget_all(&mut self) {
        self.forget(&(0..u64::MAX), None);
    }
}

/// A read of the device that fills the cache. Dropping it ends the wait of other readers for it.
struct Filling {
    shared: Arc<Shared>,
    fill: Arc<Fill>,
    /// Number of the device's reports when the read began.
    attentions: u64,
}

impl Filling {
    /// Caches the data that were read. Returns whether the device has sent no report since the read began.
    fn end(self, data: &Bytes) -> bool {
        let mut state = self.shared.lock();
        if state.fills.is_sound(&self.fill) {
            state.chunks.insert(self.fill.range.start, data);
            for part in state.uncertain.within(&self.fill.range) {
                state.chunks.remove(&part);
            }
        }
        state.attentions == self.attentions
    }

    /// Caches the extents that the device reported.
    fn end_extents(self, extents: &[Extent]) {
        let mut state = self.shared.lock();
        if state.questions.is_sound(&self.fill) {
            state.extents.insert(extents);
            for part in state.uncertain.within(&self.fill.range) {
                state.extents.replace(&part, None);
            }
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.fills.end(&self.fill);
        state.questions.end(&self.fill);
    }
}

/// A change in flight. If this is dropped before `end`, the change counts as failed: the device may still
/// execute it.
struct Changing<'a> {
    shared: &'a Shared,
    range: Range<u64>,
    becomes: Option<ExtentState>,
    has_ended_well: bool,
}

impl Changing<'_> {
    fn end(mut self, is_well: bool) {
        self.has_ended_well = is_well;
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if self.has_ended_well {
            state.forget(&self.range, self.becomes);
            state.uncertain.record_success(&self.range);
        } else {
            state.forget(&self.range, None);
            state.uncertain.add(&self.range);
        }
    }
}

impl Cache {
    /// Returns the extents of a range. Requests at least [`EXTENTS_ASKED`] bytes and caches the result, because
    /// some clients request one extent after the other.
    async fn query_extents(&self, offset: u64, len: u64, most: usize) -> DeviceResult<Vec<Extent>> {
        let range = offset..offset.saturating_add(len);
        let filling = {
            let mut state = self.shared.lock();
            if let Some(extents) = state.extents.of(&range, most) {
                drop(state);
                self.break_silence();
                return Ok(extents);
            }
            state.asked = Instant::now();
            let left = self.device.capacity().saturating_sub(offset);
            let fill =
                state.questions.begin(offset..offset + len.max(EXTENTS_ASKED).min(left).max(len));
            Filling { shared: Arc::clone(&self.shared), fill, attentions: state.attentions }
        };
        let asked = filling.fill.range.clone();
        let extents = self.device.extents(offset, asked.end - asked.start).await?;
        let answer = known_extents::cut(&extents, &range);
        filling.end_extents(&extents);
        Ok(answer)
    }
}

impl Device for Cache {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.device)
    }

    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(self.read(offset, buffer))
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        let len: usize = pages.iter().map(Bytes::len).sum();
        let range = offset..offset.saturating_add(len as u64);
        let write = self.device.write_at(offset, pages);
        Box::pin(self.change(range, Some(ExtentState::Data), write))
    }

    /// Flushes the device. If that fails, the unit may have lost writes, so the cache is emptied.
    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let result = self.device.flush().await;
            if result.is_err() {
                self.clear();
            }
            result
        })
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        let range = offset..offset.saturating_add(len);
        Box::pin(self.change(range, None, self.device.discard(offset, len)))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        let range = offset..offset.saturating_add(len);
        Box::pin(self.change(range, None, self.device.write_zeroes(offset, len)))
    }

    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        let range = offset..offset.saturating_add(len);
        Box::pin(self.change(range, None, self.device.write_allocated_zeroes(offset, len)))
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(self.query_extents(offset, len, Extent::MAX_REPORTED))
    }

    /// Returns the first extent of a range. Requests more than one from the device: the next call finds its
    /// result in the cache.
    fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
        Box::pin(async move { Ok(self.query_extents(offset, len, 1).await?.first().copied()) })
    }
}
#[cfg(test)]
mod tests;
