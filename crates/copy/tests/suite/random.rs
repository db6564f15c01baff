//! Tests with random devices, random options and random losses: the destination equals the source, and only
//! lost data is sent twice.

use crate::support::{GRAIN, Memory, pattern};
use iscsi_copy::{CopyJob, CopyOptions, Destination, Source};
use proptest::prelude::*;

/// Returns the data of a device in which some grains are zero.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let runs = prop::collection::vec((any::<bool>(), 1..20_usize), 0..12);
    (runs, 0..GRAIN).prop_map(|(runs, tail)| {
        let mut bytes = Vec::new();
        for (is_zero, grains) in runs {
            let at = bytes.len();
            bytes.extend(pattern(at + grains * GRAIN).split_off(at));
            if is_zero {
                bytes[at..].fill(0);
            }
        }
        bytes.extend(pattern(tail));
        bytes
    })
}

fn options() -> impl Strategy<Value = CopyOptions> {
    let granularity = prop::option::of(512..4096_usize);
    (512..8192_usize, prop::option::of(1..8_usize), 0..40_000_usize, granularity, 1..60_000_u64)
        .prop_map(|(io_size, depth, memory, granularity, flush)| {
            let options = CopyOptions::default().with_io_size(io_size).with_max_memory(memory);
            let options = options.with_zero_granularity(granularity).with_flush_bytes(flush);
            let options = options.with_checksums(true);
            match depth {
                Some(depth) => options.with_queue_depth(depth),
                None => options,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_destination_equals_the_source(
        bytes in content(),
        old in content(),
        options in options(),
        (losses, is_stream, knows_holes, makes_zeros, at_once)
            in (0..3_usize, any::<bool>(), any::<bool>(), any::<bool>(), 1..4_usize),
    ) {
        let len = bytes.len();
        let mut old = old;
        old.resize(len.max(old.len()), 0);
        let rest = old[len..].to_vec();
        let (from, to) = (Memory::new(bytes.clone()), Memory::new(old));
        let (from, to) = if knows_holes { (from, to) } else { (from.without_extents(), to) };
        (from.lock().extents_at_once, to.lock().losses) = (at_once, losses);
        to.lock().limits.has_fast_zeroes = makes_zeros;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let source = if is_stream {
            Source::stream(std::io::Cursor::new(bytes.clone()), None)
        } else {
            Source::device(from)
        };
        let copy = CopyJob::new(source, Destination::device(to.clone())).with_options(options);
        let control = copy.control();
        let copied = runtime.unwrap().block_on(async {
            let limit = std::time::Duration::from_secs(600);
            tokio::time::timeout(limit, copy.run()).await
        });
        prop_assert!(copied.is_ok(), "it stands still: {:?}", control.progress());
        let copied = copied.unwrap().unwrap();
        let progress = copied.progress;
        prop_assert_eq!(&to.lock().bytes[..len], &bytes);
        prop_assert_eq!(&to.lock().bytes[len..], &rest);
        let all = len as u64;
        prop_assert_eq!((progress.done, progress.flushed), (all, all));
        prop_assert_eq!(progress.written + progress.zeroed + progress.skipped, all + progress.lost);
        prop_assert!(losses > 0 || progress.lost == 0);
        prop_assert_eq!(copied.checksums.unwrap().bytes(), all);
    }
}
