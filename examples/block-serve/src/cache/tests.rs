//! Tests of the cache in front of a slow device that counts its requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use iscsi_initiator::device::{
    Device, DeviceErrorKind, DeviceFuture, DeviceLimits, Extent, ExtentState,
};
use tokio::time::sleep;

use super::*;

#[derive(Debug)]
struct Slow {
    content: Mutex<Vec<u8>>,
    /// Bytes of the device.
    capacity: AtomicU64,
    /// The ranges that were read from the device, in order.
    reads: Mutex<Vec<Range<u64>>>,
    questions: AtomicU64,
    fails: AtomicBool,
    attentions: AtomicU64,
    /// Number of confirmations that the device was asked for. With `has_news`, a confirmation causes a report.
    confirmations: AtomicU64,
    has_news: AtomicBool,
}

const LEN: usize = 4 << 20;

impl Slow {
    fn new() -> Arc<Self> {
        let content = (0..LEN).map(|at| u8::try_from(at / 4096 % 251).unwrap()).collect();
        Arc::new(Self {
            content: Mutex::new(content),
            capacity: AtomicU64::new(LEN as u64),
            reads: Mutex::default(),
            questions: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            attentions: AtomicU64::new(7),
            confirmations: AtomicU64::new(0),
            has_news: AtomicBool::new(false),
        })
    }

    fn reads(&self) -> usize {
        self.reads.lock().unwrap().len()
    }

    /// Changes all data of the device, as another host would do.
    fn becomes(&self, byte: u8) {
        self.content.lock().unwrap().fill(byte);
    }

    /// Reports a change to the host.
    fn report_change(&self) {
        self.attentions.fetch_add(1, Ordering::SeqCst);
    }
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    fn limits(&self) -> DeviceLimits {
        let mut limits = DeviceLimits::default();
        limits.block_size = 512;
        limits
    }

    fn attentions(&self) -> u64 {
        self.attentions.load(Ordering::SeqCst)
    }

    /// Returns the data as they are halfway through the time that the read takes.
    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            self.reads.lock().unwrap().push(offset..offset + buffer.len() as u64);
            sleep(Duration::from_millis(10)).await;
            let start = usize::try_from(offset).unwrap();
            let end = start + buffer.len();
            buffer.copy_from_slice(&self.content.lock().unwrap()[start..end]);
            sleep(Duration::from_millis(10)).await;
            Ok(buffer)
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            if self.fails.load(Ordering::Relaxed) {
                return Err(DeviceErrorKind::TimedOut.into());
            }
            sleep(Duration::from_millis(5)).await;
            let (start, data) = (usize::try_from(offset).unwrap(), pages.concat());
            self.content.lock().unwrap()[start..start + data.len()].copy_from_slice(&data);
            sleep(Duration::from_millis(5)).await;
            Ok(())
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        let fails = self.fails.load(Ordering::Relaxed);
        Box::pin(async move { if fails { Err(DeviceErrorKind::Other.into()) } else { Ok(()) } })
    }

    fn confirm(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            self.confirmations.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
            if self.has_news.load(Ordering::Relaxed) {
                self.report_change();
            }
            Ok(())
        })
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            sleep(Duration::from_millis(20)).await;
            Ok(vec![Extent::new(offset, len, ExtentState::Deallocated)])
        })
    }
}

fn cached(slow: &Arc<Slow>, bytes: u64) -> Cache {
    Cache::new(Arc::<Slow>::clone(slow), bytes)
}

async fn check(cache: &Cache, slow: &Slow, offset: usize, len: usize) {
    let data = cache.read_at(offset as u64, len).await.unwrap();
    assert_eq!(data, slow.content.lock().unwrap()[offset..offset + len], "{offset} {len}");
}

