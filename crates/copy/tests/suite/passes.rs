//! Tests of copies of a source that is written to meanwhile.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::support::{Folder, Memory, pattern};
use bytes::{Bytes, BytesMut};
use iscsi_copy::device::{DeviceFuture, Extent};
use iscsi_copy::{
    Changes, CheckpointFile, CopyOptions, Destination, Device, DigestFile, Digests, Divergence,
    EndedPass, Forecast, Identity, IoFuture, Passes, PassesError, RangeSet, Source, Verdict,
    Verify, VerifyError,
};

const LEN: usize = 1 << 20;
const WRITE: usize = 512;

/// A disk with a guest that writes whenever the disk is read, and with a record of the guest's writes. Clones
/// are the same disk.
#[derive(Clone, Debug)]
struct InUse {
    disk: Memory,
    guest: Arc<Mutex<Guest>>,
}

#[derive(Debug)]
struct Guest {
    dirty: RangeSet,
    /// Number of bytes that the guest writes per 1000 bytes read.
    share: usize,
    /// Bytes that the guest is due to write and has not written yet.
    owes: usize,
    is_frozen: bool,
    /// The calls of [`Changes`] that the disk received, in order.
    asked: Vec<&'static str>,
    fails: Option<&'static str>,
    /// Time between clearing the record and returning the changes.
    answers_in: Duration,
    /// Called each time before the changes are returned.
    acts: Option<fn(&InUse)>,
    random: u64,
}

impl InUse {
    fn new(share: usize) -> Self {
        let guest = Guest {
            dirty: RangeSet::new(),
            share,
            owes: 0,
            is_frozen: false,
            asked: Vec::new(),
            fails: None,
            answers_in: Duration::ZERO,
            acts: None,
            random: 1,
        };
        Self { disk: Memory::new(pattern(LEN)), guest: Arc::new(Mutex::new(guest)) }
    }

    fn guest(&self) -> MutexGuard<'_, Guest> {
        self.guest.lock().unwrap()
    }

    fn write(&self, offset: usize, data: &[u8]) {
        self.disk.put(offset, data);
        self.guest().dirty.insert(offset as u64..(offset + data.len()) as u64);
    }

    /// Writes the bytes that are due after `read` bytes were read, within a quarter of the disk.
    fn live(&self, read: usize) {
        let places: Vec<_> = {
            let mut guest = self.guest();
            let share = if guest.is_frozen { 0 } else { guest.share };
            guest.owes += read * share / 1000;
            let count = guest.owes / WRITE;
            guest.owes %= WRITE;
            (0..count).map(|_| guest.place()).collect()
        };
        for (place, byte) in places {
            self.write(place, &[byte; WRITE]);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.disk.lock().bytes.clone()
    }
}

impl Guest {
    fn place(&mut self) -> (usize, u8) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let place = (self.random >> 33) as usize % (LEN / 4 / WRITE) * WRITE;
        (place + LEN / 4, (self.random >> 56) as u8)
    }
}

impl Device for InUse {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.disk)
    }

    fn capacity(&self) -> u64 {
        self.disk.capacity()
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            let len = buffer.len();
            self.live(len);
            let read = self.disk.read_into(offset, buffer).await;
            self.live(len);
            read
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        self.disk.write_at(offset, pages)
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        self.disk.flush()
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        self.disk.extents(offset, len)
    }
}

impl Changes for InUse {
    fn changed(&mut self) -> IoFuture<'_, RangeSet> {
        Box::pin(async move {
            let acts = self.guest().acts;
            if let Some(act) = acts {
                act(self);
            }
            let (dirty, wait) = {
                let mut guest = self.guest();
                guest.asked.push("changed");
                if guest.fails == Some("changed") {
                    return Err(io::Error::other("he does not say"));
                }
                (std::mem::take(&mut guest.dirty), guest.answers_in)
            };
            tokio::time::sleep(wait).await;
            Ok(dirty)
        })
    }

    fn freeze(&mut self) -> Option<IoFuture<'_, ()>> {
        Some(Box::pin(async move {
            let mut guest = self.guest();
            guest.asked.push("freeze");
            if guest.fails == Some("freeze") {
                return Err(io::Error::other("he goes on"));
            }
            guest.is_frozen = true;
            Ok(())
        }))
    }
}

fn passes(from: &InUse, to: &Memory, options: CopyOptions, goal: Duration) -> Passes {
    let (source, destination) = (Source::device(from.clone()), Destination::device(to.clone()));
    let options = options.with_io_size(4096).with_flush_bytes(64 << 10);
    Passes::new(source, destination, options, from.clone(), Forecast::new(goal, 30)).unwrap()
}

