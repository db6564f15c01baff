//! Tests of a source that cannot be read completely.

use std::fs;
use std::io;

use crate::support::{Folder, GRAIN, Memory, pattern};
use iscsi_copy::device::{DeviceError, DeviceErrorKind};
use iscsi_copy::{
    CheckpointFile, CopyError, CopyJob, CopyOptions, Destination, Event, Identity, RangeSet,
    Source, Verify,
};
use nix::errno::Errno;

const LEN: usize = 200_000;
const BAD: [u64; 4] = [0, 17, 18, 390];

fn copy(from: &Memory, to: &Memory, skips: bool) -> (CopyJob, Source, Destination) {
    let (from, to) = (Source::device(from.clone()), Destination::device(to.clone()));
    let options = CopyOptions::default().with_io_size(4096).with_checksums(true);
    let options = options.with_skipped_unreadable(skips);
    (CopyJob::new(from.clone(), to.clone()).with_options(options), from, to)
}

fn bad_bytes() -> RangeSet {
    let grain = |bad: u64| bad * GRAIN as u64..((bad + 1) * GRAIN as u64).min(LEN as u64);
    BAD.into_iter().map(grain).collect()
}

#[tokio::test(start_paused = true)]
async fn all_but_the_bad_blocks_arrives() {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::new(vec![250; LEN]));
    from.lock().bad_grains = BAD.to_vec();
    let (copy, source, destination) = copy(&from, &to, true);
    let mut events = copy.events();
    let copied = copy.run().await.unwrap();
    assert_eq!(copied.unreadable, bad_bytes());
    let progress = copied.progress;
    assert_eq!((progress.unreadable, progress.lost), (bad_bytes().bytes(), 0));
    assert_eq!(progress.flushed + progress.unreadable, LEN as u64);
    let mut expected = from.lock().bytes.clone();
    for range in bad_bytes().iter() {
        expected[range.start as usize..range.end as usize].fill(250);
    }
    assert!(to.lock().bytes == expected, "what is not known is left alone");
    // Only the data that was read is verified.
    Verify::new(source, &destination, copied.checksums.unwrap()).unwrap().run().await.unwrap();
    let mut told = RangeSet::new();
    while let Some(event) = events.next().await {
        if let Event::Unreadable { offset, len } = event {
            told.insert(offset..offset + len);
        }
    }
    assert_eq!(told, bad_bytes());
}

#[tokio::test(start_paused = true)]
async fn unless_that_is_asked_for_it_is_an_error() {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    from.lock().bad_grains = BAD.to_vec();
    let failure = copy(&from, &to, false).0.run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Source(_)), "{failure:?}");
    assert!(failure.unreadable.is_empty());
}

/// A read that fails for another reason than the medium may succeed later, so its range is not omitted.
#[tokio::test(start_paused = true)]
async fn only_what_the_medium_does_not_give_is_left_out() {
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    from.lock().fails_at = Some(100_000);
    let failure = copy(&from, &to, true).0.run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Source(_)), "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_run_tries_again_what_is_in_the_map() {
    let folder = Folder::new();
    let name = |name| Identity::new(name, LEN as u64);
    let map = CheckpointFile::new(folder.path("map"), name("from"), name("to"));
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    let run = || {
        let options = CopyOptions::default().with_io_size(4096).with_skipped_unreadable(true);
        let options = options.with_done(map.load().unwrap().unwrap_or_default());
        let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
        copy.with_options(options.with_checkpoint(map.clone())).run()
    };
    from.lock().bad_grains = BAD.to_vec();
    run().await.unwrap();
    let text = fs::read_to_string(map.path()).unwrap();
    let bad: Vec<_> = text.lines().filter(|line| line.ends_with('-')).collect();
    assert_eq!(bad, ["0x0 0x200 -", "0x2200 0x400 -", "0x30c00 0x140 -"]);
    from.lock().bad_grains = vec![17];
    let copied = run().await.unwrap();
    assert_eq!(copied.unreadable, RangeSet::from(17 * 512..18 * 512));
    assert_eq!(copied.progress.read, bad_bytes().bytes() - 512);
    from.lock().bad_grains.clear();
    assert!(run().await.unwrap().unreadable.is_empty());
    assert!(to.lock().bytes == from.lock().bytes);
    assert_eq!(map.load().unwrap(), Some(RangeSet::from(0..LEN as u64)));
}

#[test]
fn a_file_tells_a_medium_that_cannot_be_read_by_one_of_four_numbers() {
    let kind = |number: Errno| DeviceError::from(io::Error::from(number)).kind();
    for number in [Errno::EIO, Errno::EREMOTEIO, Errno::ENODATA, Errno::EILSEQ] {
        assert_eq!(kind(number), DeviceErrorKind::Medium, "{number}");
    }
    assert_eq!(kind(Errno::ENOSPC), DeviceErrorKind::OutOfSpace);
    assert_eq!(kind(Errno::EACCES), DeviceErrorKind::Denied);
}
