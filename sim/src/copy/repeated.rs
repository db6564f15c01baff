//! Repeated copies: one command line runs again and again over a source that changes between the runs, like a
//! nightly backup. It keeps a file of digests and sometimes a checkpoint. Processes are killed, the host
//! crashes, and the target has faults. Some command lines copy a source in use, in passes.
//!
//! ```text
//!  current image    ──► a process: iscsi-copy ──► Watched: Disk ──► initiator, network, target ──► RAM disk
//!                            │                                          ▲                            │
//!                            └──► Files: digests, checkpoint            └── writes of killed runs    │
//!                                   └──► Vouching: are they true?         ◄──────────────────────────┘
//! ```

mod files;
mod kept;
mod process;
mod reader;
mod run;
mod vouching;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use iscsi_copy::RangeSet;
use tokio::time::{Instant, sleep};

use self::files::Files;
pub(crate) use self::vouching::Vouching;
use self::vouching::{CHECKPOINT, DIGESTS};
use super::content::{fill, index};
use super::in_use::InUse;
use super::source::Image;
use super::{Copies, Ended};
use crate::episode::{QUIET, Report};
use crate::rng::{Rng, mix};
use crate::settings::Settings;

/// Percentage of seeds with repeated copies.
const SHARE: u64 = 12;
/// Separates the random draws of repeated copies from all others.
const STREAM: u64 = 0x6e69_6768_7473;
/// Separates the random draws of sources in use from all others.
const IN_USE: u64 = 0x696e_5f75_7365;
/// Percentage of command lines that copy a source in use, in passes.
const SHARE_IN_USE: u64 = 30;
/// Number of requests of all repeated copies, as a multiple of `Settings::operations`.
const LENGTH: usize = 3;
/// Largest number of attempts of the last run, one of which must succeed. Attempts before it may fail because
/// of what other hosts have written to the destination.
const MAX_LAST_RUNS: usize = 4;

/// Returns whether the episode of this seed has repeated copies.
pub(crate) fn follow(seed: u64) -> bool {
    mix(seed ^ STREAM) % 100 < SHARE
}

/// Runs command lines, one after the other, until they have made enough requests.
pub(crate) async fn episode(seed: u64, settings: &Settings) -> Report {
    let begun = Instant::now();
    // Repeated copies have no faults that change or replace the unit. The episodes of single copies have these
    // faults.
    let settings = settings.with_one_unit();
    let (copies, mover) = Copies::drawn(Rng::new(mix(seed ^ STREAM)), &settings);
    let mut repeated = RepeatedCopy::new(copies);
    while repeated.copies.requests < LENGTH * settings.operations && repeated.copies.is_well() {
        if let Err(why) = Box::pin(repeated.line()).await {
            repeated.copies.shared.lock().accuse(why);
        }
    }
    mover.abort();
    repeated.copies.report(seed, begun)
}

/// How the command line verifies the destination (`--verify`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verifies {
    Nothing,
    /// Compares with what was read from the source.
    Read,
    /// Compares every range that has a digest.
    Digests,
}

/// The options of a command line.
#[derive(Debug)]
struct Line {
    /// Whether the command line has `--destination-is-zero`. That holds for the first run, before which nothing
    /// was written.
    states_zero: bool,
    has_checkpoint: bool,
    verifies: Verifies,
    /// Length of the block that a digest covers, bytes.
    block_size: u64,
    /// Whether other hosts write to the destination between the runs.
    has_others: bool,
    /// `--passes`: the source is written to, also while it is copied.
    has_passes: bool,
}

struct RepeatedCopy<'a> {
    copies: Copies<'a>,
    files: Files,
    vouching: Arc<Vouching>,
    line: Line,
    image: Image,
    /// Current data of the image, if it is written to.
    in_use: Option<InUse>,
    /// Image of the previous run.
    before: Image,
    /// Number of images so far.
    images: u64,
}

impl<'a> RepeatedCopy<'a> {
    fn new(mut copies: Copies<'a>) -> Self {
        let files = Files::new(copies.rng.fork());
        let vouching = Arc::new(Vouching::new(&copies.shared, &files));
        let image = Image { bytes: bytes::Bytes::new(), holes: RangeSet::new() };
        let line = Line {
            states_zero: false,
            has_checkpoint: false,
            verifies: Verifies::Nothing,
            block_size: 0,
            has_others: false,
            has_passes: false,
        };
        let (before, in_use) = (image.clone(), None);
        Self { copies, files, vouching, line, before, image, in_use, images: 0 }
    }

    /// Runs one command line several times.
    async fn line(&mut self) -> Result<(), String> {
        self.begin();
        for _ in 0..self.copies.rng.index(2..9) {
            let ended = Box::pin(self.run(false)).await?;
            if self.vouching.is_unproven() || !self.copies.is_well() {
                self.count("nothing is proven");
                return self.quiet().await;
            }
            let percent = if ended == Ended::Well { 90 } else { 60 };
            if self.copies.rng.percent(percent) {
                self.change_image();
            }
            if self.line.has_others && self.copies.rng.percent(25) {
                self.write_by_others();
            }
        }
        for _ in 0..MAX_LAST_RUNS {
            let ended = Box::pin(self.run(true)).await?;
            if !self.copies.is_well() || self.vouching.is_unproven() {
                return self.quiet().await;
            }
            if ended == Ended::Well {
                return self.check_end().await;
            }
        }
        Err("nothing is wrong, but no copy ends well".to_owned())
    }

