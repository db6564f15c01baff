//! A device in memory that completes requests in any order, reports its holes, and loses unflushed writes;
//! and a temporary folder for each test.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod nbd;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_copy::device::{
    Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceLimits, DeviceResult, Extent,
    ExtentState,
};
use nix::errno::Errno;

/// A device in memory. Clones are the same device.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct State {
    /// The data that reads return.
    pub(crate) bytes: Vec<u8>,
    /// The data after a loss of the cache.
    medium: Vec<u8>,
    /// Whether each grain reads as zeros.
    holes: Vec<bool>,
    pub(crate) limits: DeviceLimits,
    /// Number of coming flushes that lose the unflushed writes, and report that.
    pub(crate) losses: usize,
    /// The writes of data so far: offset and length.
    pub(crate) writes: Vec<(u64, u64)>,
    /// The ranges zeroed so far: offset and length.
    pub(crate) zeroed: Vec<(u64, u64)>,
    pub(crate) reads: Vec<(u64, u64)>,
    pub(crate) flushes: usize,
    /// Whether another device has taken the place of this one.
    pub(crate) is_other: bool,
    /// Current and largest number of requests in flight, without extent queries.
    pub(crate) under_way: (usize, usize),
    /// A request that touches this byte fails.
    pub(crate) fails_at: Option<u64>,
    /// Reads of these grains fail with a medium error.
    pub(crate) bad_grains: Vec<u64>,
    /// Whether reads panic, as in a device with a bug.
    pub(crate) panics: bool,
    /// Whether every flush fails.
    pub(crate) fails_flush: bool,
    /// Number of coming flushes that fail.
    pub(crate) failing_flushes: usize,
    /// Whether extent queries that have begun do not end.
    pub(crate) holds_extents: bool,
    /// Whether writes that have begun do not end.
    pub(crate) holds_writes: bool,
    /// Whether flushes that have begun do not end.
    pub(crate) holds_flushes: bool,
    /// The reported queue depth, and the depth for short requests if it differs.
    pub(crate) depth: usize,
    pub(crate) short_depth: Option<usize>,
    pub(crate) read_depth: Option<usize>,
    /// Number of extent queries so far.
    pub(crate) questions: usize,
    /// Largest number of extents in one result.
    pub(crate) extents_at_once: usize,
    /// A file, and a function that checks it before each write.
    pub(crate) watch: Option<(PathBuf, Watch)>,
    random: u64,
}

/// A function that checks a file before a write: path, offset, length.
pub(crate) type Watch = fn(&Path, u64, u64);

/// Holes are multiples of this length, bytes.
pub(crate) const GRAIN: usize = 512;

