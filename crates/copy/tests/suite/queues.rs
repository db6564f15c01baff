//! Tests of the requests in flight, and of their end when a copy stops early.

use std::time::Duration;

use crate::support::{Folder, Memory, pattern};
use iscsi_copy::{
    CheckpointFile, Control, Copied, CopyError, CopyJob, CopyOptions, Destination, DigestFile,
    Failure, Identity, Source,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const IO: usize = 4096;
const LEN: usize = 4 << 20;

fn copy(from: &Memory, to: &Memory) -> CopyJob {
    let (from, to) = (Source::device(from.clone()), Destination::device(to.clone()));
    CopyJob::new(from, to).with_options(CopyOptions::default().with_io_size(IO))
}

fn start(copy: CopyJob) -> (Control, JoinHandle<Result<Copied, Failure>>) {
    (copy.control(), tokio::spawn(copy.run()))
}

/// Copies from a device that reports the queue depth `before`, and in the second half the depth `after`.
/// Returns the largest numbers of concurrent reads: before the change, and more than a second after it.
async fn most_reads(options: CopyOptions, before: usize, after: usize) -> (usize, usize) {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    (from.lock().depth, to.lock().depth) = (before, 10);
    let (control, running) = start(copy(&from, &to).with_options(options.with_io_size(IO)));
    while control.progress().done < LEN as u64 / 2 {
        sleep(Duration::from_millis(1)).await;
    }
    let first = from.lock().under_way.1;
    from.lock().depth = after;
    sleep(Duration::from_secs(1)).await;
    assert!(!running.is_finished(), "it was over before it could be seen");
    from.lock().under_way.1 = 0;
    running.await.unwrap().unwrap();
    assert!(to.lock().bytes == from.lock().bytes);
    let last = from.lock().under_way.1;
    (first, last)
}

#[tokio::test(start_paused = true)]
async fn the_queue_follows_the_device_unless_it_is_fixed() {
    assert_eq!(most_reads(CopyOptions::default(), 2, 7).await, (2, 7));
    assert_eq!(most_reads(CopyOptions::default(), 7, 2).await, (7, 2));
    assert_eq!(most_reads(CopyOptions::default().with_queue_depth(3), 2, 7).await, (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_source_tells_how_many_reads_it_wants() {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    (from.lock().depth, from.lock().read_depth, to.lock().depth) = (9, Some(3), 10);
    start(copy(&from, &to)).1.await.unwrap().unwrap();
    assert_eq!(from.lock().under_way.1, 3);
}

/// The changes of a disk in use are short, scattered ranges. Over a long link the number of bytes in flight
/// matters, so more short reads are in flight. They are not queried, because a query takes as long as the
/// read.
#[tokio::test(start_paused = true)]
async fn short_ranges_make_up_in_number_what_they_lack_in_length() {
    const IO: u64 = 64 << 10;
    let long = 2 << 20..(2 << 20) + 4 * IO;
    let short = (0..400).map(|at| at * 10_240).filter(|at| !long.contains(at));
    let ranges = short.map(|at| at..at + 1024).chain([long.clone()]).collect();
    let mut image = pattern(LEN);
    image[long.start as usize..][..IO as usize].fill(0);
    let devices = || {
        let devices = (Memory::new(image.clone()), Memory::new(vec![0xaa; LEN]));
        for device in [&devices.0, &devices.1] {
            let mut state = device.lock();
            (state.depth, state.short_depth) = (4, Some(50));
            state.limits.preferred_transfer = IO as usize;
        }
        devices
    };
    let options = CopyOptions::default().with_ranges(ranges).with_io_size(IO as usize);
    for (options, most) in [(options.clone(), 50), (options.with_queue_depth(4), 4)] {
        let (from, to) = devices();
        let (source, destination) = (Source::device(from.clone()), Destination::device(to.clone()));
        CopyJob::new(source, destination).with_options(options).run().await.unwrap();
        // The destination also has queries and flushes in flight.
        let (reads, writes) = (from.lock().under_way.1, to.lock().under_way.1);
        assert!((most..=most + 1).contains(&reads), "{reads} of {most}");
        assert!((most..=most + 2).contains(&writes), "{writes} of {most}");
        assert_eq!(from.lock().questions, 1, "of the long range, whose hole is not read");
        assert!(
            from.lock().reads.iter().all(|(at, _)| !(long.start..long.start + IO).contains(at))
        );
        assert_eq!(to.lock().bytes[20_480..21_504], image[20_480..21_504]);
        assert_eq!(
            to.lock().bytes[long.start as usize..long.end as usize].to_vec(),
            image[long.start as usize..long.end as usize]
        );
        assert!(to.lock().bytes[1024..10_240].iter().all(|byte| *byte == 0xaa));
    }
}

/// A flush that does not end stops later writes: at most twice its coverage is unflushed.
#[tokio::test(start_paused = true)]
async fn writes_wait_for_a_flush_that_does_not_end() {
    const FLUSH: u64 = 64 << 10;
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    to.lock().holds_flushes = true;
    let options = CopyOptions::default().with_io_size(IO).with_flush_bytes(FLUSH);
    let (control, running) = start(copy(&from, &to).with_options(options));
    sleep(Duration::from_secs(20)).await;
    let written = control.progress().written;
    assert!((FLUSH..=2 * FLUSH + IO as u64).contains(&written), "{written}");
    to.lock().holds_flushes = false;
    running.await.unwrap().unwrap();
    assert!(to.lock().bytes == from.lock().bytes);
}

/// Returns a copy whose writes do not end, after all its requests are in flight.
async fn stuck() -> (Memory, Memory, Control, JoinHandle<Result<Copied, Failure>>) {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    to.lock().holds_writes = true;
    let (control, running) = start(copy(&from, &to));
    sleep(Duration::from_secs(10)).await;
    (from, to, control, running)
}

#[tokio::test(start_paused = true)]
async fn reads_go_on_while_all_writes_are_stuck_but_not_for_ever() {
    let (from, to, _, running) = stuck().await;
    assert_eq!((from.lock().reads.len(), to.lock().under_way.0), (8, 4));
    to.lock().holds_writes = false;
    running.await.unwrap().unwrap();
    assert!(to.lock().bytes == from.lock().bytes);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_the_writes_under_way_and_starts_nothing_more() {
    let (from, to, control, running) = stuck().await;
    control.cancel();
    sleep(Duration::from_secs(10)).await;
    assert!(!running.is_finished());
    to.lock().holds_writes = false;
    let failure = running.await.unwrap().unwrap_err();
    assert!(matches!(failure.error, CopyError::Cancelled), "{failure:?}");
    let progress = failure.progress;
    assert_eq!((progress.done, progress.flushed), (4 * IO as u64, 4 * IO as u64));
    assert_eq!((from.lock().reads.len(), to.lock().writes.len()), (8, 4));
    assert!(!failure.is_written);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_copy_does_not_wait_for_writes_that_do_not_end() {
    let (_, to, control, running) = stuck().await;
    control.cancel();
    sleep(Duration::from_secs(10)).await;
    control.abandon();
    let failure = running.await.unwrap().unwrap_err();
    let under_way = 4 * IO as u64;
    assert_eq!(
        failure.error.to_string(),
        CopyError::Abandoned { in_flight: under_way }.to_string()
    );
    assert_eq!((failure.progress.done, to.lock().writes.len()), (0, 0));
}

/// A cancel takes effect immediately, although source and destination take long to report their zeros.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_before_the_first_read_is_obeyed_at_once() {
    let (from, to) = (Memory::blank(LEN), Memory::blank(LEN));
    (from.lock().holds_extents, to.lock().holds_extents) = (true, true);
    let (control, running) = start(copy(&from, &to));
    sleep(Duration::from_millis(200)).await;
    control.cancel();
    sleep(Duration::from_millis(1)).await;
    assert!(running.is_finished());
    let failure = running.await.unwrap().unwrap_err();
    assert!(matches!(failure.error, CopyError::Cancelled) && !failure.is_written, "{failure:?}");
    assert_eq!((from.lock().reads.len(), to.lock().flushes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn data_do_not_wait_until_the_destination_has_told_what_is_zero() {
    for tells in [true, false] {
        let mut bytes = pattern(LEN);
        bytes[IO..LEN - IO].fill(0);
        let (from, to) = (Memory::new(bytes.clone()), Memory::blank(LEN));
        to.lock().holds_extents = true;
        let (control, running) = start(copy(&from, &to));
        sleep(Duration::from_secs(1)).await;
        assert_eq!((control.progress().done, to.lock().zeroed.len()), (2 * IO as u64, 0));
        to.lock().holds_extents = !tells;
        let progress = running.await.unwrap().unwrap().progress;
        let zeros = (LEN - 2 * IO) as u64;
        let expected = if tells { (zeros, 0) } else { (0, zeros) };
        assert_eq!((progress.skipped, progress.zeroed), expected);
        assert!(to.lock().bytes == bytes);
    }
}

/// A copy without zeros ends without the destination's report of its zeros.
#[tokio::test(start_paused = true)]
async fn a_copy_without_zeros_is_over_before_the_destination_has_told() {
    let (from, to) = (Memory::new(pattern(IO)), Memory::blank(IO));
    to.lock().holds_extents = true;
    let (_, running) = start(copy(&from, &to));
    sleep(Duration::from_secs(1)).await;
    assert!(running.is_finished());
    running.await.unwrap().unwrap();
}

/// Returns a cancelled copy whose writes have all ended, and whose last flush does not end.
async fn flushing() -> (Memory, Control, JoinHandle<Result<Copied, Failure>>) {
    let (from, to) = (Memory::new(pattern(10_000)), Memory::blank(10_000));
    to.lock().holds_flushes = true;
    let (control, running) = start(copy(&from, &to));
    sleep(Duration::from_secs(10)).await;
    control.cancel();
    sleep(Duration::from_secs(10)).await;
    assert!(!running.is_finished());
    (to, control, running)
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_too_late_changes_nothing() {
    let (to, _, running) = flushing().await;
    to.lock().holds_flushes = false;
    assert_eq!(running.await.unwrap().unwrap().progress.flushed, 10_000);
    assert_eq!(to.lock().flushes, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_and_not_flushed_is_told() {
    let (_, control, running) = flushing().await;
    control.abandon();
    let failure = running.await.unwrap().unwrap_err();
    assert!(matches!(failure.error, CopyError::Abandoned { in_flight: 0 }), "{failure:?}");
    assert!(failure.is_written);
    assert_eq!((failure.progress.done, failure.progress.flushed), (10_000, 0));

    let (from, to) = (Memory::new(pattern(10_000)), Memory::blank(10_000));
    to.lock().fails_flush = true;
    let failure = copy(&from, &to).run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Flush(_)) && failure.is_written, "{failure:?}");
    assert_eq!((failure.progress.done, failure.progress.flushed), (10_000, 0));
}

/// After a failed flush the copy fails: the cache may have dropped the data that the medium did not take, so
/// another flush shows nothing.
#[tokio::test(start_paused = true)]
async fn a_flush_that_has_failed_is_not_made_good_by_the_next_one() {
    let (to, control, running) = flushing().await;
    control.cancel();
    to.lock().failing_flushes = 1;
    to.lock().holds_flushes = false;
    let failure = running.await.unwrap().unwrap_err();
    assert!(matches!(failure.error, CopyError::Cancelled), "{failure:?}");
    assert_eq!(failure.progress.flushed, 0);
}

/// After a cancel, no further flush is made if one has failed: writes since it began may have failed too, and
/// the system reports that only once.
#[tokio::test(start_paused = true)]
async fn no_flush_is_made_after_one_that_fails_behind_a_cancel() {
    const FLUSH: u64 = 64 << 10;
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    to.lock().holds_flushes = true;
    let folder = Folder::new();
    let ends = Identity::new("a disk", LEN as u64);
    let checkpoint = CheckpointFile::new(folder.path("map"), ends.clone(), ends.clone());
    let digests = || DigestFile::open(folder.path("digests"), &ends, &ends, IO as u64).unwrap();
    let options = CopyOptions::default()
        .with_io_size(IO)
        .with_flush_bytes(FLUSH)
        .with_checkpoint(checkpoint.clone())
        .with_digests(digests());
    let (control, running) = start(copy(&from, &to).with_options(options));
    sleep(Duration::from_secs(20)).await;
    assert!(
        control.progress().written > FLUSH,
        "the flush is under way, and writes have ended since"
    );
    control.cancel();
    sleep(Duration::from_secs(1)).await;
    to.lock().failing_flushes = 1;
    to.lock().holds_flushes = false;
    let failure = running.await.unwrap().unwrap_err();
    assert!(matches!(failure.error, CopyError::Cancelled), "{failure:?}");
    assert_eq!((failure.progress.flushed, to.lock().flushes), (0, 1));
    assert_eq!(checkpoint.load().unwrap().unwrap_or_default().bytes(), 0);
    assert!(digests().known().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_missing_though_it_was_the_last() {
    let (from, to) = (Memory::new(pattern(10_000)), Memory::blank(10_000));
    to.lock().fails_at = Some(9_999);
    let failure = copy(&from, &to).run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Destination(_)) && !failure.is_written);
    assert_eq!((failure.progress.done, failure.progress.flushed), (8192, 8192));

    let source = Source::stream(std::io::Cursor::new(pattern(10_001)), None);
    let copy = CopyJob::new(source, Destination::device(Memory::blank(10_000)));
    let failure =
        copy.with_options(CopyOptions::default().with_io_size(IO)).run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Overflow { .. }) && !failure.is_written);
}