/// Runs all passes.
async fn all(mut passes: Passes) -> Passes {
    while let Some(copy) = passes.next().await.unwrap() {
        passes.add_copied(copy.run().await.unwrap());
    }
    passes
}

fn dirtied(ended: &[EndedPass]) -> Vec<u64> {
    ended.iter().filter_map(|pass| pass.dirtied).collect()
}

/// Longest time of the last pass: it is reached when only a few blocks are left.
const GOAL: Duration = Duration::from_millis(300);
const NONE: Duration = Duration::ZERO;

#[tokio::test(start_paused = true)]
async fn pass_by_pass_less_is_left_until_the_last_is_short_enough() {
    let (from, to) = (InUse::new(150), Memory::blank(LEN));
    let passes = all(passes(&from, &to, CopyOptions::default(), GOAL)).await;
    assert!(to.lock().bytes == from.bytes());
    let ended = passes.ended();
    let dirtied = dirtied(ended);
    assert!(dirtied.len() >= 2 && dirtied.is_sorted_by(|a, b| a > b), "{dirtied:?}");
    assert_eq!(ended.len(), dirtied.len() + 1);
    let mut asked = vec!["changed"; dirtied.len()];
    asked.extend(["freeze", "changed"]);
    assert_eq!(from.guest().asked, asked);
    for (at, pass) in ended.iter().enumerate() {
        let is_right = match pass.verdict {
            Some(Verdict::Again { .. }) => at + 2 < ended.len(),
            Some(Verdict::Last { last }) => at + 2 == ended.len() && last <= GOAL,
            None => at + 1 == ended.len() && pass.time <= 2 * GOAL,
            Some(Verdict::Diverges { .. } | _) => false,
        };
        assert!(is_right, "{at}: {pass:?}");
    }
    // Each pass copies the writes during the previous pass; the last pass also copies the writes before the
    // freeze.
    for (pass, dirtied) in ended[1..].iter().zip(&dirtied) {
        assert!(pass.progress.done >= *dirtied && pass.progress.flushed == pass.progress.done);
    }
    let progress = passes.into_copied().progress;
    let len = LEN as u64;
    assert_eq!((progress.total, progress.done, progress.flushed), (Some(len), len, len));
    let written: u64 = to.lock().writes.iter().map(|(_, len)| len).sum();
    assert_eq!(progress.written, written);
}

#[tokio::test(start_paused = true)]
async fn where_more_passes_do_not_help_the_last_one_is_made_all_the_same() {
    let (from, to) = (InUse::new(5000), Memory::blank(LEN));
    let passes = all(passes(&from, &to, CopyOptions::default(), NONE)).await;
    assert!(to.lock().bytes == from.bytes());
    let ended = passes.ended();
    let told = ended[ended.len() - 2].verdict;
    let why = matches!(told, Some(Verdict::Diverges { why: Divergence::DirtiedAgain { .. }, .. }));
    assert!(why, "{told:?}");
    assert_eq!(from.guest().asked[ended.len() - 1..], ["freeze", "changed"]);
}

#[tokio::test(start_paused = true)]
async fn or_nobody_is_kept_from_writing() {
    let (from, to) = (InUse::new(5000), Memory::blank(LEN));
    let passes = passes(&from, &to, CopyOptions::default(), NONE).with_stop_at_divergence(true);
    let passes = all(passes).await;
    assert!(!from.guest().asked.contains(&"freeze"));
    assert_eq!(from.guest().asked.len(), passes.ended().len() - 1);
    // All reported changes are copied; the record has the later writes.
    let (source, copy, dirty) = (from.bytes(), to.lock().bytes.clone(), from.guest().dirty.clone());
    assert!(!dirty.is_empty() && source != copy);
    let mut known = RangeSet::from(0..LEN as u64);
    dirty.iter().for_each(|range| known.remove(&range));
    for range in known.iter() {
        let range = range.start as usize..range.end as usize;
        assert!(source[range.clone()] == copy[range]);
    }
}

fn ends() -> [Identity; 2] {
    [Identity::new("a disk in use", LEN as u64), Identity::new("a unit", LEN as u64)]
}

fn checkpoint(folder: &Folder) -> CheckpointFile {
    let [source, destination] = ends();
    CheckpointFile::new(folder.path("map"), source, destination)
}