impl Memory {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut limits = DeviceLimits::default();
        limits.has_fast_zeroes = true;
        limits.preferred_transfer = 4096;
        let holes = bytes.chunks(GRAIN).map(|grain| grain.iter().all(|byte| *byte == 0)).collect();
        Self(Arc::new(Mutex::new(State {
            medium: bytes.clone(),
            bytes,
            holes,
            limits,
            losses: 0,
            writes: Vec::new(),
            zeroed: Vec::new(),
            reads: Vec::new(),
            flushes: 0,
            is_other: false,
            under_way: (0, 0),
            fails_at: None,
            bad_grains: Vec::new(),
            panics: false,
            fails_flush: false,
            failing_flushes: 0,
            holds_extents: false,
            holds_writes: false,
            holds_flushes: false,
            depth: 4,
            short_depth: None,
            read_depth: None,
            questions: 0,
            extents_at_once: usize::MAX,
            watch: None,
            random: 1,
        })))
    }

    pub(crate) fn blank(len: usize) -> Self {
        Self::new(vec![0; len])
    }

    /// Creates a device whose cache has only zeros, while the medium has the bytes `medium`.
    pub(crate) fn emptied(medium: Vec<u8>) -> Self {
        let device = Self::blank(medium.len());
        device.lock().limits.has_volatile_cache = true;
        device.lock().medium = medium;
        device
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Makes the device report all holes as data.
    pub(crate) fn without_extents(self) -> Self {
        self.lock().holes.fill(false);
        self
    }

    /// Returns the data that would remain after a power failure.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.lock().medium.clone()
    }

    /// Simulates a power failure: everything unflushed is lost.
    pub(crate) fn lose_unflushed(&self) {
        let mut state = self.lock();
        state.bytes = state.medium.clone();
        state.under_way.0 = 0;
    }

    /// Writes as another program would, durably.
    pub(crate) fn put(&self, offset: usize, data: &[u8]) {
        let mut state = self.lock();
        let range = offset..offset + data.len();
        state.bytes[range.clone()].copy_from_slice(data);
        state.medium[range.clone()].copy_from_slice(data);
        state.holes[range.start / GRAIN..range.end.div_ceil(GRAIN)].fill(false);
    }

    fn call_watch(&self, offset: u64, len: u64) {
        if let Some((path, look)) = self.lock().watch.clone() {
            look(&path, offset, len);
        }
    }

    async fn dawdle(&self) {
        self.dawdle_while(|_| false).await;
    }

    async fn dawdle_while(&self, is_held: impl Fn(&State) -> bool) {
        {
            let mut state = self.lock();
            state.under_way.0 += 1;
            state.under_way.1 = state.under_way.1.max(state.under_way.0);
        }
        self.wait_while(is_held).await;
        self.lock().under_way.0 -= 1;
    }

    async fn wait_while(&self, is_held: impl Fn(&State) -> bool) {
        let millis = {
            let mut state = self.lock();
            state.random = state.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.random >> 58
        };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        while is_held(&self.lock()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl State {
    fn check(&self, offset: u64, len: u64) -> DeviceResult<std::ops::Range<usize>> {
        if self.fails_at.is_some_and(|at| (offset..offset + len).contains(&at)) {
            return Err(DeviceError::new(DeviceErrorKind::Other, "a bad block"));
        }
        let range = offset as usize..(offset + len) as usize;
        assert!(range.end <= self.bytes.len(), "{range:?} of {}", self.bytes.len());
        Ok(range)
    }
}

impl Device for Memory {
    fn capacity(&self) -> u64 {
        self.lock().bytes.len() as u64
    }

    fn limits(&self) -> DeviceLimits {
        self.lock().limits
    }

    fn read_depth(&self, io_size: usize) -> usize {
        let own = self.lock().read_depth;
        own.unwrap_or_else(|| self.queue_depth(io_size))
    }

    fn queue_depth(&self, io_size: usize) -> usize {
        let state = self.lock();
        let is_short = io_size < state.limits.preferred_transfer;
        state.short_depth.filter(|_| is_short).unwrap_or(state.depth)
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            self.dawdle().await;
            let mut state = self.lock();
            // A panic while the state is locked would poison the lock.
            if state.panics {
                drop(state);
                panic!("a bug of the device");
            }
            let range = state.check(offset, buffer.len() as u64)?;
            state.reads.push((offset, buffer.len() as u64));
            let grains =
                offset / GRAIN as u64..(offset + buffer.len() as u64).div_ceil(GRAIN as u64);
            if state.bad_grains.iter().any(|bad| grains.contains(bad)) {
                return Err(io::Error::from(Errno::EIO).into());
            }
            buffer.copy_from_slice(&state.bytes[range]);
            Ok(buffer)
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let data = pages.concat();
            self.call_watch(offset, data.len() as u64);
            self.dawdle_while(|state| state.holds_writes).await;
            let mut state = self.lock();
            let range = state.check(offset, data.len() as u64)?;
            state.writes.push((offset, data.len() as u64));
            state.bytes[range.clone()].copy_from_slice(&data);
            state.holes[range.start / GRAIN..range.end.div_ceil(GRAIN)].fill(false);
            Ok(())
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let before = self.lock().bytes.clone();
            self.dawdle_while(|state| state.holds_flushes).await;
            let mut state = self.lock();
            state.flushes += 1;
            if state.fails_flush || state.failing_flushes > 0 {
                state.failing_flushes = state.failing_flushes.saturating_sub(1);
                return Err(DeviceError::new(DeviceErrorKind::Other, "a bad medium"));
            }
            if state.losses > 0 {
                state.losses -= 1;
                state.bytes = state.medium.clone();
                return Err(DeviceErrorKind::LostWrites.into());
            }
            state.medium = before;
            Ok(())
        })
    }

    fn confirm(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            self.dawdle().await;
            match self.lock().is_other {
                true => Err(DeviceError::new(DeviceErrorKind::AnotherDevice, "another device")),
                false => Ok(()),
            }
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            self.call_watch(offset, len);
            self.dawdle().await;
            let mut state = self.lock();
            assert!(state.limits.has_fast_zeroes);
            let range = state.check(offset, len)?;
            state.zeroed.push((offset, len));
            state.bytes[range].fill(0);
            Ok(())
        })
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(async move {
            self.wait_while(|state| state.holds_extents).await;
            let mut state = self.lock();
            state.questions += 1;
            let (mut at, end) = (offset, offset + len);
            let mut extents: Vec<Extent> = Vec::new();
            while at < end {
                let grain = at as usize / GRAIN;
                let until = end.min((grain as u64 + 1) * GRAIN as u64);
                let is_hole = state.holes[grain];
                let what = if is_hole { ExtentState::Deallocated } else { ExtentState::Data };
                let is_full = extents.len() == state.extents_at_once;
                match extents.last_mut() {
                    Some(last) if last.state == what => last.len += until - at,
                    _ if is_full => break,
                    _ => extents.push(Extent::new(at, until - at, what)),
                }
                at = until;
            }
            Ok(extents)
        })
    }
}

/// Returns bytes that look random, none of them zero.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3 % 251) as u8 + 1).collect()
}

/// A folder that is removed with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("iscsi-copy-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
