//! Tests of copies that send only the blocks that differ from the last copy.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::{Folder, Memory, pattern};
use iscsi_copy::{
    Copied, CopyError, CopyJob, CopyOptions, Destination, Difference, DigestFile, Digests, Event,
    Failure, FileDevice, Identity, Progress, Source, Verify, VerifyError,
};
use proptest::prelude::*;

const BLOCK: usize = 4096;
const LEN: usize = 50 * BLOCK + 1000;

fn unit() -> Identity {
    Identity::new("a unit", LEN as u64)
}

fn open(path: &Path) -> DigestFile {
    DigestFile::open(path, &Identity::new("a source", 1), &unit(), BLOCK as u64).unwrap()
}

fn options(path: &Path) -> CopyOptions {
    CopyOptions::default().with_io_size(2048).with_digests(open(path)).with_flush_bytes(32 << 10)
}

async fn run(from: &Memory, to: &Memory, path: &Path) -> Result<Copied, Failure> {
    let (from, to) = (Source::device(from.clone()), Destination::device(to.clone()));
    CopyJob::new(from, to).with_options(options(path)).run().await
}

async fn copy(from: &Memory, to: &Memory, path: &Path) -> Progress {
    let progress = run(from, to, path).await.unwrap().progress;
    assert_eq!(to.lock().bytes[..], from.lock().bytes[..]);
    assert_eq!((progress.done, progress.flushed), (LEN as u64, LEN as u64));
    progress
}

/// Returns data, then a long run of zeros, then data.
fn content() -> Vec<u8> {
    let mut bytes = pattern(LEN);
    bytes[10 * BLOCK + 100..30 * BLOCK + 100].fill(0);
    bytes
}

/// Returns the valid digests in a file: for the first byte of each block, the length and the digest of the block.
fn claims(path: &Path) -> BTreeMap<u64, (u64, String)> {
    let mut claims = BTreeMap::new();
    let text = std::fs::read_to_string(path).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split(' ').collect();
        let number =
            |word: &str| u64::from_str_radix(word.strip_prefix("0x").unwrap(), 16).unwrap();
        let (start, len) = (number(words[0]), number(words[1]));
        for at in (start..start + len).step_by(BLOCK).take(LEN / BLOCK + 1) {
            let len = (start + len - at).min(BLOCK as u64);
            match words[2] {
                "?" => _ = claims.remove(&at),
                digest => _ = claims.insert(at, (len, digest.to_owned())),
            }
        }
    }
    claims
}

/// Checks that all digests in a file match `bytes`.
fn is_true(path: &Path, bytes: &[u8]) -> Result<(), TestCaseError> {
    for (at, (len, digest)) in claims(path) {
        let block = &bytes[at as usize..(at + len) as usize];
        if digest == "zeros" {
            prop_assert!(block.iter().all(|byte| *byte == 0), "block at {}", at);
        } else {
            prop_assert_eq!(blake3::hash(block).to_string(), digest, "block at {}", at);
        }
    }
    Ok(())
}

