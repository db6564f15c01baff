//! Tests of copies between devices that complete requests in any order: every byte arrives, memory is
//! bounded, and zeros are not sent.

use std::time::Duration;

use crate::support::{GRAIN, Memory, pattern};
use iscsi_copy::device::{DeviceError, DeviceErrorKind};
use iscsi_copy::{CopyError, CopyJob, CopyOptions, Destination, Event, Source};

fn options() -> CopyOptions {
    CopyOptions::default().with_io_size(4096).with_zero_granularity(Some(512))
}

/// Returns the error of a device for a request that touches [the failing byte](support::State::fails_at).
fn bad_block() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Other, "a bad block")
}

fn copy(from: &Memory, to: &Memory) -> CopyJob {
    let (from, to) = (Source::device(from.clone()), Destination::device(to.clone()));
    CopyJob::new(from, to).with_options(options())
}

/// Returns the bytes of alternating runs of data and zeros; `grains` has the length of each run, beginning
/// with data.
fn sparse(grains: &[usize]) -> Vec<u8> {
    let mut bytes = pattern(grains.iter().sum::<usize>() * GRAIN);
    let mut at = 0;
    for (index, count) in grains.iter().enumerate() {
        let end = at + count * GRAIN;
        if index % 2 == 1 {
            bytes[at..end].fill(0);
        }
        at = end;
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn every_byte_arrives_and_is_flushed() {
    let (from, to) = (Memory::new(pattern(100_003)), Memory::new(pattern(200_000)));
    let rest = to.lock().bytes[100_003..].to_vec();
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert_eq!(to.lock().bytes[..100_003], from.lock().bytes);
    assert_eq!(to.lock().bytes[100_003..], rest);
    let all = 100_003;
    assert_eq!((progress.total, progress.done, progress.flushed), (Some(all), all, all));
    assert_eq!((progress.read, progress.written, progress.lost), (all, all, 0));
    assert!(to.lock().flushes > 0);
}

#[tokio::test(start_paused = true)]
async fn holes_are_neither_read_nor_written_where_the_destination_reads_as_zeros() {
    let bytes = sparse(&[3, 1000, 5, 2000, 1]);
    let (from, to) = (Memory::new(bytes.clone()), Memory::blank(bytes.len()));
    from.lock().extents_at_once = 2;
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, bytes);
    let (data, zeros) = (9 * GRAIN as u64, 3000 * GRAIN as u64);
    assert_eq!((progress.read, progress.written), (data, data));
    assert_eq!((progress.skipped, progress.zeroed), (zeros, 0));
    assert_eq!(progress.flushed, data + zeros);
}

/// The copy trusts a source that reports its data as a hole, unless holes are read.
#[tokio::test(start_paused = true)]
async fn holes_that_are_none_are_copied_where_holes_are_read() {
    for reads_holes in [false, true] {
        let bytes = sparse(&[3, 1000, 5]);
        let (from, to) = (Memory::new(bytes.clone()), Memory::blank(bytes.len()));
        from.lock().bytes[GRAIN * 500] = 7;
        let options = CopyOptions::default().with_holes_read(reads_holes);
        copy(&from, &to).with_options(options).run().await.unwrap();
        assert_eq!(to.lock().bytes == from.lock().bytes, reads_holes);
    }
}

#[tokio::test(start_paused = true)]
async fn what_stood_in_the_place_of_a_hole_is_made_zero() {
    let bytes = sparse(&[3, 1000, 5]);
    let (from, to) = (Memory::new(bytes.clone()), Memory::new(pattern(bytes.len())));
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, bytes);
    assert_eq!(progress.zeroed, 1000 * GRAIN as u64);
    assert_eq!(to.lock().zeroed, [(3 * GRAIN as u64, 1000 * GRAIN as u64)]);
}