    /// Draws a new command line, and removes the files of the last one.
    fn begin(&mut self) {
        [DIGESTS, CHECKPOINT].iter().for_each(|path| self.files.remove(Path::new(path)));
        self.vouching.begin_anew();
        let rng = &mut self.copies.rng;
        let mut beside = rng.beside(IN_USE);
        let has_passes = beside.percent(SHARE_IN_USE);
        let world = self.copies.shared.lock();
        let disk = world.lun.disk();
        let capacity = usize::try_from(disk.capacity()).unwrap_or(0);
        if rng.percent(60) {
            disk.write(0, &vec![0; capacity]);
        }
        let is_zero = disk.holds(0, &vec![0; capacity]);
        drop(world);
        let verifies = [Verifies::Nothing, Verifies::Read, Verifies::Digests, Verifies::Digests];
        let verifies = rng.pick(&verifies).copied().unwrap_or(Verifies::Nothing);
        self.line = Line {
            states_zero: is_zero && rng.percent(70),
            has_checkpoint: rng.percent(30),
            verifies,
            block_size: 1 << rng.within(12..16),
            has_others: verifies == Verifies::Digests && rng.percent(60),
            has_passes,
        };
        if has_passes && verifies == Verifies::Read {
            // A source in use changes after it was read, so verifying would find differences.
            self.line.verifies = Verifies::Nothing;
        }
        let len = if rng.percent(30) { capacity } else { rng.index(1..capacity) };
        self.image = Image::drawn(len, rng);
        self.in_use = has_passes.then(|| {
            self.image.holes = RangeSet::new();
            InUse::new(&self.image.bytes, beside.fork())
        });
        self.before = self.image.clone();
        self.images += 1;
        let what = format!("a command line: {:?}", self.line);
        self.copies.shared.lock().trace.record(&what, &[len as u64]);
    }

    /// Changes the source, or takes it back to its previous state.
    fn change_image(&mut self) {
        if let Some(in_use) = &self.in_use {
            in_use.resume();
            (0..4).for_each(|_| in_use.live());
            return;
        }
        let rng = &mut self.copies.rng;
        self.images += 1;
        let last = self.image.clone();
        match rng.within(0..10) {
            0 => std::mem::swap(&mut self.image, &mut self.before),
            1 => {
                let capacity = self.copies.shared.lock().lun.disk().capacity();
                let capacity = usize::try_from(capacity).unwrap_or(0);
                self.image = Image::drawn(rng.index(1..capacity), rng);
            }
            _ => self.image = changed(&self.image, rng),
        }
        self.before = last;
        self.copies.shared.lock().trace.record("the source has changed", &[self.images]);
    }

    /// Writes to the destination as another host, without the knowledge of the copies.
    fn write_by_others(&mut self) {
        let rng = &mut self.copies.rng;
        let world = self.copies.shared.lock();
        let disk = world.lun.disk();
        let (block, blocks) = (u64::from(disk.block_size()), disk.blocks());
        let first = rng.within(0..blocks);
        let end = (first + (1 << rng.within(0..6))).min(blocks);
        let range = first * block..end * block;
        let mut bytes = vec![0; index(&range).len()];
        fill(&mut bytes, rng);
        disk.write(range.start, &bytes);
        drop(world);
        self.vouching.others_have_written(range);
        self.count("others write");
    }

    /// Checks that the destination equals the source after the last copy, even after late writes and a loss of power.
    async fn check_end(&mut self) -> Result<(), String> {
        self.quiet().await?;
        let mut world = self.copies.shared.lock();
        world.lose_all_power();
        self.vouching.check(&world)?;
        self.vouching.is_all_there(&world)?;
        match world.broken_rule() {
            Some(rule) => Err(format!("the initiator has broken a rule: {rule}")),
            None => Ok(()),
        }
    }

    /// Waits until the target has executed or dropped every command.
    async fn quiet(&mut self) -> Result<(), String> {
        self.copies.mend();
        sleep(QUIET).await;
        while self.copies.is_well() && self.copies.shared.lock().has_orphans() {
            sleep(Duration::from_secs(60)).await;
        }
        Ok(())
    }

    fn count(&self, what: &'static str) {
        let mut world = self.copies.shared.lock();
        world.trace.record(what, &[]);
        world.counts.repeated_copy(what);
    }
}

/// Returns the image with a few random writes.
fn changed(image: &Image, rng: &mut Rng) -> Image {
    let (mut bytes, mut holes) = (BytesMut::from(&image.bytes[..]), image.holes.clone());
    for _ in 0..rng.index(1..6) {
        let start = rng.index(0..bytes.len());
        let end = bytes.len().min(start + rng.index(1..64 << 10));
        match rng.within(0..4) {
            0 => bytes[start..end].fill(0),
            _ => fill(&mut bytes[start..end], rng),
        }
        holes.remove(&(start as u64..end as u64));
    }
    Image { bytes: bytes.freeze(), holes }
}