/// Checks before a write that the file has no digest of the range.
fn is_taken_back(path: &Path, offset: u64, len: u64) {
    let claims = claims(path);
    for block in offset / BLOCK as u64..(offset + len).div_ceil(BLOCK as u64) {
        assert!(!claims.contains_key(&(block * BLOCK as u64)), "block {block}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_not_changed_is_not_sent() {
    let folder = Folder::new();
    let path = folder.path("digests");
    let (from, to) = (Memory::new(content()), Memory::blank(LEN));
    let first = copy(&from, &to, &path).await;
    assert!(first.written > 0);
    is_true(&path, &to.lock().bytes).unwrap();
    assert_eq!(open(&path).known().bytes(), LEN as u64, "each block is known");
    let writes = to.lock().writes.len();
    let second = copy(&from, &to, &path).await;
    assert_eq!((second.skipped, second.written, second.zeroed), (LEN as u64, 0, 0));
    assert_eq!(to.lock().writes.len(), writes);
    // Change one byte of the data, one of the hole, and one of the short block at the end.
    for (at, len) in [(5 * BLOCK + 7, BLOCK), (20 * BLOCK, BLOCK), (LEN - 1, LEN % BLOCK)] {
        from.lock().bytes[at] ^= 0x55;
        from.clone().without_extents();
        let third = copy(&from, &to, &path).await;
        assert_eq!(third.written + third.zeroed, len as u64);
        assert_eq!(third.skipped, (LEN - len) as u64);
    }
    // Make the block zeros again.
    from.lock().bytes[20 * BLOCK] = 0;
    let fourth = copy(&from, &to, &path).await;
    assert_eq!((fourth.zeroed, fourth.written), (BLOCK as u64, 0));
    is_true(&path, &to.lock().bytes).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_compared_as_it_comes() {
    let folder = Folder::new();
    let path = folder.path("digests");
    let to = Memory::blank(LEN);
    let mut bytes = pattern(LEN);
    for (edit, sent) in [(0, LEN), (6 * BLOCK, BLOCK), (LEN - 3, LEN % BLOCK)] {
        bytes[edit] ^= 1;
        // After the loss the parts of the stream are written again from memory, so their digests are known.
        to.lock().losses = 1;
        let source = Source::stream(std::io::Cursor::new(bytes.clone()), None);
        let copy =
            CopyJob::new(source, Destination::device(to.clone())).with_options(options(&path));
        let progress = copy.run().await.unwrap().progress;
        assert_eq!(to.lock().bytes, bytes);
        assert_eq!(progress.skipped, (LEN - sent) as u64);
        is_true(&path, &to.lock().bytes).unwrap();
    }
    assert_eq!(open(&path).known().bytes(), LEN as u64);
}

#[tokio::test(start_paused = true)]
async fn a_destination_is_verified_without_its_source() {
    let folder = Folder::new();
    let path = folder.path("digests");
    let (from, to) = (Memory::new(content()), Memory::blank(LEN).without_extents());
    copy(&from, &to, &path).await;
    let verify = async || {
        let digests = Digests::load(&path, &unit()).unwrap().unwrap();
        Verify::by_digests(&Destination::device(to.clone()), digests).unwrap().run().await
    };
    assert_eq!(verify().await.unwrap().done, LEN as u64);
    for (at, offset, len) in
        [(7, 0, BLOCK), (20 * BLOCK, 11 * BLOCK, 0), (LEN - 1, LEN / BLOCK * BLOCK, LEN % BLOCK)]
    {
        to.lock().bytes[at] ^= 1;
        let expected = match len {
            // The digest says that this block holds zeros, so the exact byte that is not zero is reported.
            0 => Difference::At(at as u64),
            len => Difference::Within { offset: offset as u64, len: len as u64 },
        };
        match verify().await {
            Err(VerifyError::Mismatch(difference)) => assert_eq!(difference, expected),
            other => panic!("{other:?}"),
        }
        to.lock().bytes[at] ^= 1;
    }
    open(&path).forget().unwrap();
    assert!(open(&path).known().is_empty());
    let stream = Destination::stream(tokio::io::sink());
    let stream = Verify::by_digests(&stream, Digests::new(4096));
    assert!(matches!(stream, Err(VerifyError::Stream)));
}

/// The digest of a block is removed durably before other data is written there.
#[tokio::test(start_paused = true)]
async fn what_will_be_overwritten_is_taken_back_before() {
    let folder = Folder::new();
    let path = folder.path("digests");
    let (from, to) = (Memory::new(content()), Memory::blank(LEN));
    copy(&from, &to, &path).await;
    let old = from.lock().bytes.clone();
    from.lock().bytes.fill(3);
    from.clone().without_extents();
    to.lock().holds_writes = true;
    let (source, target) = (from.clone(), to.clone());
    let place = path.clone();
    let running = tokio::spawn(async move { run(&source, &target, &place).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let known = Digests::load(&path, &unit()).unwrap().unwrap();
    assert!(known.bytes() < LEN as u64, "a write is under way");
    running.abort();
    _ = running.await;
    // One of the writes has reached the medium, and the source has its old data again.
    (to.lock().bytes[0], to.lock().holds_writes) = (3, false);
    from.lock().bytes = old;
    copy(&from, &to, &path).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_became_shorter_is_not_taken_for_what_it_was() {
    let folder = Folder::new();
    let (path, copied) = (folder.path("digests"), folder.path("copy"));
    let write = async |bytes: &[u8], stream: bool| {
        let to = Destination::file(FileDevice::create(&copied).unwrap());
        let source = if stream {
            Source::stream(std::io::Cursor::new(bytes.to_vec()), None)
        } else {
            Source::device(Memory::new(bytes.to_vec()))
        };
        let ended = CopyJob::new(source, to).with_options(options(&path)).run().await.unwrap();
        assert_eq!(std::fs::read(&copied).unwrap(), bytes);
        ended.progress.skipped
    };
    let bytes = pattern(LEN);
    assert_eq!(write(&bytes, false).await, 0);
    // The source becomes shorter, and then as long as before.
    for is_stream in [false, true] {
        assert_eq!(write(&bytes[..7 * BLOCK + 5], is_stream).await, 7 * BLOCK as u64);
        assert_eq!(write(&bytes, is_stream).await, 7 * BLOCK as u64);
    }
    // Another program has truncated the destination.
    std::fs::File::options().write(true).open(&copied).unwrap().set_len(3 * BLOCK as u64).unwrap();
    assert_eq!(write(&bytes, false).await, 3 * BLOCK as u64);
}

#[tokio::test(start_paused = true)]
async fn a_stream_keeps_no_digests() {
    let folder = Folder::new();
    let source = Source::device(Memory::new(content()));
    let copy = CopyJob::new(source, Destination::stream(tokio::io::sink()));
    let failure = copy.with_options(options(&folder.path("digests"))).run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Digests(_)), "{failure}");
}

/// The option that the destination reads as zeros is valid for the first copy only.
#[tokio::test(start_paused = true)]
async fn a_destination_that_was_copied_to_is_not_zero() {
    let folder = Folder::new();
    let path = folder.path("digests");
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    for _ in 0..2 {
        let ends = (Source::device(from.clone()), Destination::device(to.clone()));
        let options = options(&path).with_destination_is_zero(true);
        CopyJob::new(ends.0, ends.1).with_options(options).run().await.unwrap();
        assert_eq!(to.lock().bytes, from.lock().bytes);
        from.lock().bytes[..20 * BLOCK].fill(0);
    }
}

fn zero_options(path: &Path) -> CopyOptions {
    options(path).with_destination_is_zero(true)
}

/// An empty file of digests does not mean that this is the first copy: a copy that was killed before its
/// first flush has written data without a digest.
#[tokio::test(start_paused = true)]
async fn a_destination_is_not_zero_after_a_copy_that_has_flushed_nothing() {
    let folder = Folder::new();
    let path = folder.path("digests");
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    // Without a volatile cache there is no flush before the first write.
    to.lock().limits.has_volatile_cache = false;
    to.lock().holds_flushes = true;
    let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
    let run = copy.with_options(zero_options(&path)).run();
    assert!(tokio::time::timeout(Duration::from_secs(5), run).await.is_err(), "it is killed");
    to.lock().holds_flushes = false;
    let written = to.lock().bytes.iter().filter(|byte| **byte != 0).count();
    assert!(written > BLOCK, "{written}");
    assert!(open(&path).known().is_empty());
    from.lock().bytes[..4 * BLOCK].fill(0);
    let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
    copy.with_options(zero_options(&path)).run().await.unwrap();
    assert!(to.lock().bytes == from.lock().bytes);
}

/// A file whose digests were all removed does not mean that this is the first copy. A second copy with the
/// handle of the first one does not count as the first either.
#[tokio::test(start_paused = true)]
async fn a_destination_is_not_zero_after_its_digests_were_forgotten() {
    let folder = Folder::new();
    for is_reopened in [true, false] {
        let path = folder.path(if is_reopened { "reopened" } else { "kept" });
        let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
        let first = zero_options(&path);
        let file = first.digests.clone().unwrap();
        let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
        let copied = copy.with_options(first).run().await.unwrap();
        file.forget().unwrap();
        from.lock().bytes[..4 * BLOCK].fill(0);
        let again = if is_reopened { open(&path) } else { file };
        assert!(again.known().is_empty(), "{copied:?}");
        let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
        let options = zero_options(&folder.path("unused")).with_digests(again);
        copy.with_options(options).run().await.unwrap();
        assert!(to.lock().bytes == from.lock().bytes, "reopened: {is_reopened}");
    }
}

#[test]
fn what_is_of_another_unit_or_damaged_is_refused_by_name() {
    let folder = Folder::new();
    let path = folder.path("digests");
    open(&path);
    let other = Identity::new("another unit", LEN as u64);
    let source = Identity::new("a source", 1);
    let error = DigestFile::open(&path, &source, &other, 4096).unwrap_err().to_string();
    assert!(error.contains("a unit") && error.contains("another unit"), "{error}");
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        ("# iscsi-copy digests", "# another file", "it is no file of digests"),
        ("digests 2", "digests 3", "of a newer version"),
        ("blake3", "sha3", "not BLAKE3"),
        ("4096", "4097", "damaged in line 3"),
        ("a source", "a force", "damaged in line 7"),
        ("# check", "# chick", "damaged in line 7"),
    ] {
        std::fs::write(&path, text.replace(from, to)).unwrap();
        let error = Digests::load(&path, &unit()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(Digests::load(&path, &unit()).unwrap(), None);
    // An existing file keeps its block size.
    open(&path);
    assert_eq!(DigestFile::open(&path, &source, &unit(), 8192).unwrap().known().block_size(), 4096);
}

#[tokio::test(start_paused = true)]
async fn only_what_was_cut_off_while_it_was_written_is_let_pass() {
    let folder = Folder::new();
    let path = folder.path("digests");
    let (from, to) = (Memory::new(content()), Memory::blank(LEN));
    copy(&from, &to, &path).await;
    let text = std::fs::read(&path).unwrap();
    let whole = Digests::load(&path, &unit()).unwrap().unwrap();
    let first = 1 + text.windows(8).position(|line| line == b"\n# check").unwrap() + 8 + 65;
    let mut known = 0;
    for cut in first..text.len() {
        std::fs::write(&path, &text[..cut]).unwrap();
        let digests = Digests::load(&path, &unit()).unwrap().unwrap();
        assert!(digests.bytes() >= known, "the beginning counts");
        known = digests.bytes();
    }
    assert_eq!(known, whole.bytes());
    for cut in 0..first - 1 {
        std::fs::write(&path, &text[..cut]).unwrap();
        assert!(Digests::load(&path, &unit()).is_err(), "{cut}");
    }
    // A changed bit is detected, unless it is in the last line.
    for at in (0..text.len() - 80).step_by(7) {
        let mut damaged = text.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, &damaged).unwrap();
        assert!(Digests::load(&path, &unit()).is_err(), "{at}");
    }
}

/// An edit of the source: offset, length, and the new byte. 0 makes a hole; `None` restores the original
/// data.
type Edit = (usize, usize, Option<u8>);

/// One copy: the edits before it; the time after which it is killed, and whether unflushed data is then lost;
/// how often the destination loses its cache; and the length of a request.
#[derive(Clone, Debug)]
struct Round {
    edits: Vec<Edit>,
    killed: Option<u64>,
    loses_power: bool,
    losses: usize,
    io_size: usize,
    flush_bytes: u64,
    edit_while_it_runs: Option<(u64, Edit)>,
}

fn edit() -> impl Strategy<Value = Edit> {
    (0..LEN, 1..3 * BLOCK, prop::option::of(0..3_u8))
}

fn round() -> impl Strategy<Value = Round> {
    let killed = prop::option::weighted(0.7, 1..600_u64);
    let edits = prop::collection::vec(edit(), 0..6);
    let later = prop::option::of((1..600_u64, edit()));
    let sizes = (512..10_000_usize, 1..32_000_u64);
    (edits, killed, any::<bool>(), 0..3_usize, sizes, later).prop_map(
        |(edits, killed, loses_power, losses, (io_size, flush_bytes), edit_while_it_runs)| Round {
            edits,
            killed,
            loses_power,
            losses,
            io_size,
            flush_bytes,
            edit_while_it_runs,
        },
    )
}

fn change(from: &Memory, original: &[u8], (at, len, byte): Edit) {
    let end = (at + len).min(LEN);
    let mut state = from.lock();
    match byte {
        Some(byte) => state.bytes[at..end].fill(byte),
        None => state.bytes[at..end].copy_from_slice(&original[at..end]),
    }
    drop(state);
    from.clone().without_extents();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn whatever_happens_the_file_says_what_is_durably_there(
        rounds in prop::collection::vec(round(), 1..8),
        knows_holes in any::<bool>(),
    ) {
        let folder = Folder::new();
        let path = folder.path("digests");
        let original = content();
        let (from, to) = (Memory::new(original.clone()), Memory::blank(LEN));
        to.lock().limits.has_fast_zeroes = knows_holes;
        to.lock().watch = Some((path.clone(), is_taken_back));
        let last = Round {
            edits: Vec::new(),
            killed: None,
            loses_power: false,
            losses: 0,
            io_size: 4096,
            flush_bytes: 1 << 20,
            edit_while_it_runs: None,
        };
        for round in rounds.into_iter().chain([last]) {
            round.edits.iter().for_each(|edit| change(&from, &original, *edit));
            to.lock().losses = round.losses;
            let differ = differing(&from.lock().bytes, &to.durable());
            // Dropping the runtime waits for a save that is running at the kill.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            let ended = runtime.block_on(async {
                let known = open(&path).known().bytes();
                let copy = CopyJob::new(Source::device(from.clone()), Destination::device(to.clone()));
                let options = options(&path).with_io_size(round.io_size);
                let copy = copy.with_options(options.with_flush_bytes(round.flush_bytes));
                let mut events = copy.events();
                let limit = Duration::from_millis(round.killed.unwrap_or(600_000));
                let meddle = async {
                    if let Some((millis, edit)) = round.edit_while_it_runs {
                        tokio::time::sleep(Duration::from_millis(millis)).await;
                        change(&from, &original, edit);
                    }
                };
                let work = async { tokio::join!(copy.run(), meddle).0 };
                let ended = tokio::time::timeout(limit, work).await.ok();
                while let Some(event) = events.next().await {
                    assert!(!matches!(event, Event::NotSaved(_)), "{event:?}");
                }
                ended.map(|ended| (ended.unwrap().progress, known))
            });
            drop(runtime);
            is_true(&path, &to.durable())?;
            let Some((progress, known)) = ended else {
                if round.loses_power {
                    to.lose_unflushed();
                }
                continue;
            };
            prop_assert_eq!((progress.done, progress.flushed), (LEN as u64, LEN as u64));
            if round.edit_while_it_runs.is_none() {
                prop_assert_eq!(&to.durable()[..], &from.lock().bytes[..]);
                // At most these bytes may be sent: blocks that differ, blocks without a known digest, and lost ones.
                let sent = progress.written + progress.zeroed;
                let bound = differ + (LEN as u64 - known) + progress.lost;
                prop_assert!(sent <= bound, "{} sent of {}", sent, bound);
            }
        }
    }
}

/// Returns the number of bytes in the blocks that differ.
fn differing(one: &[u8], other: &[u8]) -> u64 {
    let blocks = one.chunks(BLOCK).zip(other.chunks(BLOCK));
    blocks.filter(|(one, other)| one != other).map(|(one, _)| one.len() as u64).sum()
}
