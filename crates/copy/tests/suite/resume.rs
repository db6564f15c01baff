//! A copy that another run goes on with.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{Memory, pattern};
use iscsi_copy::{
    CheckpointFile, Copy, Destination, Event, FileDevice, Identity, Options, RangeSet, Source,
};

const LEN: usize = 1 << 20;

/// A path that is gone when the test is.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("iscsi-copy-resume-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn checkpoint(&self, destination: &str) -> CheckpointFile {
        let source = Identity::new("a source", LEN as u64);
        CheckpointFile::new(self.0.join("map"), source, Identity::new(destination, LEN as u64))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(file: &CheckpointFile) -> Options {
    let options = Options::default().with_io_size(4096).with_flush_bytes(32 << 10);
    let done = file.load().unwrap().unwrap_or_default();
    options.with_checkpoint(file.clone()).with_done(done)
}

fn copy(from: &Memory, to: &Memory, options: Options) -> Copy {
    let (from, to) = (Source::device(from.clone()), Destination::device(to.clone()));
    Copy::new(from, to).with_options(options)
}

/// Killed again and again, at moments that look random, with what was not flushed lost or not.
#[tokio::test(start_paused = true)]
async fn nothing_is_lost_and_little_is_sent_twice() {
    let place = Place::new();
    let file = place.checkpoint("a unit");
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    let mut runs = 0;
    let progress = loop {
        let running = copy(&from, &to, options(&file)).run();
        let killed = Duration::from_millis(200 + runs * 37 % 300);
        if let Ok(ended) = tokio::time::timeout(killed, running).await {
            break ended.unwrap().progress;
        }
        runs += 1;
        if runs % 2 == 0 {
            to.lose_unflushed();
        }
        assert!(runs < 100, "it does not come to its end");
    };
    assert!(runs > 3, "it was killed {runs} times");
    assert_eq!(to.lock().bytes, from.lock().bytes);
    assert!(progress.resumed > 0 && progress.flushed == LEN as u64);
    let written: u64 = to.lock().writes.iter().map(|(_, len)| len).sum();
    // At most what had no flush yet, what was under way, and what the last checkpoint did not say.
    assert!(written <= LEN as u64 + runs * (128 << 10), "{written} in {runs} runs");
    assert_eq!(file.load().unwrap(), Some(RangeSet::from(0..LEN as u64)));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_fails_or_is_cancelled_leaves_what_it_has_done() {
    let place = Place::new();
    let file = place.checkpoint("a unit");
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    from.lock().fails_at = Some(LEN as u64 / 2);
    let failure = copy(&from, &to, options(&file)).run().await.unwrap_err();
    let done = file.load().unwrap().unwrap();
    assert_eq!(done.bytes(), failure.progress.flushed);
    assert!(failure.progress.flushed > LEN as u64 / 3);
    from.lock().fails_at = None;
    let progress = copy(&from, &to, options(&file)).run().await.unwrap().progress;
    assert_eq!((progress.resumed, progress.read), (done.bytes(), LEN as u64 - done.bytes()));
    assert_eq!(to.lock().bytes, from.lock().bytes);
}

/// What another device has flushed is not where it was written.
#[tokio::test(start_paused = true)]
async fn a_flush_of_another_device_does_not_count() {
    let place = Place::new();
    let file = place.checkpoint("a unit");
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    let copy = copy(&from, &to, options(&file));
    let control = copy.control();
    let running = tokio::spawn(copy.run());
    while control.progress().flushed == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    to.lock().is_other = true;
    let before = control.progress().flushed;
    let failure = running.await.unwrap().unwrap_err();
    assert_eq!(failure.error.to_string(), "destination: another device, at a flush");
    assert_eq!(failure.progress.flushed, before);
    assert_eq!(file.load().unwrap().unwrap_or_default().bytes(), before);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_cannot_be_written_is_told_and_the_copy_goes_on() {
    let place = Place::new();
    let file = CheckpointFile::new(
        place.0.join("no folder/map"),
        Identity::new("a", 1),
        Identity::new("b", 1),
    );
    let (from, to) = (Memory::new(pattern(LEN)), Memory::blank(LEN));
    let copy = copy(&from, &to, options(&file));
    let mut events = copy.events();
    copy.run().await.unwrap();
    assert_eq!(to.lock().bytes, from.lock().bytes);
    let mut told = 0;
    while let Some(event) = events.next().await {
        told += u32::from(matches!(event, Event::NotSaved(_)));
    }
    assert!(told > 0);
}

#[test]
fn what_is_of_another_copy_or_damaged_is_refused() {
    let place = Place::new();
    place.checkpoint("a unit").store(RangeSet::from(0..10), RangeSet::new(), LEN as u64).unwrap();
    let error = place.checkpoint("another unit").load().unwrap_err().to_string();
    assert!(error.contains("a unit") && error.contains("another unit"), "{error}");
    let text = std::fs::read_to_string(place.0.join("map")).unwrap();
    std::fs::write(place.0.join("map"), &text[..text.len() / 2]).unwrap();
    let error = place.checkpoint("a unit").load().unwrap_err().to_string();
    assert!(error.contains("damaged in line"), "{error}");
    std::fs::remove_file(place.0.join("map")).unwrap();
    assert_eq!(place.checkpoint("a unit").load().unwrap(), None);
}

#[test]
fn a_file_that_was_written_to_is_another_source() {
    let place = Place::new();
    let path = place.0.join("image");
    std::fs::write(&path, b"something").unwrap();
    let file = FileDevice::open(&path).unwrap();
    let (before, number) =
        (Identity::of_source(&file).unwrap(), Identity::of_destination(&file).unwrap());
    let moved = place.0.join("moved");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(Identity::of_source(&FileDevice::open(&moved).unwrap()).unwrap(), before);
    let changed = std::fs::File::options().write(true).open(&moved).unwrap();
    changed.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let file = FileDevice::open(&moved).unwrap();
    assert_ne!(Identity::of_source(&file).unwrap(), before);
    assert_eq!(Identity::of_destination(&file).unwrap(), number);
}

/// The number of a file that is removed goes to the next one, on most file systems.
#[test]
fn a_file_that_was_made_anew_is_another_destination() {
    let place = Place::new();
    let path = place.0.join("copy");
    let made = || Identity::of_destination(&FileDevice::create(&path).unwrap()).unwrap();
    let before = made();
    assert_eq!(made(), before);
    std::fs::remove_file(&path).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_ne!(made(), before);
}