/// The copy is killed again and again, also during a query of the changes, whose report is then lost.
#[tokio::test(start_paused = true)]
async fn killed_at_any_moment_nothing_old_stays() {
    for seed in 0..6 {
        let folder = Folder::new();
        let file = checkpoint(&folder);
        let (from, to) = (InUse::new(300), Memory::blank(LEN));
        to.lock().depth = 16;
        from.disk.lock().depth = 16;
        from.guest().answers_in = Duration::from_millis(200);
        let (mut kills, mut resumed) = (0, 0);
        loop {
            let done = file.load().unwrap().unwrap_or_default();
            resumed += u64::from(!done.is_empty());
            let options = CopyOptions::default().with_done(done).with_checkpoint(file.clone());
            let running = all(passes(&from, &to, options, GOAL));
            let moment = if kills < 6 { 500 + (kills * 7 + seed) * 137 % 1300 } else { u64::MAX };
            if tokio::time::timeout(Duration::from_millis(moment), running).await.is_ok() {
                break;
            }
            kills += 1;
            // Power returns, and the guest runs again.
            from.guest().is_frozen = false;
            if kills % 2 == 0 {
                to.lose_unflushed();
            }
            from.live(10_000);
        }
        assert!(kills > 0 && resumed > 0, "{kills} {resumed}");
        assert!(to.lock().bytes == from.bytes(), "seed {seed} after {kills} kills");
        assert_eq!(file.load().unwrap(), Some(RangeSet::from(0..LEN as u64)));
    }
}

