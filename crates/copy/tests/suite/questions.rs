//! Tests of extent queries over long links: reading continues meanwhile, and queries end where they cost more
//! than they save.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_copy::device::{
    Device, DeviceErrorKind, DeviceFuture, DeviceLimits, Extent, ExtentState,
};
use iscsi_copy::{
    Checksums, CopyJob, CopyOptions, Destination, Progress, RangeSet, Source, Verify,
};
use tokio::time::{Instant, sleep, sleep_until};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How a device reacts to an extent query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Manner {
    /// The device reports this number of extents.
    Tells(usize),
    Refuses,
    IsSilent,
}

/// A device behind a link: a hole, and then alternating runs of data and of zeros. Clones are the same
/// device.
#[derive(Clone, Debug)]
struct Far {
    hole: u64,
    len: u64,
    run: u64,
    round_trip: Duration,
    /// Rate of the link, bytes per second.
    rate: u64,
    manner: Manner,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    questions: usize,
    bytes: u64,
    /// Time at which the link is free again.
    free: Option<Instant>,
    /// Time of the last arrival.
    last: Option<Instant>,
    /// Longest time without an arrival.
    longest: Duration,
}

impl Far {
    fn new(hole: u64, len: u64, run: u64, millis: u64, rate: u64, manner: Manner) -> Self {
        let round_trip = Duration::from_millis(millis);
        Self { hole, len, run, round_trip, rate, manner, seen: Arc::default() }
    }

    fn end_of_run(&self, at: u64) -> u64 {
        if at < self.hole {
            self.hole
        } else {
            self.hole + ((at - self.hole) / self.run + 1) * self.run
        }
    }

    fn is_zero(&self, at: u64) -> bool {
        at < self.hole || (at - self.hole) / self.run % 2 == 1
    }

    /// Returns when `bytes` more bytes have arrived over the link.
    fn arrival(&self, bytes: u64) -> Instant {
        let mut seen = self.seen.lock().unwrap();
        let now = Instant::now();
        let begin = seen.free.unwrap_or(now).max(now + self.round_trip);
        let end = begin + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        seen.free = Some(end);
        end
    }

    fn seen(&self) -> (usize, u64, Duration) {
        let seen = self.seen.lock().unwrap();
        (seen.questions, seen.bytes, seen.longest)
    }
}

impl Device for Far {
    fn capacity(&self) -> u64 {
        self.hole + self.len
    }

    fn limits(&self) -> DeviceLimits {
        let mut limits = DeviceLimits::default();
        limits.has_fast_zeroes = true;
        limits
    }

    fn queue_depth(&self, io_size: usize) -> usize {
        (32 << 20) / io_size.max(1 << 16)
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            sleep_until(self.arrival(buffer.len() as u64)).await;
            let mut seen = self.seen.lock().unwrap();
            seen.bytes += buffer.len() as u64;
            let now = Instant::now();
            let before = seen.last.replace(now).unwrap_or(now);
            seen.longest = seen.longest.max(now - before);
            drop(seen);
            let mut at = offset;
            while at < offset + buffer.len() as u64 {
                let end = self.end_of_run(at).min(offset + buffer.len() as u64);
                let byte = if self.is_zero(at) { 0 } else { 7 };
                buffer[(at - offset) as usize..(end - offset) as usize].fill(byte);
                at = end;
            }
            Ok(buffer)
        })
    }

    fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, _: u64, _: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        self.seen.lock().unwrap().questions += 1;
        Box::pin(async move {
            let most = match self.manner {
                Manner::Tells(most) => most,
                Manner::Refuses => 0,
                Manner::IsSilent => return std::future::pending().await,
            };
            sleep(self.round_trip).await;
            if self.manner == Manner::Refuses {
                return Err(DeviceErrorKind::Unsupported.into());
            }
            let (mut at, mut extents) = (offset, Vec::new());
            while at < offset + len && extents.len() < most {
                let end = self.end_of_run(at).min(offset + len);
                let is_zero = self.is_zero(at);
                let state = if is_zero { ExtentState::Deallocated } else { ExtentState::Data };
                extents.push(Extent::new(at, end - at, state));
                at = end;
            }
            Ok(extents)
        })
    }
}