#[tokio::test(start_paused = true)]
async fn what_a_device_has_grown_by_is_read_and_not_kept() {
    let slow = Slow::new();
    const OLD: usize = LEN / 2 + 512;
    slow.capacity.store(OLD as u64, Ordering::Relaxed);
    let cache = cached(&slow, 1 << 20);
    check(&cache, &slow, OLD - 4096, 4096).await;
    slow.capacity.store(LEN as u64, Ordering::Relaxed);
    for (at, len) in [(OLD, 512), (OLD - 512, 4096), (OLD + 64 * 1024, 4096)] {
        check(&cache, &slow, at, len).await;
        slow.becomes(u8::try_from(at / 512 % 251).unwrap());
        check(&cache, &slow, at, len).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_not_read_again() {
    let slow = Slow::new();
    let cache = cached(&slow, 1 << 20);
    check(&cache, &slow, 5000, 6000).await;
    assert_eq!((slow.reads(), slow.reads.lock().unwrap()[0].clone()), (1, 4096..12_288));
    check(&cache, &slow, 4096, 8192).await;
    let other = cache.handle(Arc::<Slow>::clone(&slow));
    check(&other, &slow, 6000, 10).await;
    assert_eq!(slow.reads(), 1);
    // One chunk of the range is missing.
    check(&cache, &slow, 9000, 8000).await;
    assert_eq!(slow.reads.lock().unwrap()[1], 12_288..20_480);
    let stats = cache.stats();
    assert_eq!((stats.asked, stats.found), (22_202, 8192 + 10 + 3288));
    assert!((stats.hit_rate() - 0.5175).abs() < 0.001);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_read_anew() {
    let slow = Slow::new();
    let cache = cached(&slow, 1 << 20);
    check(&cache, &slow, 0, 16_384).await;
    cache.write_at(5000, vec![Bytes::from_static(b"new")]).await.unwrap();
    check(&cache, &slow, 4096, 4096).await;
    check(&cache, &slow, 0, 4096).await;
    assert_eq!(slow.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_meets_a_write_leaves_nothing_old() {
    // The write begins before the read, while the read is in flight, or ends during it.
    for begins in 0..40 {
        let slow = Slow::new();
        let cache = Arc::new(cached(&slow, 1 << 20));
        let reader = Arc::clone(&cache);
        let reads = tokio::spawn(async move {
            sleep(Duration::from_millis(10)).await;
            reader.read_at(4096, 4096).await.unwrap();
        });
        sleep(Duration::from_millis(begins)).await;
        cache
            .write_at(4096, vec![Bytes::from(vec![u8::try_from(begins).unwrap() + 100; 4096])])
            .await
            .unwrap();
        check(&cache, &slow, 4096, 4096).await;
        reads.await.unwrap();
        check(&cache, &slow, 4096, 4096).await;
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_same_bytes_share_one_read() {
    let slow = Slow::new();
    let cache = cached(&slow, 1 << 20);
    tokio::join!(check(&cache, &slow, 0, 8192), check(&cache, &slow, 4096, 4096));
    assert_eq!(slow.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_reads_on_finds_it_read_ahead() {
    let slow = Slow::new();
    let cache = cached(&slow, 2 << 20);
    for offset in (0..LEN).step_by(8192) {
        check(&cache, &slow, offset, 8192).await;
        // The reader pauses between its reads.
        sleep(Duration::from_millis(2)).await;
    }
    assert!(slow.reads() < 40, "{} reads of {}", slow.reads(), LEN / 8192);
    assert!(cache.stats().hit_rate() > 0.9, "{:?}", cache.stats());
    assert!(slow.reads.lock().unwrap().iter().all(|read| read.end <= LEN as u64));
}

#[tokio::test(start_paused = true)]
async fn memory_has_a_bound_and_long_reads_pass_by() {
    let slow = Slow::new();
    let cache = cached(&slow, 64 << 10);
    for offset in (0..LEN).step_by(256 << 10) {
        check(&cache, &slow, offset, 128 << 10).await;
    }
    assert!(cache.shared.lock().chunks.weight() <= 64 << 10);
    check(&cache, &slow, 0, 1 << 20).await;
    assert_eq!(cache.stats().passed_by, 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_nothing_old_is_believed() {
    let slow = Slow::new();
    let cache = cached(&slow, 1 << 20);
    check(&cache, &slow, 0, 8192).await;
    slow.fails.store(true, Ordering::Relaxed);
    cache.flush().await.unwrap_err();
    check(&cache, &slow, 0, 8192).await;
    check(&cache, &slow, 0, 8192).await;
    assert_eq!(slow.reads(), 2);
    check(&cache, &slow, 16_384, 8192).await;
    cache.write_at(4090, vec![Bytes::from_static(b"late")]).await.unwrap_err();
    // The device executes the failed write late.
    check(&cache, &slow, 0, 8192).await;
    slow.content.lock().unwrap()[4090..4094].copy_from_slice(b"late");
    check(&cache, &slow, 0, 8192).await;
    cache.extents(0, 8192).await.unwrap();
    let questions = slow.questions.load(Ordering::Relaxed);
    cache.extents(4090, 4).await.unwrap();
    assert_eq!(slow.questions.load(Ordering::Relaxed), questions + 1, "so are its extents");
    // Chunks that the write does not overlap stay in memory.
    let reads = slow.reads();
    check(&cache, &slow, 16_384, 8192).await;
    check(&cache, &slow, 4096, 4096).await;
    assert_eq!(slow.reads(), reads);
    // A later write of the same bytes is executed after the failed one.
    slow.fails.store(false, Ordering::Relaxed);
    cache.write_at(4096 - 512, vec![Bytes::from(vec![9; 512])]).await.unwrap();
    for _ in 0..2 {
        check(&cache, &slow, 0, 4096).await;
    }
    assert_eq!(slow.reads(), reads + 1);
}

#[tokio::test(start_paused = true)]
async fn extents_are_asked_for_once_until_they_change() {
    let slow = Slow::new();
    let cache = cached(&slow, 1 << 20);
    let hole = |offset, len| Extent::new(offset, len, ExtentState::Deallocated);
    for offset in (0..1 << 20).step_by(65_536) {
        assert_eq!(cache.extents(offset, 65_536).await.unwrap(), [hole(offset, 65_536)]);
    }
    assert_eq!(slow.questions.load(Ordering::Relaxed), 1);
    cache.write_at(65_536, vec![Bytes::from(vec![1; 65_536])]).await.unwrap();
    let data = Extent::new(65_536, 65_536, ExtentState::Data);
    assert_eq!(
        cache.extents(0, 196_608).await.unwrap(),
        [hole(0, 65_536), data, hole(131_072, 65_536)]
    );
    assert_eq!(slow.questions.load(Ordering::Relaxed), 1);
    // A response about extents that was in flight when a write ended is not cached.
    cache.clear();
    let question = cache.extents(0, 4096);
    let (_, written) = tokio::join!(question, cache.write_at(0, vec![Bytes::from_static(b"x")]));
    written.unwrap();
    let known = cache.extents(0, 512).await.unwrap();
    assert_eq!(slow.questions.load(Ordering::Relaxed), 3, "asked again");
    assert_eq!(known, [hole(0, 512)]);
}

#[tokio::test(start_paused = true)]
async fn what_the_device_tells_of_itself_ends_what_was_kept() {
    let slow = Slow::new();
    let cache = cached(&slow, 1 << 20);
    let other = cache.handle(Arc::<Slow>::clone(&slow));
    let before = cache.read_at(0, 8192).await.unwrap();
    cache.extents(0, 8192).await.unwrap();
    slow.becomes(0xaa);
    assert_eq!(other.read_at(0, 8192).await.unwrap(), before, "nobody was told");
    slow.report_change();
    for _ in 0..2 {
        check(&other, &slow, 0, 8192).await;
        other.extents(0, 8192).await.unwrap();
    }
    // Data that were read after the report are cached.
    assert_eq!((slow.reads(), slow.questions.load(Ordering::Relaxed)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_being_read_when_the_device_told_of_itself_is_not_kept() {
    for told_after in 1..25 {
        let slow = Slow::new();
        let cache = Arc::new(cached(&slow, 1 << 20));
        let reader = Arc::clone(&cache);
        let reads = tokio::spawn(async move {
            let (read, extents) = tokio::join!(reader.read_at(4096, 4096), reader.extents(0, 4096));
            extents.unwrap();
            read.unwrap()
        });
        sleep(Duration::from_millis(told_after)).await;
        slow.becomes(0xaa);
        slow.report_change();
        // The read does not wait for a read that began before the report.
        check(&cache, &slow, 4096, 4096).await;
        reads.await.unwrap();
        check(&cache, &slow, 4096, 4096).await;
        cache.extents(0, 4096).await.unwrap();
        assert_eq!(slow.questions.load(Ordering::Relaxed), 2, "{told_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_the_device_tells_of_itself_in_is_of_one_time() {
    let slow = Slow::new();
    let cache = Arc::new(cached(&slow, 1 << 20));
    slow.becomes(1);
    check(&cache, &slow, 0, 8192).await;
    let reader = Arc::clone(&cache);
    // The first half of the range is in memory.
    let read = tokio::spawn(async move { reader.read_at(0, 16_384).await.unwrap() });
    sleep(Duration::from_millis(5)).await;
    slow.becomes(2);
    slow.report_change();
    assert_eq!(read.await.unwrap(), vec![2; 16_384]);
}

/// A unit reports only in response to a command (SAM-5 §5.14). So while all reads are served from memory, the
/// cache asks for a confirmation.
#[tokio::test(start_paused = true)]
async fn a_device_is_asked_for_news_while_all_is_found_in_memory() {
    let slow = Slow::new();
    let cache = cached(&slow, 1 << 20);
    let confirmed = || slow.confirmations.load(Ordering::Relaxed);
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        check(&cache, &slow, 0, 4096).await;
    }
    assert_eq!(slow.reads(), 1);
    assert!((10..=12).contains(&confirmed()), "{}", confirmed());
    // A request for other data makes the confirmation unnecessary.
    let before = confirmed();
    for at in 1..60 {
        sleep(Duration::from_secs(1)).await;
        check(&cache, &slow, at * 32_768, 4096).await;
    }
    assert_eq!(confirmed(), before);
    // Without reads, no request is sent.
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(confirmed(), before);
    slow.becomes(0xaa);
    slow.has_news.store(true, Ordering::Relaxed);
    cache.read_at(59 * 32_768, 4096).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    check(&cache, &slow, 59 * 32_768, 4096).await;
}
