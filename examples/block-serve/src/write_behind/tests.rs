//! Tests of the write-behind window in front of a device that is slow, that fails, or that loses writes.

use std::time::Duration;

use iscsi_initiator::device::{Device, DeviceFuture, DeviceLimits, DeviceResult};
use tokio::time::{Instant, sleep};

use super::*;

/// A device in memory whose changes take the given delays, in sequence.
#[derive(Debug)]
struct Slow {
    content: Mutex<Vec<u8>>,
    /// Delays of the next changes in milliseconds. Changes after these have no delay.
    delays: Mutex<Vec<u64>>,
    /// Number of the following changes that fail.
    failing: AtomicU64,
    /// Number of the following flushes that fail with a temporary error.
    failing_flushes: AtomicU64,
    flushes: AtomicU64,
}

impl Slow {
    fn new(len: usize) -> Arc<Self> {
        let content = Mutex::new(vec![b'.'; len]);
        Arc::new(Self {
            content,
            delays: Mutex::default(),
            failing: AtomicU64::new(0),
            failing_flushes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        })
    }

    fn with_delays(len: usize, delays: &[u64]) -> Arc<Self> {
        let slow = Self::new(len);
        slow.delays.lock().unwrap().extend(delays.iter().rev());
        slow
    }

    fn holds(&self) -> String {
        String::from_utf8(self.content.lock().unwrap().clone()).unwrap()
    }

