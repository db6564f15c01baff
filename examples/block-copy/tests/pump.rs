//! The pump between ends that answer in any order: every byte arrives once, in bounded memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block_copy::end::{Destination, Source};
use block_copy::meter::Meter;
use block_copy::pump::{Pump, PumpConfig};
use block_copy::verify::{Checksums, Comparison, Difference, sum};
use block_copy::{Error, Stop};
use bytes::Bytes;
use tokio::sync::{Barrier, Semaphore};

/// How many there are now, and how many there were at most.
#[derive(Debug, Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn enter(&self) {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// What both ends of a copy look at.
#[derive(Debug, Default)]
struct Watch {
    reads: Gauge,
    writes: Gauge,
    /// From the beginning of a read to the end of its write.
    chunks: Gauge,
}

/// Lets others go first, a number of times that looks random.
async fn dawdle(offset: u64) {
    for _ in 0..offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 {
        tokio::task::yield_now().await;
    }
}

#[derive(Clone)]
struct Memory {
    data: Arc<Vec<u8>>,
    sequential: bool,
    watch: Arc<Watch>,
    /// Reads wait until that many wait.
    together: Option<Arc<Barrier>>,
    fails_at: Option<u64>,
    /// How deep the queue shall be: reads take some time, and change it when they end.
    depths: Option<Arc<Depths>>,
}

/// A queue that gets deeper, or shallower, at a place.
#[derive(Debug)]
struct Depths {
    before: usize,
    after: usize,
    at: u64,
    now: AtomicUsize,
    /// Reads a while later.
    late: Gauge,
}

impl Depths {
    async fn pass(&self, offset: u64) {
        let is_late = offset >= self.at * 3 / 2;
        if is_late {
            self.late.enter();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        if is_late {
            self.late.leave();
        }
        let depth = if offset < self.at { self.before } else { self.after };
        self.now.store(depth, Ordering::SeqCst);
    }
}

impl Memory {
    fn new(data: &[u8]) -> Self {
        let watch = Arc::default();
        Self {
            data: data.to_vec().into(),
            sequential: false,
            watch,
            together: None,
            fails_at: None,
            depths: None,
        }
    }
}

impl Source for Memory {
    fn length(&self) -> Option<u64> {
        (!self.sequential).then_some(self.data.len() as u64)
    }

    fn is_sequential(&self) -> bool {
        self.sequential
    }

    fn queue_depth(&self, io_size: usize) -> Option<usize> {
        assert_eq!(io_size, 64);
        self.depths.as_ref().map(|depths| depths.now.load(Ordering::SeqCst))
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        self.watch.reads.enter();
        self.watch.chunks.enter();
        dawdle(offset).await;
        if let Some(together) = &self.together {
            together.wait().await;
        }
        if let Some(depths) = &self.depths {
            depths.pass(offset).await;
        }
        self.watch.reads.leave();
        if self.fails_at == Some(offset) {
            return Err(Error::Shrunk("source".into()));
        }
        let start = (offset as usize).min(self.data.len());
        let end = (start + len).min(self.data.len());
        assert!(self.sequential || end - start == len, "a read beyond the end");
        if start == end {
            self.watch.chunks.leave();
        }
        Ok(Bytes::copy_from_slice(&self.data[start..end]))
    }
}

#[derive(Clone)]
struct Sink {
    bytes: Arc<Mutex<Vec<Option<u8>>>>,
    sequential: bool,
    watch: Arc<Watch>,
    /// Writes wait until that many wait.
    together: Option<Arc<Barrier>>,
    /// Writes wait for a permit each.
    gate: Option<Arc<Semaphore>>,
    fails_at: Option<u64>,
}

impl Sink {
    fn new(capacity: usize, source: &Memory) -> Self {
        Self {
            bytes: Arc::new(Mutex::new(vec![None; capacity])),
            sequential: false,
            watch: Arc::clone(&source.watch),
            together: None,
            gate: None,
            fails_at: None,
        }
    }

    /// The bytes from the beginning up to the first that was not written.
    fn written(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().iter().map_while(|byte| *byte).collect()
    }

    fn put(&self, offset: u64, data: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap();
        let next = bytes.iter().take_while(|byte| byte.is_some()).count();
        assert!(!self.sequential || next == offset as usize, "a write out of order");
        for (place, byte) in bytes[offset as usize..].iter_mut().zip(data) {
            assert_eq!(place.replace(*byte), None, "a byte is written twice");
        }
    }
}

impl Destination for Sink {
    fn capacity(&self) -> Option<u64> {
        Some(self.bytes.lock().unwrap().len() as u64)
    }

