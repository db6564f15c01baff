//! Tests of the verification of a destination.

use crate::support::{GRAIN, Memory, pattern};
use iscsi_copy::{
    Checksums, CopyJob, CopyOptions, Destination, Difference, RangeSet, Source, Verify, VerifyError,
};

const LEN: usize = 100_000;

/// Returns 40,000 bytes of data, 30,000 zeros, and data again.
fn content() -> Vec<u8> {
    let mut bytes = pattern(LEN);
    bytes[40_000..70_000].fill(0);
    bytes
}

/// Copies; returns source, destination and checksums.
async fn copied(to: &Memory) -> (Source, Destination, Checksums) {
    let from = Source::device(Memory::new(content()));
    let to = Destination::device(to.clone());
    let options = CopyOptions::default().with_io_size(4096).with_zero_granularity(Some(512));
    let copy = CopyJob::new(from.clone(), to.clone()).with_options(options.with_checksums(true));
    let checksums = copy.run().await.unwrap().checksums.unwrap();
    assert_eq!(checksums.bytes(), LEN as u64);
    (from, to, checksums)
}

async fn difference(verify: Verify) -> Difference {
    match verify.run().await {
        Err(VerifyError::Mismatch(difference)) => difference,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_equal_is_read_once_and_its_holes_are_not() {
    let to = Memory::blank(LEN);
    let (from, destination, checksums) = copied(&to).await;
    let verify = Verify::new(from, &destination, checksums).unwrap();
    let progress = verify.run().await.unwrap();
    assert_eq!((progress.total, progress.done), (Some(LEN as u64), LEN as u64));
    let read: u64 = to.lock().reads.iter().map(|(_, len)| len).sum();
    assert!((70_000..72_000).contains(&read), "{read}");
}

/// The verification trusts a destination that reports its data as a hole, unless holes are read.
#[tokio::test(start_paused = true)]
async fn a_difference_in_what_is_reported_as_a_hole_is_found_where_holes_are_read() {
    let to = Memory::blank(LEN);
    let (from, destination, checksums) = copied(&to).await;
    // The byte to change lies in a grain that the source has as zeros.
    let is_zero = |grain: &[u8]| grain.iter().all(|byte| *byte == 0);
    let at = GRAIN * to.lock().bytes.chunks(GRAIN).position(is_zero).unwrap();
    to.lock().bytes[at] = 1;
    let verify = || Verify::new(from.clone(), &destination, checksums.clone()).unwrap();
    verify().run().await.unwrap();
    assert_eq!(difference(verify().with_holes_read(true)).await, Difference::At(at as u64));
}

#[tokio::test(start_paused = true)]
async fn as_much_is_read_at_once_as_the_destination_wants_or_somebody_says() {
    let to = Memory::blank(LEN);
    let (from, destination, checksums) = copied(&to).await;
    for (depth, most) in [(None, 4), (Some(2), 2)] {
        to.lock().under_way.1 = 0;
        let verify = Verify::new(from.clone(), &destination, checksums.clone()).unwrap();
        let verify = match depth {
            Some(depth) => verify.with_queue_depth(depth),
            None => verify,
        };
        verify.run().await.unwrap();
        assert_eq!(to.lock().under_way.1, most);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_that_differs_is_told() {
    for at in [0, 39_999, 55_555, 99_999] {
        let to = Memory::new(pattern(LEN));
        let (from, destination, checksums) = copied(&to).await;
        let last = to.lock().bytes[99_999];
        to.lock().bytes[99_999] = !last;
        to.lock().bytes[at] ^= 1;
        let verify = Verify::new(from, &destination, checksums).unwrap();
        assert_eq!(difference(verify).await, Difference::At(at as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_changed_cannot_tell_the_byte() {
    let to = Memory::blank(LEN);
    let (_, destination, checksums) = copied(&to).await;
    to.lock().bytes[5000] ^= 1;
    let somewhere = Difference::Within { offset: 4096, len: 4096 };
    let changed = Source::device(Memory::new(vec![7; LEN]));
    let verify = Verify::new(changed, &destination, checksums.clone()).unwrap();
    assert_eq!(difference(verify).await, somewhere);
    let stream = Source::stream(tokio::io::empty(), None);
    let verify = Verify::new(stream, &destination, checksums).unwrap();
    assert_eq!(difference(verify).await, somewhere);
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_an_error_an_order_or_before_it_begins() {
    let to = Memory::blank(LEN);
    let (from, destination, checksums) = copied(&to).await;
    let verify = Verify::new(from.clone(), &destination, checksums.clone()).unwrap();
    verify.control().cancel();
    assert!(matches!(verify.run().await, Err(VerifyError::Cancelled)));
    to.lock().fails_at = Some(80_000);
    let verify = Verify::new(from.clone(), &destination, checksums.clone()).unwrap();
    assert!(matches!(verify.run().await, Err(VerifyError::Destination(_))));
    let stream = Destination::stream(tokio::io::sink());
    assert!(matches!(Verify::new(from, &stream, checksums), Err(VerifyError::Stream)));
}

#[tokio::test(start_paused = true)]
async fn what_another_run_has_copied_is_compared_with_the_source() {
    let (from, to) = (Memory::new(content()), Memory::blank(LEN).without_extents());
    let (source, destination) = (Source::device(from.clone()), Destination::device(to.clone()));
    to.lock().bytes[..50_000].copy_from_slice(&content()[..50_000]);
    let done = RangeSet::from(0..50_000);
    let options = CopyOptions::default().with_done(done.clone()).with_checksums(true);
    let copy = CopyJob::new(source.clone(), destination.clone()).with_options(options);
    let checksums = copy.run().await.unwrap().checksums.unwrap();
    assert_eq!(checksums.bytes(), LEN as u64 - 50_000);
    let verify = || {
        let verify = Verify::new(source.clone(), &destination, checksums.clone()).unwrap();
        verify.with_earlier(done.clone())
    };
    let progress = verify().run().await.unwrap();
    assert_eq!((progress.total, progress.done), (Some(LEN as u64), LEN as u64));
    for at in [1234, 45_678, 98_765] {
        to.lock().bytes[at] ^= 1;
        assert_eq!(difference(verify()).await, Difference::At(at as u64));
        to.lock().bytes[at] ^= 1;
    }
    from.lock().fails_at = Some(2);
    assert!(matches!(verify().run().await, Err(VerifyError::Source(_))));
}

/// A panic in a device's read continues in the caller: it is not taken for a failure of the destination.
#[tokio::test(start_paused = true)]
#[should_panic(expected = "a bug of the device")]
async fn a_panic_of_a_device_is_not_an_error_of_the_destination() {
    let to = Memory::blank(LEN);
    let (from, destination, checksums) = copied(&to).await;
    to.lock().panics = true;
    drop(Verify::new(from, &destination, checksums).unwrap().run().await);
}