    async fn change(
        &self,
        offset: u64,
        len: usize,
        act: impl FnOnce(&mut [u8]),
    ) -> DeviceResult<()> {
        let delay = self.delays.lock().unwrap().pop().unwrap_or(0);
        sleep(Duration::from_millis(delay)).await;
        if self.failing.load(Ordering::Relaxed) > 0 {
            self.failing.fetch_sub(1, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let start = usize::try_from(offset).unwrap();
        let mut content = self.content.lock().unwrap();
        act(content.get_mut(start..start + len).ok_or(io::ErrorKind::InvalidInput)?);
        Ok(())
    }
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        self.content.lock().unwrap().len() as u64
    }

    fn limits(&self) -> DeviceLimits {
        DeviceLimits::default()
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            sleep(Duration::from_millis(10)).await;
            let start = usize::try_from(offset).unwrap();
            let end = start + buffer.len();
            buffer.copy_from_slice(&self.content.lock().unwrap()[start..end]);
            Ok(buffer)
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        let data = pages.concat();
        Box::pin(async move {
            self.change(offset, data.len(), |bytes| bytes.copy_from_slice(&data)).await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        let len = usize::try_from(len).unwrap();
        Box::pin(async move { self.change(offset, len, |bytes| bytes.fill(b'0')).await })
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        let len = usize::try_from(len).unwrap();
        Box::pin(async move { self.change(offset, len, |bytes| bytes.fill(b'-')).await })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            if self.failing_flushes.load(Ordering::Relaxed) > 0 {
                self.failing_flushes.fetch_sub(1, Ordering::Relaxed);
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            Ok(())
        })
    }
}

fn page(data: &'static str) -> Vec<Bytes> {
    vec![Bytes::from_static(data.as_bytes())]
}

async fn read(device: &WriteBehind, offset: u64, len: usize) -> Bytes {
    device.read_at(offset, len).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_write_is_answered_at_once_and_seen_by_reads_and_is_there_after_a_flush() {
    let slow = Slow::with_delays(8, &[1000]);
    let behind = WriteBehind::new(Arc::<Slow>::clone(&slow), 1 << 20);
    let start = Instant::now();
    behind.write_at(2, page("abc")).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(read(&behind, 0, 8).await, "..abc...");
    assert_eq!(slow.holds(), "........");
    assert!(behind.pending_bytes() > 0);
    behind.flush().await.unwrap();
    assert_eq!((slow.holds().as_str(), slow.flushes.load(Ordering::Relaxed)), ("..abc...", 1));
    assert_eq!((start.elapsed(), behind.pending_bytes()), (Duration::from_secs(1), 0));
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_same_bytes_reach_the_device_in_the_order_of_their_answers() {
    let slow = Slow::with_delays(8, &[900, 10, 500, 1]);
    let behind = WriteBehind::new(Arc::<Slow>::clone(&slow), 1 << 20);
    behind.write_at(0, page("aaaa")).await.unwrap();
    behind.write_at(2, page("bbbb")).await.unwrap();
    behind.write_zeroes(3, 1).await.unwrap();
    let discards = behind.discard(7, 1);
    discards.await.unwrap();
    behind.write_at(3, page("c")).await.unwrap();
    assert_eq!(read(&behind, 0, 4).await, "aabc");
    behind.flush().await.unwrap();
    assert_eq!(slow.holds(), "aabcbb.-");
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_room_in_the_window() {
    let slow = Slow::with_delays(1 << 16, &[100, 300]);
    let behind = WriteBehind::new(slow, 8192);
    let start = Instant::now();
    let data = || vec![Bytes::from(vec![1; 4096])];
    behind.write_at(0, data()).await.unwrap();
    behind.write_at(4096, data()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    behind.write_at(8192, data()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(100));
    // A write that is longer than the window takes all of it.
    behind.write_at(0, vec![Bytes::from(vec![2; 20_000])]).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(300));
}

#[tokio::test(start_paused = true)]
async fn each_handle_is_told_of_a_failure_once() {
    let slow = Slow::with_delays(8, &[50]);
    slow.failing.store(1, Ordering::Relaxed);
    let first = WriteBehind::new(Arc::<Slow>::clone(&slow), 1 << 20);
    let second = first.handle(Arc::<Slow>::clone(&slow));
    first.write_at(0, page("lost")).await.unwrap();
    let error = first.flush().await.unwrap_err();
    assert_eq!(error.io_kind(), io::ErrorKind::StorageFull);
    assert!(is_loss(&error));
    assert!(error.to_string().contains("answered before has failed"), "{error}");
    first.flush().await.unwrap();
    let late = first.handle(Arc::<Slow>::clone(&slow));
    late.flush().await.unwrap();
    assert!(second.flush().await.is_err());
    second.flush().await.unwrap();
    assert_eq!(read(&second, 0, 4).await, "....");
}

#[tokio::test(start_paused = true)]
async fn flushes_that_are_under_way_at_once_are_all_told_of_a_failure() {
    let slow = Slow::with_delays(8, &[50]);
    slow.failing.store(1, Ordering::Relaxed);
    let behind = WriteBehind::new(Arc::<Slow>::clone(&slow), 1 << 20);
    behind.write_at(0, page("lost")).await.unwrap();
    let (one, other) = tokio::join!(behind.flush(), behind.flush());
    assert!(one.is_err() && other.is_err());
    behind.flush().await.unwrap();
}

/// After a temporary error of a flush, a client flushes again and takes success to mean that all writes are
/// safe. So the failure of a write must be reported before the temporary error.
#[tokio::test(start_paused = true)]
async fn a_failure_is_told_rather_than_that_the_device_does_not_flush_just_now() {
    let slow = Slow::new(8);
    let behind = WriteBehind::new(Arc::<Slow>::clone(&slow), 1 << 20);
    slow.failing.store(1, Ordering::Relaxed);
    slow.failing_flushes.store(2, Ordering::Relaxed);
    behind.write_at(0, page("lost")).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(behind.flush().await.map_err(|error| error.io_kind()));
    }
    assert_eq!(told, [Err(io::ErrorKind::StorageFull), Err(io::ErrorKind::ResourceBusy), Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_nobody_heard_of_is_told_to_the_next_handle() {
    let slow = Slow::new(8);
    slow.failing.store(1, Ordering::Relaxed);
    let first = WriteBehind::new(Arc::<Slow>::clone(&slow), 1 << 20);
    first.write_at(0, page("lost")).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let next = first.handle(Arc::<Slow>::clone(&slow));
    assert!(next.flush().await.is_err());
    assert!(first.flush().await.is_err());
    next.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_refused_at_once() {
    let slow = Slow::new(8);
    let behind = WriteBehind::new(Arc::<Slow>::clone(&slow), 1 << 20);
    assert!(behind.write_at(6, page("abc")).await.is_err());
    slow.failing.store(1, Ordering::Relaxed);
    assert!(behind.discard(0, 4).await.is_err());
    behind.flush().await.unwrap();
    assert_eq!(slow.holds(), "........");
}

mod model {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, u8, usize),
        Zeros(usize, usize),
        Read(usize, usize),
        Flush,
        Pause(u64),
    }

    const LEN: usize = 24;

    fn step() -> impl Strategy<Value = Step> {
        let range = || (0..LEN).prop_flat_map(|at| (Just(at), 1..=LEN - at));
        prop_oneof![
            4 => (range(), b'a'..=b'z').prop_map(|((at, len), byte)| Step::Write(at, byte, len)),
            1 => range().prop_map(|(at, len)| Step::Zeros(at, len)),
            3 => range().prop_map(|(at, len)| Step::Read(at, len)),
            1 => Just(Step::Flush),
            1 => (0..300_u64).prop_map(Step::Pause),
        ]
    }

    proptest! {
        #[test]
        fn reads_see_what_was_answered(
            steps in prop::collection::vec(step(), 1..60),
            delays in prop::collection::vec(0..200_u64, 60),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(async {
                let slow = Slow::with_delays(LEN, &delays);
                let behind = WriteBehind::new(Arc::<Slow>::clone(&slow), 16 << 10);
                let mut model = vec![b'.'; LEN];
                for step in steps {
                    match step {
                        Step::Write(at, byte, len) => {
                            let data = Bytes::from(vec![byte; len]);
                            // In two pages, so that reads cross a page boundary.
                            let pages = vec![data.slice(..len / 2), data.slice(len / 2..)];
                            behind.write_at(at as u64, pages).await.unwrap();
                            model[at..at + len].fill(byte);
                        }
                        Step::Zeros(at, len) => {
                            behind.write_zeroes(at as u64, len as u64).await.unwrap();
                            model[at..at + len].fill(b'0');
                        }
                        Step::Read(at, len) => {
                            // The device stores zeros as digits. The window returns them as zero bytes.
                            let data: Vec<u8> = read(&behind, at as u64, len).await.iter()
                                .map(|byte| if *byte == 0 { b'0' } else { *byte }).collect();
                            assert_eq!(data, model[at..at + len]);
                        }
                        Step::Flush => {
                            behind.flush().await.unwrap();
                            assert_eq!(slow.holds().into_bytes(), model);
                        }
                        Step::Pause(millis) => sleep(Duration::from_millis(millis)).await,
                    }
                }
                behind.flush().await.unwrap();
                assert_eq!(slow.holds().into_bytes(), model);
            });
        }
    }
}