/// Copies the device to an empty device that completes all requests immediately.
async fn copy(from: &Far) -> (Progress, Duration) {
    let to = Far::new(from.capacity(), 0, 1, 0, u64::MAX, Manner::Tells(1));
    let begun = Instant::now();
    let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to));
    let progress = copy.run().await.unwrap().progress;
    assert_eq!(progress.done, from.capacity());
    (progress, begun.elapsed())
}

/// Verifies the device with the checksums of its own data.
async fn verify(to: &Far) -> Duration {
    let checksums = checksums(to).await;
    *to.seen.lock().unwrap() = Seen::default();
    let source = Source::stream(tokio::io::empty(), None);
    let begun = Instant::now();
    let verify = Verify::new(source, &Destination::device(to.clone()), checksums).unwrap();
    let progress = verify.run().await.unwrap();
    assert_eq!(progress.done, to.capacity());
    begun.elapsed()
}

async fn checksums(of: &Far) -> Checksums {
    let near = Far { round_trip: Duration::ZERO, manner: Manner::Tells(4096), ..of.clone() };
    let to = Far::new(of.capacity(), 0, 1, 0, u64::MAX, Manner::Tells(1));
    let options = CopyOptions::default().with_checksums(true);
    let copy = CopyJob::new(Source::device(near), Destination::device(to)).with_options(options);
    copy.run().await.unwrap().checksums.unwrap()
}

/// Returns whether `bytes` bytes at this rate took no longer than expected, plus `beside`.
fn in_time(took: Duration, bytes: u64, rate: u64, beside: Duration) -> bool {
    took <= Duration::from_secs_f64(bytes as f64 / rate as f64) + beside
}

const SECOND: Duration = Duration::from_secs(1);
const SHORT: u64 = 64 << 10;

/// With one extent per result, and short runs after a long hole, 1024 queries would take 51 s and save only
/// 0.3 s, so they must end early.
#[tokio::test(start_paused = true)]
async fn asking_ends_where_it_costs_more_than_it_saves() {
    let from = Far::new(7 * GIB + GIB / 2, 64 * MIB, SHORT, 50, 100_000_000, Manner::Tells(1));
    let (_, took) = copy(&from).await;
    let (questions, bytes, longest) = from.seen();
    assert!(in_time(took, 64 * MIB, from.rate, SECOND), "{took:?}");
    assert!(longest < SECOND / 2 && bytes <= 65 * MIB, "{longest:?}, {bytes} bytes");
    assert!(questions < 100, "{questions}");
}

/// The runs are as short as those in `asking_ends_where_it_costs_more_than_it_saves`, but the link is slow:
/// each query saves more time than it takes, so queries must continue.
#[tokio::test(start_paused = true)]
async fn asking_goes_on_where_it_saves_more_than_it_costs() {
    let from = Far::new(GIB, 32 * MIB, SHORT, 50, 500_000, Manner::Tells(1));
    let (progress, took) = copy(&from).await;
    assert!(progress.read < 20 * MIB, "{}", progress.read);
    assert!(in_time(took, progress.read, from.rate, SECOND), "{took:?}");
}

