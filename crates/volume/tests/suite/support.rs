//! A device in memory whose errors and delays the tests control.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use iscsi_volume::device::{
    Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceLimits, DeviceResult, Extent,
    ExtentState,
};
use tokio::sync::watch;

/// A device in memory. Clones are handles of the same device, and a loss is reported to each handle.
#[derive(Debug)]
pub(crate) struct Memory {
    state: Arc<Mutex<State>>,
    gate: Arc<watch::Sender<bool>>,
    /// Number of losses that this handle does not report any more: those before it was created, and those that
    /// its flushes have reported.
    told: Mutex<u64>,
}

/// Data of the device, log of its requests, and settings of its behavior.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) bytes: Vec<u8>,
    /// For each grain, whether it holds no data.
    pub(crate) holes: Vec<bool>,
    pub(crate) limits: DeviceLimits,
    pub(crate) depth: fn(usize) -> usize,
    pub(crate) read_depth: Option<usize>,
    pub(crate) attentions: u64,
    /// Requests that have passed the gate, in order, including those that failed.
    pub(crate) log: Vec<(&'static str, Range<u64>)>,
    /// Addresses in memory of the data of writes and of the buffers of reads.
    pub(crate) places: Vec<Range<usize>>,
    /// The kind of request that fails, and its error.
    pub(crate) failing: Option<Failing>,
    /// How many times unflushed writes were lost.
    pub(crate) losses: u64,
    /// Number of requests that have begun, and have neither ended nor been dropped.
    pub(crate) under_way: usize,
    /// Number of bytes that are missing from the result of each read.
    pub(crate) shortens: usize,
}

/// A kind of request, and the error with which it fails.
pub(crate) type Failing = (&'static str, fn() -> DeviceError);

/// Unit in which extents are reported, in bytes.
pub(crate) const GRAIN: usize = 16 << 10;

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        let state = State {
            bytes: vec![0; len],
            holes: vec![true; len.div_ceil(GRAIN)],
            limits: DeviceLimits::default(),
            depth: |_| 1,
            read_depth: None,
            attentions: 0,
            log: Vec::new(),
            places: Vec::new(),
            failing: None,
            losses: 0,
            under_way: 0,
            shortens: 0,
        };
        let (gate, _) = watch::channel(true);
        Self { state: Arc::new(Mutex::new(state)), gate: Arc::new(gate), told: Mutex::new(0) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Opens or closes the gate: requests proceed while it is open, and wait while it is closed.
    pub(crate) fn open(&self, is_open: bool) {
        self.gate.send_replace(is_open);
    }

    /// Waits for the gate, logs the request, and applies `act` to its range.
    async fn request<T>(
        &self,
        kind: &'static str,
        range: Range<u64>,
        act: impl FnOnce(&mut State, Range<usize>) -> T,
    ) -> DeviceResult<T> {
        let _under_way = UnderWay::begin(&self.state);
        self.gate.subscribe().wait_for(|is_open| *is_open).await.unwrap();
        let mut state = self.lock();
        state.log.push((kind, range.clone()));
        match state.failing {
            Some((failing, error)) if failing == kind => return Err(error()),
            _ => {}
        }
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        assert!(range.end <= state.bytes.len(), "{range:?} does not lie on the device");
        Ok(act(&mut state, range))
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        let told = Mutex::new(self.lock().losses);
        Self { state: Arc::clone(&self.state), gate: Arc::clone(&self.gate), told }
    }
}

/// Counts a request while it is in flight.
struct UnderWay(Arc<Mutex<State>>);

impl UnderWay {
    fn begin(state: &Arc<Mutex<State>>) -> Self {
        state.lock().unwrap().under_way += 1;
        Self(Arc::clone(state))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().unwrap().under_way -= 1;
    }
}

impl State {
    fn set(&mut self, range: Range<usize>, byte: u8, is_hole: bool) {
        self.bytes[range.clone()].fill(byte);
        let whole = range.start.div_ceil(GRAIN)..range.end / GRAIN;
        let touched = range.start / GRAIN..range.end.div_ceil(GRAIN);
        let changed = if is_hole { whole } else { touched };
        for grain in changed {
            self.holes[grain] = is_hole;
        }
    }
}

fn place(bytes: &[u8]) -> Range<usize> {
    let range = bytes.as_ptr_range();
    range.start.addr()..range.end.addr()
}

impl Device for Memory {
    fn capacity(&self) -> u64 {
        self.lock().bytes.len() as u64
    }

    fn limits(&self) -> DeviceLimits {
        self.lock().limits
    }

    fn queue_depth(&self, io_size: usize) -> usize {
        (self.lock().depth)(io_size)
    }

    fn read_depth(&self, io_size: usize) -> usize {
        let own = self.lock().read_depth;
        own.unwrap_or_else(|| self.queue_depth(io_size))
    }

    fn attentions(&self) -> u64 {
        self.lock().attentions
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        let range = offset..offset + buffer.len() as u64;
        Box::pin(self.request("read", range, move |state, range| {
            state.places.push(place(&buffer));
            buffer.copy_from_slice(&state.bytes[range]);
            buffer.truncate(buffer.len() - state.shortens);
            buffer
        }))
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        let data = pages.concat();
        let range = offset..offset + data.len() as u64;
        Box::pin(self.request("write", range, move |state, range| {
            state.places.extend(pages.iter().map(|page| place(page)));
            state.set(range.clone(), 0, false);
            state.bytes[range].copy_from_slice(&data);
        }))
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let losses = self.request("flush", 0..0, |state, _| state.losses).await?;
            let mut told = self.told.lock().unwrap();
            let is_told = std::mem::replace(&mut *told, losses) == losses;
            if is_told { Ok(()) } else { Err(DeviceErrorKind::LostWrites.into()) }
        })
    }

    fn confirm(&self) -> DeviceFuture<'_, ()> {
        Box::pin(self.request("confirm", 0..0, |_, _| ()))
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(self.request("discard", offset..offset + len, |state, range| {
            // Only whole grains are deallocated.
            let start = range.start.next_multiple_of(GRAIN);
            let end = range.end / GRAIN * GRAIN;
            if start < end {
                state.set(start..end, 0, true);
            }
        }))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(self.request("zero", offset..offset + len, |state, range| {
            state.set(range, 0, true);
        }))
    }

    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(self.request("allocate", offset..offset + len, |state, range| {
            state.set(range, 0, false);
        }))
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(self.request("extents", offset..offset + len, |state, range| {
            let mut extents: Vec<Extent> = Vec::new();
            let mut at = range.start;
            while at < range.end {
                let end = ((at / GRAIN + 1) * GRAIN).min(range.end);
                let is_hole = state.holes[at / GRAIN];
                let told = if is_hole { ExtentState::Deallocated } else { ExtentState::Data };
                match extents.last_mut() {
                    Some(last) if last.state == told => last.len += (end - at) as u64,
                    _ => extents.push(Extent::new(at as u64, (end - at) as u64, told)),
                }
                at = end;
            }
            extents
        }))
    }
}

/// Returns pseudo-random bytes, so that a test notices misplaced data.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}
