//! Tests of a rate limit that changes while the copy runs.

use std::time::Duration;

use crate::support::{Memory, pattern};
use iscsi_copy::{CopyError, CopyJob, CopyOptions, Destination, Progress, Source, Verify};
use tokio::time::{Instant, sleep, timeout};

const LEN: usize = 256 << 10;
const IO: usize = 4096;
const RATE: u64 = 16 << 10;
/// Time that the whole copy takes at the rate.
const TIME: Duration = Duration::from_secs(LEN as u64 / RATE);
/// Upper bound of the time that the device takes for a request and a flush.
const SLACK: Duration = Duration::from_millis(500);

fn copy(source: Source, destination: Destination) -> CopyJob {
    CopyJob::new(source, destination).with_options(CopyOptions::default().with_io_size(IO))
}

fn memories() -> (Memory, Memory) {
    (Memory::new(pattern(LEN)), Memory::blank(LEN))
}

/// Checks a copy every 10 ms: it must not have moved more than the rate allows, plus two requests.
async fn run_within_rate(job: CopyJob) -> (Progress, Duration) {
    let (control, begun) = (job.control(), Instant::now());
    let mut running = tokio::spawn(job.run());
    loop {
        let Ok(ended) = timeout(Duration::from_millis(10), &mut running).await else {
            let most = RATE * begun.elapsed().as_millis() as u64 / 1000 + 2 * IO as u64;
            let Progress { read, written, .. } = control.progress();
            assert!(read <= most && written <= most, "{read}, {written} after {most}");
            continue;
        };
        return (ended.unwrap().unwrap().progress, begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn devices_and_streams_keep_to_the_rate_and_use_all_of_it() {
    let bytes = pattern(LEN);
    for kinds in 0..4 {
        let (from, to) = memories();
        let source = match kinds & 1 {
            0 => Source::device(from),
            _ => Source::stream(std::io::Cursor::new(bytes.clone()), None),
        };
        let destination = match kinds & 2 {
            0 => Destination::device(to.clone()),
            _ => Destination::stream(tokio::io::sink()),
        };
        let job = copy(source, destination);
        job.control().set_rate(Some(RATE));
        let (progress, took) = run_within_rate(job).await;
        assert_eq!((progress.read, progress.written), (LEN as u64, LEN as u64), "{kinds}");
        assert!(took > TIME - SLACK && took < TIME + SLACK, "{kinds}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_rate_counts_immediately() {
    let (from, to) = memories();
    let job = copy(Source::device(from.clone()), Destination::device(to));
    let control = job.control();
    control.set_rate(Some(0));
    assert_eq!(control.rate(), Some(1), "0 would never end");
    let mut running = tokio::spawn(job.run());
    // The first read and the first write begin, and then no other begins for a minute.
    assert!(timeout(Duration::from_millis(60_050), &mut running).await.is_err());
    assert_eq!((control.progress().written, from.lock().under_way.0), (IO as u64, 0));
    control.set_rate(None);
    sleep(Duration::from_millis(1)).await;
    assert!(from.lock().under_way.0 > 0, "nothing waits until progress is reported again");
    control.set_rate(Some(RATE));
    sleep(Duration::from_secs(4)).await;
    let written = control.progress().written;
    assert!(written > 3 * RATE && written < 6 * RATE, "{written}");
    control.set_rate(None);
    let lifted = Instant::now();
    running.await.unwrap().unwrap();
    assert!(lifted.elapsed() < TIME / 4, "{:?}", lifted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_waits_for_its_rate_can_be_paused_and_cancelled() {
    let (from, to) = memories();
    let job = copy(Source::device(from), Destination::device(to.clone()));
    let control = job.control();
    control.set_rate(Some(1));
    let running = tokio::spawn(job.run());
    sleep(Duration::from_secs(10)).await;
    control.pause();
    control.set_rate(None);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(control.progress().written, IO as u64, "it is paused");
    control.set_rate(Some(1));
    control.resume();
    sleep(Duration::from_secs(10)).await;
    let cancelled = Instant::now();
    control.cancel();
    let failure = running.await.unwrap().unwrap_err();
    assert!(matches!(failure.error, CopyError::Cancelled), "{failure}");
    assert!(cancelled.elapsed() < SLACK, "{:?}", cancelled.elapsed());
    assert_eq!(failure.progress.flushed, failure.progress.written);
}

/// Holes of the source, and zeros that the destination writes without data, do not count in the rate; zeros
/// sent as data do.
#[tokio::test(start_paused = true)]
async fn zeros_cost_what_they_move() {
    for (is_fast, expected) in [(true, TIME / 2), (false, TIME)] {
        let bytes = [vec![0; LEN / 2], pattern(LEN / 2)].concat();
        let (from, to) = (Memory::new(bytes.clone()), Memory::new(pattern(LEN)));
        to.lock().limits.has_fast_zeroes = is_fast;
        let job = copy(Source::device(from), Destination::device(to.clone()));
        job.control().set_rate(Some(RATE));
        let (progress, took) = run_within_rate(job).await;
        assert_eq!((progress.read, progress.zeroed), (LEN as u64 / 2, LEN as u64 / 2));
        assert!(took > expected - SLACK && took < expected + SLACK, "{is_fast}: {took:?}");
        assert!(to.lock().bytes == bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_verification_keeps_to_the_rate() {
    let (from, to) = memories();
    let (source, destination) = (Source::device(from), Destination::device(to));
    let options = CopyOptions::default().with_io_size(IO).with_checksums(true);
    let job = CopyJob::new(source.clone(), destination.clone()).with_options(options);
    let checksums = job.run().await.unwrap().checksums.unwrap();
    let verify = Verify::new(source, &destination, checksums).unwrap();
    let (control, begun) = (verify.control(), Instant::now());
    control.set_rate(Some(1));
    let running = tokio::spawn(verify.run());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(control.progress().done, IO as u64);
    control.set_rate(Some(RATE));
    running.await.unwrap().unwrap();
    let expected = Duration::from_secs(10) + TIME;
    let took = begun.elapsed();
    // The delay from the old rate is converted to the new rate.
    assert!(took > expected - SLACK && took < expected + SLACK, "{took:?}");
}