    fn is_sequential(&self) -> bool {
        self.sequential
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.watch.writes.enter();
        dawdle(!offset).await;
        if let Some(together) = &self.together {
            together.wait().await;
        }
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        self.watch.writes.leave();
        if self.fails_at == Some(offset) {
            return Err(Error::Cancelled);
        }
        self.put(offset, &data);
        self.watch.chunks.leave();
        Ok(())
    }

    async fn flush(&self, _length: u64) -> Result<(), Error> {
        unreachable!("flushing is not the pump's")
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

/// So many reads, and so many writes, of short chunks.
const fn config(reads: usize, writes: usize) -> PumpConfig {
    PumpConfig { io_size: 64, reads, writes }
}

async fn pump(
    source: &Memory,
    sink: &Sink,
    config: PumpConfig,
) -> (u64, Result<Option<Checksums>, Error>) {
    let meter = Meter::default();
    let pump = Pump::new(source.clone(), sink.clone(), config, source.length());
    let run = pump.with_checksums().run(&meter, &Stop::never()).await;
    (meter.bytes(), run)
}

/// Fails instead of hanging.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("the test hangs")
}

async fn copies(len: usize, config: PumpConfig, in_order: (bool, bool)) {
    let data = pattern(len);
    let mut source = Memory::new(&data);
    source.sequential = in_order.0;
    let mut sink = Sink::new(len, &source);
    sink.sequential = in_order.1;
    let (bytes, result) = soon(pump(&source, &sink, config)).await;
    let case = format!("{len} bytes, {config:?}, in order {in_order:?}");

    let sums = result.unwrap().unwrap();
    assert_eq!(bytes, len as u64, "{case}");
    assert_eq!(sink.written(), data, "{case}");
    for (chunk, at) in data.chunks(config.io_size).zip((0..).step_by(config.io_size)) {
        assert_eq!(sums.get(at), Some(sum(chunk)), "{case}");
    }
    let at_once = |in_order, depth| if in_order { 1 } else { depth };
    assert!(source.watch.reads.most() <= at_once(in_order.0, config.reads), "{case}");
    assert!(source.watch.writes.most() <= at_once(in_order.1, config.writes), "{case}");
    assert!(source.watch.chunks.most() <= config.reads + config.writes, "{case}");
    assert_eq!(source.watch.chunks.now.load(Ordering::SeqCst), 0, "{case}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_arrives_once_within_the_limits() {
    for len in [0, 1, 63, 64, 65, 640, 10_001] {
        for (reads, writes) in [(1, 1), (2, 2), (7, 7), (64, 64), (1, 7), (7, 1), (3, 64)] {
            for in_order in [(false, false), (false, true), (true, false), (true, true)] {
                copies(len, config(reads, writes), in_order).await;
            }
        }
    }
}

#[tokio::test]
async fn a_whole_queue_is_read_and_written_at_once() {
    let mut source = Memory::new(&pattern(8 * 64));
    source.together = Some(Arc::new(Barrier::new(4)));
    let mut sink = Sink::new(8 * 64, &source);
    sink.together = Some(Arc::new(Barrier::new(4)));
    let (bytes, result) = soon(pump(&source, &sink, config(4, 4))).await;
    assert!(result.is_ok());
    assert_eq!((bytes, source.watch.reads.most(), source.watch.writes.most()), (512, 4, 4));
}

#[tokio::test]
async fn reads_go_on_while_all_writes_are_stuck_but_not_for_ever() {
    let source = Memory::new(&pattern(100 * 64));
    let mut sink = Sink::new(100 * 64, &source);
    let gate = Arc::new(Semaphore::new(0));
    sink.gate = Some(Arc::clone(&gate));
    let (from, to) = (source.clone(), sink.clone());
    let copy = tokio::spawn(async move { pump(&from, &to, config(4, 4)).await });
    let chunks = &source.watch.chunks;
    soon(async {
        while chunks.most() < 8 || source.watch.reads.now.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(sink.watch.writes.most(), 4);
    gate.add_permits(100);
    assert!(soon(copy).await.unwrap().1.is_ok());
    assert_eq!(chunks.most(), 8);
}

/// Copies from a source whose queue shall become `after` deep in the middle; the most reads at once,
/// and the most near the end.
async fn most_reads(follows: bool, before: usize, after: usize) -> (usize, usize) {
    let data = pattern(100 * 64);
    let mut source = Memory::new(&data);
    let now = AtomicUsize::new(before);
    let depths = Arc::new(Depths { before, after, at: 50 * 64, now, late: Gauge::default() });
    source.depths = Some(Arc::clone(&depths));
    let sink = Sink::new(data.len(), &source);
    let pump = Pump::new(source.clone(), sink.clone(), config(3, 3), source.length());
    let pump = if follows { pump.following_its_ends() } else { pump };
    soon(pump.run(&Meter::default(), &Stop::never())).await.unwrap();
    assert_eq!(sink.written(), data);
    (source.watch.reads.most(), depths.late.most())
}

#[tokio::test(start_paused = true)]
async fn the_queue_follows_the_sessions_of_its_ends() {
    assert_eq!(most_reads(true, 2, 7).await, (7, 7));
    assert_eq!(most_reads(true, 7, 2).await, (7, 2));
    assert_eq!(most_reads(false, 2, 7).await, (3, 3));
}

#[tokio::test]
async fn the_first_error_ends_the_copy() {
    let data = pattern(20 * 64);
    let config = config(3, 3);
    let mut source = Memory::new(&data);
    source.fails_at = Some(10 * 64);
    let sink = Sink::new(data.len(), &source);
    assert!(matches!(soon(pump(&source, &sink, config)).await.1, Err(Error::Shrunk(_))));

    let source = Memory::new(&data);
    let mut sink = Sink::new(data.len(), &source);
    sink.fails_at = Some(10 * 64);
    let (bytes, result) = soon(pump(&source, &sink, config)).await;
    assert!(matches!(result, Err(Error::Cancelled)));
    // What was behind the failed write may have been written, but no more than a queue of it.
    assert!(bytes <= 13 * 64, "{bytes}");
}

#[tokio::test]
async fn a_stream_that_does_not_fit_is_an_error() {
    let mut source = Memory::new(&pattern(1000));
    source.sequential = true;
    let sink = Sink::new(999, &source);
    let (_, result) = soon(pump(&source, &sink, config(4, 4))).await;
    assert!(matches!(result, Err(Error::Overflow { capacity }) if capacity.0 == 999));
}

/// A copy that is told to stop while four writes of 64 bytes are under way; if `go_on`, they end in
/// a moment. How it ended, what it counted, and what arrived.
async fn stopped(go_on: bool) -> (Error, u64, usize) {
    let source = Memory::new(&pattern(100 * 64));
    let mut sink = Sink::new(100 * 64, &source);
    let gate = Arc::new(Semaphore::new(0));
    sink.gate = Some(Arc::clone(&gate));
    let (button, stop) = Stop::new();
    let (from, to) = (source.clone(), sink.clone());
    let copy = tokio::spawn(async move {
        let meter = Meter::default();
        let config = config(4, 4);
        let result = Pump::new(from, to, config, Some(100 * 64)).run(&meter, &stop).await;
        (meter.bytes(), result)
    });
    soon(async {
        while source.watch.writes.now.load(Ordering::SeqCst) < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    button.press();
    // The pump runs on this thread: it has seen the wish before a write can end.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    if go_on {
        gate.add_permits(100);
    }
    let (bytes, result) = soon(copy).await.unwrap();
    let arrived = sink.bytes.lock().unwrap().iter().flatten().count();
    (result.unwrap_err(), bytes, arrived)
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_writes_under_way_and_starts_nothing_more() {
    let (error, counted, arrived) = stopped(true).await;
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!((counted, arrived), (4 * 64, 4 * 64));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_writes_that_do_not_end() {
    let (error, counted, arrived) = stopped(false).await;
    assert!(matches!(error, Error::Abandoned { under_way } if under_way.0 == 4 * 64), "{error}");
    assert_eq!((counted, arrived), (0, 0));
}

/// Compares a destination with what a source says, chunk by chunk.
async fn compare(source: &Memory, sums: Checksums, destination: &[u8]) -> Result<(), Error> {
    let comparison = Comparison::new(source.clone(), sums);
    let config = config(4, 4);
    let length = Some(destination.len() as u64);
    let pump = Pump::new(Memory::new(destination), comparison, config, length);
    soon(pump.run(&Meter::default(), &Stop::never())).await.map(drop)
}

#[tokio::test]
async fn the_first_of_several_differences_is_found() {
    let data = pattern(1000);
    let source = Memory::new(&data);
    let sink = Sink::new(1000, &source);
    let (_, result) = pump(&source, &sink, config(4, 4)).await;
    let sums = result.unwrap().unwrap();
    assert!(compare(&source, sums.clone(), &data).await.is_ok());

    let mut found = data.clone();
    for at in [300, 301, 999] {
        found[at] ^= 0x80;
    }
    let error = compare(&source, sums.clone(), &found).await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { difference: Difference::At(300) }), "{error}");

    // A source that says something else by now cannot tell where.
    let changed = Memory::new(&found);
    let error = compare(&changed, sums, &found).await.unwrap_err();
    let within = Difference::Within { offset: 256, len: 64 };
    assert!(matches!(error, Error::Mismatch { difference } if difference == within), "{error}");
}