/// The checkpoint never records reported changes as done before they are copied.
#[tokio::test(start_paused = true)]
async fn what_is_told_is_taken_back_before_it_is_copied() {
    let folder = Folder::new();
    let file = checkpoint(&folder);
    let (from, to) = (InUse::new(0), Memory::blank(LEN));
    let options = CopyOptions::default().with_checkpoint(file.clone());
    let mut passes = passes(&from, &to, options, NONE);
    let copy = passes.next().await.unwrap().unwrap();
    passes.add_copied(copy.run().await.unwrap());
    assert_eq!(file.load().unwrap(), Some(RangeSet::from(0..LEN as u64)));
    from.write(8192, &[1; 4096]);
    // While the changes are queried, the checkpoint records nothing as done.
    from.guest().answers_in = Duration::from_secs(1);
    assert!(tokio::time::timeout(Duration::from_millis(500), passes.next()).await.is_err());
    assert_eq!(file.load().unwrap(), Some(RangeSet::new()));
    assert!(matches!(passes.next().await, Err(PassesError::Unknown)));

    let options = CopyOptions::default().with_checkpoint(file.clone());
    let mut passes = self::passes(&from, &to, options, GOAL);
    let copy = passes.next().await.unwrap().unwrap();
    passes.add_copied(copy.run().await.unwrap());
    from.write(8192, &[2; 4096]);
    let copy = passes.next().await.unwrap().unwrap();
    assert_eq!(file.load().unwrap(), Some(RangeSet::from_iter([0..8192, 12_288..LEN as u64])));
    assert_eq!(passes.progress(&copy.control().progress()).done, LEN as u64 - 4096);
    passes.add_copied(copy.run().await.unwrap());
    assert_eq!(file.load().unwrap(), Some(RangeSet::from(0..LEN as u64)));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_his_is_told_and_what_is_not_known_is_not_done() {
    for (fails, done) in [
        ("changed", RangeSet::new()),
        ("freeze", RangeSet::from_iter([0..8192, 12_288..LEN as u64])),
    ] {
        let folder = Folder::new();
        let file = checkpoint(&folder);
        let (from, to) = (InUse::new(0), Memory::blank(LEN));
        from.guest().fails = Some(fails);
        let options = CopyOptions::default().with_checkpoint(file.clone());
        let mut passes = passes(&from, &to, options, GOAL);
        let copy = passes.next().await.unwrap().unwrap();
        passes.add_copied(copy.run().await.unwrap());
        from.write(8192, &[1; 4096]);
        let error = passes.next().await.unwrap_err();
        let is_right = matches!(
            (&error, fails),
            (PassesError::Changes(_), "changed") | (PassesError::Freeze(_), "freeze")
        );
        assert!(is_right, "{error}");
        assert_eq!(file.load().unwrap(), Some(done), "{fails}");
        assert!(matches!(passes.next().await, Err(PassesError::Unknown)));
    }
}

/// If the checkpoint cannot be cleared, the changes are not queried: it would continue to record everything
/// as done.
#[tokio::test(start_paused = true)]
async fn nothing_is_asked_while_a_checkpoint_says_more_than_will_hold() {
    let folder = Folder::new();
    let [source, destination] = ends();
    let file = CheckpointFile::new(folder.path("no folder/map"), source, destination);
    let (from, to) = (InUse::new(0), Memory::blank(LEN));
    let mut passes = passes(&from, &to, CopyOptions::default().with_checkpoint(file), GOAL);
    let copy = passes.next().await.unwrap().unwrap();
    passes.add_copied(copy.run().await.unwrap());
    assert!(matches!(passes.next().await, Err(PassesError::Checkpoint(_))));
    assert!(from.guest().asked.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_fails_is_made_again() {
    let (from, to) = (InUse::new(0), Memory::blank(LEN));
    let mut passes = passes(&from, &to, CopyOptions::default(), GOAL);
    let copy = passes.next().await.unwrap().unwrap();
    copy.control().cancel();
    copy.run().await.unwrap_err();
    let copy = passes.next().await.unwrap().unwrap();
    to.lock().fails_at = Some(LEN as u64 / 2);
    let failure = copy.run().await.unwrap_err();
    assert_eq!(passes.progress(&failure.progress).done, failure.progress.done);
    to.lock().fails_at = None;
    let passes = all(passes).await;
    assert_eq!(passes.ended().len(), 2);
    assert!(to.lock().bytes == from.bytes());
}

/// A pass with digests cannot be repeated: blocks that were known at its beginning may be overwritten since.
#[tokio::test(start_paused = true)]
async fn a_pass_with_digests_is_made_once() {
    let folder = Folder::new();
    let [source, destination] = ends();
    let file = DigestFile::open(folder.path("digests"), &source, &destination, 4096).unwrap();
    let (from, to) = (InUse::new(0), Memory::blank(LEN));
    let mut passes = passes(&from, &to, CopyOptions::default().with_digests(file), GOAL);
    let copy = passes.next().await.unwrap().unwrap();
    copy.control().cancel();
    copy.run().await.unwrap_err();
    assert!(matches!(passes.next().await, Err(PassesError::Digests)));
}

/// Ranges that an earlier pass has written do not read as zeros, so later zeros are written.
#[tokio::test(start_paused = true)]
async fn zeros_that_come_later_are_made() {
    let (from, to) = (InUse::new(0), Memory::blank(LEN));
    from.guest().acts = Some(|guest| guest.write(8192, &[0; 4096]));
    to.lock().extents_at_once = 0;
    let options = CopyOptions::default().with_destination_is_zero(true);
    all(passes(&from, &to, options, GOAL)).await;
    assert!(to.lock().bytes == from.bytes());
    assert!(from.bytes()[8192..12_288].iter().all(|byte| *byte == 0));
}

/// The first pass copies a block that differs from its digest in the file. Then the block gets its old data
/// again, so that its digest is the one that the file had at the beginning. The last pass must send the block
/// nevertheless.
#[tokio::test(start_paused = true)]
async fn digests_are_those_of_the_pass_before() {
    let folder = Folder::new();
    let [source, destination] = ends();
    let open = || DigestFile::open(folder.path("digests"), &source, &destination, 4096).unwrap();
    let (from, to) = (InUse::new(0), Memory::blank(LEN));
    all(passes(&from, &to, CopyOptions::default().with_digests(open()), GOAL)).await;
    let before = from.bytes();
    from.guest().asked.clear();
    from.write(8192, &[9; 4096]);
    from.guest().dirty = RangeSet::new();
    from.guest().acts = Some(|guest| {
        let old = pattern(LEN);
        guest.write(8200, &old[8200..8300]);
        guest.write(8192, &old[8192..12_288]);
    });
    let passes = all(passes(&from, &to, CopyOptions::default().with_digests(open()), GOAL)).await;
    assert!(from.bytes() == before);
    assert!(to.lock().bytes == before);
    assert_eq!(passes.ended()[0].dirtied, Some(4096));
    let known = Digests::load(folder.path("digests"), &destination).unwrap().unwrap();
    assert_eq!(known.bytes(), LEN as u64);
    let verify = Verify::by_digests(&Destination::device(to.clone()), known).unwrap();
    assert_eq!(verify.run().await.unwrap().done, LEN as u64);
}

/// With digests, whole blocks are copied, so progress counts whole blocks.
#[tokio::test(start_paused = true)]
async fn digests_stay_true_while_somebody_writes() {
    let folder = Folder::new();
    let [source, destination] = ends();
    let open = || DigestFile::open(folder.path("digests"), &source, &destination, 8192).unwrap();
    let (from, to) = (InUse::new(100), Memory::blank(LEN));
    let passes = all(passes(&from, &to, CopyOptions::default().with_digests(open()), GOAL)).await;
    assert!(to.lock().bytes == from.bytes());
    assert!(dirtied(passes.ended()).iter().all(|bytes| bytes % 8192 == 0));
    let known = Digests::load(folder.path("digests"), &destination).unwrap().unwrap();
    assert_eq!(known.bytes(), LEN as u64);
    let verify = Verify::by_digests(&Destination::device(to), known).unwrap();
    verify.run().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_state_is_verified_with_and_without_checksums() {
    let (from, to) = (InUse::new(150), Memory::blank(LEN));
    let options = CopyOptions::default().with_checksums(true);
    let passes = all(passes(&from, &to, options, GOAL)).await;
    let (rest, copied) = (passes.without_checksum(), passes.into_copied());
    let sums = copied.checksums.unwrap();
    assert!(!rest.is_empty(), "parts of requests were written");
    assert_eq!(sums.bytes() + rest.bytes(), LEN as u64);
    let (source, destination) = (Source::device(from.clone()), Destination::device(to.clone()));
    let verify = || Verify::new(source.clone(), &destination, sums.clone()).unwrap();
    let verified = verify().with_earlier(rest.clone()).run().await.unwrap();
    assert_eq!(verified.done, LEN as u64);
    for at in [0, rest.first().unwrap().start as usize] {
        to.lock().bytes[at] ^= 1;
        let error = verify().with_earlier(rest.clone()).run().await.unwrap_err();
        assert!(matches!(error, VerifyError::Mismatch(_)), "{error}");
        to.lock().bytes[at] ^= 1;
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_forgotten_when_it_is_read_later() {
    let folder = Folder::new();
    let file = checkpoint(&folder);
    let (from, to) = (InUse::new(0), Memory::blank(LEN));
    from.disk.lock().bad_grains = vec![16, 100];
    from.guest().acts = Some(|guest| {
        guest.disk.lock().bad_grains = vec![100];
        guest.write(8192, &[1; 512]);
    });
    let options =
        CopyOptions::default().with_skipped_unreadable(true).with_checkpoint(file.clone());
    let passes = all(passes(&from, &to, options.with_checksums(true), GOAL)).await;
    let unreadable: Range<u64> = 51_200..51_712;
    let known: RangeSet = RangeSet::from_iter([0..51_200, 51_712..LEN as u64]);
    assert_eq!(file.load().unwrap(), Some(known));
    assert!(passes.without_checksum().overlap(&unreadable).is_empty());
    let copied = passes.into_copied();
    assert_eq!(copied.unreadable, unreadable.into());
    assert_eq!((copied.progress.done, copied.progress.unreadable), (LEN as u64 - 512, 512));
    let mut expected = from.bytes();
    expected[51_200..51_712].fill(0);
    assert!(to.lock().bytes == expected);
}

/// The checkpoint contains the ranges that the first pass omits, as done. The progress counts only the copied
/// bytes.
#[tokio::test(start_paused = true)]
async fn the_first_pass_may_copy_a_part() {
    let folder = Folder::new();
    let file = checkpoint(&folder);
    let (from, to) = (InUse::new(0), Memory::new(pattern(LEN)));
    from.write(0, &[1; 512]);
    from.guest().acts = Some(|guest| guest.write(65_536, &[2; 512]));
    let first = RangeSet::from(0..4096);
    let options = CopyOptions::default().with_ranges(first).with_checkpoint(file.clone());
    let passes = all(passes(&from, &to, options, GOAL)).await;
    assert!(to.lock().bytes == from.bytes());
    assert_eq!(passes.into_copied().progress.done, 4096 + 512);
    assert_eq!(file.load().unwrap(), Some(RangeSet::from(0..LEN as u64)));
}

#[test]
fn of_a_stream_there_is_one_pass() {
    let disk = InUse::new(0);
    let stream = Source::stream(tokio::io::empty(), None);
    let to = Destination::device(disk.disk.clone());
    let forecast = || Forecast::new(GOAL, 1);
    let refused = Passes::new(stream, to, CopyOptions::default(), disk.clone(), forecast());
    assert!(matches!(refused, Err(PassesError::Stream)));
    let to = Destination::stream(tokio::io::sink());
    let source = Source::device(disk.clone());
    let refused = Passes::new(source, to, CopyOptions::default(), disk, forecast());
    assert!(matches!(refused, Err(PassesError::Stream)));
}