#[tokio::test(start_paused = true)]
async fn zeros_are_sent_where_nothing_else_makes_them() {
    let bytes = sparse(&[3, 1000, 5]);
    let (from, to) = (Memory::new(bytes.clone()), Memory::new(pattern(bytes.len())));
    to.lock().limits.has_fast_zeroes = false;
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, bytes);
    assert_eq!((progress.read, progress.zeroed), (8 * GRAIN as u64, 1000 * GRAIN as u64));
    assert!(to.lock().writes.iter().all(|(_, len)| *len <= 4096));
}

#[tokio::test(start_paused = true)]
async fn zeros_in_data_are_found() {
    let bytes = sparse(&[3, 100, 5, 1, 2]);
    let from = Memory::new(bytes.clone()).without_extents();
    let to = Memory::blank(bytes.len());
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, bytes);
    assert_eq!((progress.read, progress.written), (bytes.len() as u64, 10 * GRAIN as u64));
    let sends = options().with_zero_granularity(None);
    let to = Memory::blank(bytes.len());
    let progress = copy(&from, &to).with_options(sends).run().await.unwrap().progress;
    assert_eq!((to.lock().bytes.clone(), progress.written), (bytes.clone(), bytes.len() as u64));
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_said_to_be_zero_is_believed() {
    let bytes = sparse(&[3, 100, 5]);
    let (from, to) = (Memory::new(bytes.clone()), Memory::blank(bytes.len()).without_extents());
    let zero = options().with_destination_is_zero(true);
    let progress = copy(&from, &to).with_options(zero).run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, bytes);
    assert_eq!((progress.zeroed, progress.skipped), (0, 100 * GRAIN as u64));
}

#[tokio::test(start_paused = true)]
async fn a_loss_costs_what_was_written_since_the_last_flush() {
    let (from, to) = (Memory::new(pattern(1 << 20)), Memory::blank(1 << 20));
    to.lock().losses = 2;
    let often = options().with_flush_bytes(64 << 10);
    let copy = copy(&from, &to).with_options(often);
    let mut events = copy.events();
    let progress = copy.run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, from.lock().bytes);
    assert!(progress.lost > 0 && progress.lost < 400 << 10, "{progress:?}");
    assert_eq!(progress.written, (1 << 20) + progress.lost);
    assert_eq!((progress.done, progress.flushed), (1 << 20, 1 << 20));
    let mut losses = 0;
    while let Some(event) = events.next().await {
        losses += u64::from(matches!(event, Event::Lost { .. }));
    }
    assert_eq!(losses, 2);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_loses_all_again_and_again_is_given_up() {
    let (from, to) = (Memory::new(pattern(100_000)), Memory::blank(100_000));
    to.lock().losses = 100;
    let failure = copy(&from, &to).run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Flush(_)), "{failure:?}");
    assert_eq!(failure.progress.flushed, 0);
    assert_eq!(failure.error.device().unwrap().kind(), DeviceErrorKind::LostWrites);
}

