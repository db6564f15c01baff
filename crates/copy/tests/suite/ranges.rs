//! Tests of copies that are limited to given ranges (`CopyOptions::with_ranges`), such as known changes.

use crate::support::{Folder, Memory, pattern};
use iscsi_copy::{
    CheckpointFile, CopyJob, CopyOptions, Destination, DigestFile, Identity, RangeSet, Source,
    Verify,
};

const LEN: usize = 100_000;

fn ranges() -> RangeSet {
    RangeSet::from_iter([100..200, 5000..20_000, 60_000..70_000, 99_000..200_000])
}

fn expected() -> Vec<u8> {
    let mut bytes = vec![0xee; LEN];
    for range in ranges().overlap(&(0..LEN as u64)).iter() {
        let range = range.start as usize..range.end as usize;
        bytes[range.clone()].copy_from_slice(&pattern(LEN)[range]);
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn nothing_else_is_read_or_written() {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::new(vec![0xee; LEN]));
    let (source, destination) = (Source::device(from.clone()), Destination::device(to.clone()));
    let options = CopyOptions::default().with_ranges(ranges()).with_io_size(4096);
    let copy = CopyJob::new(source.clone(), destination.clone());
    let copied = copy.with_options(options.with_checksums(true)).run().await.unwrap();
    let bytes = ranges().overlap(&(0..LEN as u64)).bytes();
    let progress = copied.progress;
    assert_eq!((progress.total, progress.done, progress.read), (Some(bytes), bytes, bytes));
    assert_eq!(to.lock().bytes, expected());
    let verify = Verify::new(source, &destination, copied.checksums.unwrap()).unwrap();
    assert_eq!(verify.run().await.unwrap().done, bytes);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_of_them_is_left_out() {
    let folder = Folder::new();
    let (from, to) = (Memory::new(pattern(LEN)), Memory::new(expected()));
    to.lock().bytes[65_000..].fill(0xee);
    let ends = (Identity::new("a", 1), Identity::new("b", 1));
    let file = CheckpointFile::new(folder.path("map"), ends.0, ends.1);
    let options = CopyOptions::default().with_ranges(ranges()).with_done((0..65_000).into());
    let copy = CopyJob::new(Source::device(from), Destination::device(to.clone()));
    let progress = copy.with_options(options.with_checkpoint(file)).run().await.unwrap().progress;
    assert_eq!((progress.resumed, progress.read), (20_100, 6000));
    assert_eq!(to.lock().bytes, expected());
}

#[tokio::test(start_paused = true)]
async fn nothing_at_all_is_a_copy_as_well() {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::new(vec![0xee; LEN]));
    let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
    let options = CopyOptions::default().with_ranges(RangeSet::new());
    let progress = copy.with_options(options).run().await.unwrap().progress;
    assert_eq!((progress.total, progress.done), (Some(0), 0));
    assert_eq!(to.lock().bytes, vec![0xee; LEN]);
    assert!(from.lock().reads.is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_digests_whole_blocks_are_copied() {
    let folder = Folder::new();
    let (from, to) = (Memory::new(pattern(LEN)), Memory::new(vec![0xee; LEN]));
    let unit = Identity::new("a unit", LEN as u64);
    let copy = async |ranges: RangeSet| {
        let file = DigestFile::open(folder.path("digests"), &unit, &unit, 4096).unwrap();
        let options = CopyOptions::default().with_ranges(ranges).with_digests(file);
        let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
        copy.with_options(options).run().await.unwrap().progress
    };
    assert_eq!(copy(RangeSet::from_iter([4096..4100, 99_000..99_001])).await.done, 4096 + 1696);
    assert_eq!(to.lock().bytes[4096..8192], pattern(LEN)[4096..8192]);
    let again = copy((0..LEN as u64).into()).await;
    assert_eq!(again.skipped, 4096 + 1696);
    assert_eq!(to.lock().bytes, pattern(LEN));
}