/// With runs of 4 MiB, several queries are in flight, so that their results arrive before they are needed.
#[tokio::test(start_paused = true)]
async fn several_questions_are_under_way() {
    let from = Far::new(0, 256 * MIB, 4 * MIB, 50, 100_000_000, Manner::Tells(1));
    let (progress, took) = copy(&from).await;
    assert!(progress.read < 144 * MIB, "{}", progress.read);
    assert!(in_time(took, progress.read, from.rate, SECOND / 2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_does_not_answer_holds_nothing_up() {
    let from = Far::new(0, 64 * MIB, SHORT, 50, 100_000_000, Manner::IsSilent);
    let (_, took) = copy(&from).await;
    assert!(in_time(took, 64 * MIB, from.rate, SECOND), "{took:?}");
    assert_eq!(from.seen().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_refuses_is_asked_once() {
    let from = Far::new(0, 64 * MIB, SHORT, 50, 100_000_000, Manner::Refuses);
    let ranges = RangeSet::from_iter((0..16).map(|at| at * 4 * MIB..at * 4 * MIB + 2 * MIB));
    let options = CopyOptions::default().with_ranges(ranges);
    let to = Far::new(from.capacity(), 0, 1, 0, u64::MAX, Manner::Tells(1));
    let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to));
    copy.with_options(options).run().await.unwrap();
    assert_eq!(from.seen().0, 1);
}

/// 1,024 runs of zeros must be covered by few queries: with one query per run, each run would take 100 ms.
#[tokio::test(start_paused = true)]
async fn a_verification_asks_for_many_runs_at_once() {
    let to = Far::new(0, 32 * MIB, SHORT / 4, 100, 12_500_000, Manner::Tells(4096));
    let took = verify(&to).await;
    let (questions, bytes, _) = to.seen();
    assert!(in_time(took, 16 * MIB, to.rate, SECOND), "{took:?}");
    assert!(questions <= 2 && bytes == 16 * MIB, "{questions}, {bytes}");
}

#[tokio::test(start_paused = true)]
async fn a_verification_waits_for_no_answer_that_costs_more_than_it_saves() {
    for manner in [Manner::Tells(1), Manner::Refuses, Manner::IsSilent] {
        let to = Far::new(0, 32 * MIB, SHORT / 4, 100, 125_000_000, manner);
        let took = verify(&to).await;
        let (questions, ..) = to.seen();
        assert!(in_time(took, 32 * MIB, to.rate, 2 * SECOND), "{manner:?}: {took:?}");
        assert!(questions < 100, "{manner:?}: {questions}");
    }
}

/// The source is queried for ranges that another run has copied, with many ranges per query.
#[tokio::test(start_paused = true)]
async fn what_another_run_has_copied_is_asked_for_at_once() {
    const RUN: u64 = SHORT / 4;
    let end = || Far::new(0, 32 * MIB, RUN, 100, 12_500_000, Manner::Tells(4096));
    let (from, to) = (end(), end());
    // In each range: data, zeros, data.
    let earlier = RangeSet::from_iter((0..512).map(|at| at * 4 * RUN..at * 4 * RUN + 3 * RUN));
    let destination = Destination::device(to.clone());
    let verify =
        Verify::new(Source::device(from.clone()), &destination, Checksums::default()).unwrap();
    let begun = Instant::now();
    verify.with_earlier(earlier).run().await.unwrap();
    assert!(in_time(begun.elapsed(), 16 * MIB, to.rate, 2 * SECOND), "{:?}", begun.elapsed());
    let [from, to] = [from.seen(), to.seen()];
    assert!(from.0 <= 2 && to.0 <= 4, "{from:?} {to:?}");
    assert_eq!((from.1, to.1), (16 * MIB, 16 * MIB));
}

/// Queries continue after a transient error.
#[tokio::test(start_paused = true)]
async fn an_error_of_one_question_is_forgotten() {
    #[derive(Debug)]
    struct Stumbles(Far);

    impl Device for Stumbles {
        fn capacity(&self) -> u64 {
            self.0.capacity()
        }

        fn limits(&self) -> DeviceLimits {
            self.0.limits()
        }

        fn queue_depth(&self, io_size: usize) -> usize {
            self.0.queue_depth(io_size)
        }

        fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
            self.0.read_into(offset, buffer)
        }

        fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
            self.0.write_at(offset, pages)
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
            self.0.flush()
        }

        fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
            if offset == 0 {
                return Box::pin(async { Err(DeviceErrorKind::Busy.into()) });
            }
            self.0.extents(offset, len)
        }
    }

    let from = Far::new(4 * GIB, 64 * MIB, SHORT, 50, 1_000_000_000, Manner::Tells(4096));
    let to = Far::new(from.capacity(), 0, 1, 0, u64::MAX, Manner::Tells(1));
    let source = Source::device(Stumbles(from.clone()));
    let progress = CopyJob::new(source, Destination::device(to)).run().await.unwrap().progress;
    assert!(progress.read < 2 * GIB, "{}", progress.read);
}