/// Zeros that another run has written without a flush are lost with the cache. So they must be flushed before
/// they are skipped.
#[tokio::test(start_paused = true)]
async fn a_hole_that_is_left_alone_outlives_a_loss_of_the_cache() {
    let from = Memory::new(sparse(&[8, 24]));
    let to = Memory::emptied(pattern(32 * GRAIN));
    to.lock().holds_writes = true;
    let running = tokio::spawn(copy(&from, &to).run());
    tokio::time::sleep(Duration::from_secs(10)).await;
    to.lock().losses = 1;
    to.lock().holds_writes = false;
    let progress = running.await.unwrap().unwrap().progress;
    assert!(to.lock().bytes == from.lock().bytes);
    assert_eq!(progress.skipped, 24 * GRAIN as u64);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_written_again_from_memory() {
    let (bytes, to) = (pattern(1 << 20), Memory::blank(1 << 20));
    to.lock().losses = 2;
    let source = Source::stream(std::io::Cursor::new(bytes.clone()), None);
    let small = options().with_max_memory(128 << 10);
    let copy = CopyJob::new(source, Destination::device(to.clone())).with_options(small);
    let progress = copy.run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, bytes);
    assert_eq!(progress.read, 1 << 20, "it was read once");
    assert!(progress.lost > 0 && progress.lost <= 2 * (128 << 10), "{progress:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_too_long_is_told() {
    let to = Memory::blank(10_000);
    let source = Source::stream(std::io::Cursor::new(pattern(10_001)), None);
    let copy = CopyJob::new(source, Destination::device(to)).with_options(options());
    let failure = copy.run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Overflow { capacity: 10_000 }), "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_told_before_anything_is_written() {
    let (from, to) = (Memory::new(pattern(10_001)), Memory::blank(10_000));
    let failure = copy(&from, &to).run().await.unwrap_err();
    let expected = CopyError::TooSmall { capacity: 10_000, needed: 10_001 };
    assert_eq!(failure.to_string(), expected.to_string());
    to.lock().limits.is_read_only = true;
    let failure = copy(&to, &to).run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::ReadOnly));
    assert!(to.lock().writes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_ends_the_copy_and_what_was_written_is_flushed() {
    for is_source in [true, false] {
        let (from, to) = (Memory::new(pattern(100_000)), Memory::blank(100_000));
        let bad = if is_source { &from } else { &to };
        bad.lock().fails_at = Some(50_000);
        let failure = copy(&from, &to).run().await.unwrap_err();
        let ends = [CopyError::Source(bad_block()), CopyError::Destination(bad_block())];
        let expected = &ends[usize::from(!is_source)];
        assert_eq!(failure.to_string(), expected.to_string());
        assert_eq!(failure.progress.done, failure.progress.flushed);
        assert!(failure.progress.done > 0 && to.lock().under_way.0 == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn memory_and_queues_are_bounded() {
    let (from, to) = (Memory::new(pattern(1 << 20)), Memory::blank(1 << 20));
    let few = options().with_queue_depth(2).with_max_memory(3 * 4096);
    copy(&from, &to).with_options(few).run().await.unwrap();
    assert_eq!(to.lock().bytes, from.lock().bytes);
    assert!(from.lock().under_way.1 <= 2 && to.lock().under_way.1 <= 3, "a flush besides");
    let (from, to) = (Memory::new(pattern(1 << 20)), Memory::blank(1 << 20));
    copy(&from, &to).run().await.unwrap();
    assert_eq!(from.lock().under_way.1, 4, "as deep as it says");
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_the_copy_and_a_cancel_ends_it_in_order() {
    let (from, to) = (Memory::new(pattern(1 << 20)), Memory::blank(1 << 20));
    let copy = copy(&from, &to);
    let control = copy.control();
    control.pause();
    let running = tokio::spawn(copy.run());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((control.progress().done, from.lock().reads.len()), (0, 0));
    assert!(control.is_paused());
    control.resume();
    assert!(!control.is_paused());
    while control.progress().done == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    control.cancel();
    control.resume();
    let failure = running.await.unwrap().unwrap_err();
    assert!(matches!(failure.error, CopyError::Cancelled), "{failure:?}");
    let progress = failure.progress;
    assert!(progress.done > 0 && progress.done < 1 << 20 && progress.done == progress.flushed);
    assert_eq!(to.lock().under_way.0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_gets_all_bytes_in_order() {
    let bytes = sparse(&[3, 100, 5]);
    let from = Memory::new(bytes.clone());
    let (writer, mut reader) = tokio::io::duplex(1000);
    let copy =
        CopyJob::new(Source::device(from), Destination::stream(writer)).with_options(options());
    let running = tokio::spawn(copy.run());
    let mut found = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut found).await.unwrap();
    running.await.unwrap().unwrap();
    assert!(found == bytes);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_copied_well() {
    let progress = copy(&Memory::blank(0), &Memory::blank(0)).run().await.unwrap().progress;
    assert_eq!((progress.total, progress.done), (Some(0), 0));
    let source = Source::stream(tokio::io::empty(), None);
    CopyJob::new(source, Destination::device(Memory::blank(0))).run().await.unwrap();
}
