//! Tests of copies that another run resumes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{Memory, pattern};
use iscsi_copy::{
    CheckpointFile, CopyError, CopyJob, CopyOptions, Destination, Event, FileDevice, Identity,
    RangeSet, Source,
};

const LEN: usize = 1 << 20;

/// A path whose file is removed with the test.
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

fn options(file: &CheckpointFile) -> CopyOptions {
    let options = CopyOptions::default().with_io_size(4096).with_flush_bytes(32 << 10);
    let done = file.load().unwrap().unwrap_or_default();
    options.with_checkpoint(file.clone()).with_done(done)
}

fn copy(from: &Memory, to: &Memory, options: CopyOptions) -> CopyJob {
    let (from, to) = (Source::device(from.clone()), Destination::device(to.clone()));
    CopyJob::new(from, to).with_options(options)
}

/// The copy is killed again and again at pseudo-random times, with or without loss of unflushed data, and
/// must complete.
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
    // At most these bytes are sent twice in each run: unflushed, in flight, or not in the last checkpoint.
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

/// A flush that reaches another device in the place of the first one must not count as a flush of the writes.
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

/// On most file systems a new file gets the inode number of a removed file. It must not count as the same
/// destination.
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

/// Two files and a checkpoint in a folder, copied with `resume_from` alone.
struct Files(Place);

impl Files {
    fn new() -> Self {
        let files = Self(Place::new());
        std::fs::write(files.path("image"), pattern(LEN)).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    fn job(&self) -> CopyJob {
        let source = Source::device(FileDevice::open(self.path("image")).unwrap());
        let destination = Destination::file(FileDevice::create(self.path("copy")).unwrap());
        CopyJob::new(source, destination)
    }

    async fn resumed(&self) -> Result<CopyJob, CopyError> {
        self.job().resume_from(self.path("map")).await
    }

    /// Cancels a run after a flush has covered something, and returns the flushed bytes.
    async fn cancelled(&self) -> u64 {
        let options = CopyOptions::default().with_io_size(4096).with_flush_bytes(64 << 10);
        let job = self.resumed().await.unwrap().with_options(options);
        let (control, mut events) = (job.control(), job.events());
        control.set_rate(Some(4 << 20));
        let running = tokio::spawn(job.run());
        while !matches!(events.next().await, Some(Event::Flushed(_))) {}
        control.cancel();
        let failure = running.await.unwrap().unwrap_err();
        assert!(matches!(failure.error, CopyError::Cancelled), "{failure}");
        failure.progress.flushed
    }
}

#[tokio::test]
async fn one_call_begins_a_checkpoint_and_goes_on_from_it() {
    let files = Files::new();
    assert_eq!(files.resumed().await.unwrap().resumed(), RangeSet::new());
    assert!(files.path("map").exists(), "it is known at the beginning that it can be written");
    let flushed = files.cancelled().await;
    assert!(flushed > 0 && flushed < LEN as u64, "{flushed}");
    let job = files.resumed().await.unwrap();
    assert_eq!(job.resumed().bytes(), flushed);
    // Options that are set later do not replace the checkpoint.
    let options = CopyOptions::default().with_destination_is_zero(true);
    let progress = job.with_options(options).run().await.unwrap().progress;
    assert_eq!((progress.resumed, progress.read), (flushed, LEN as u64 - flushed));
    assert_eq!(std::fs::read(files.path("copy")).unwrap(), pattern(LEN));
    let progress = files.resumed().await.unwrap().run().await.unwrap().progress;
    assert_eq!((progress.resumed, progress.read), (LEN as u64, 0));
}

/// After an earlier run the destination does not count as zeros, so its data is overwritten where the source
/// has zeros.
#[tokio::test]
async fn a_destination_that_was_zero_is_not_believed_to_be_after_an_earlier_run() {
    let files = Files::new();
    files.cancelled().await;
    let map = std::fs::read_to_string(files.path("map")).unwrap();
    let source = Identity::of_source(&FileDevice::open(files.path("image")).unwrap()).unwrap();
    std::fs::write(files.path("image"), vec![0; LEN]).unwrap();
    let now = Identity::of_source(&FileDevice::open(files.path("image")).unwrap()).unwrap();
    let map = map.replace(&source.to_string(), &now.to_string()).replace(" +", " ?");
    std::fs::write(files.path("map"), map).unwrap();
    let options = CopyOptions::default().with_destination_is_zero(true);
    let job = files.resumed().await.unwrap().with_options(options);
    job.run().await.unwrap();
    assert_eq!(std::fs::read(files.path("copy")).unwrap(), vec![0; LEN]);
}

#[tokio::test]
async fn a_checkpoint_that_does_not_hold_is_refused_by_its_name_and_stays() {
    let files = Files::new();
    files.cancelled().await;
    let map = std::fs::read(files.path("map")).unwrap();
    let refused = async |part: &str| {
        let error = files.resumed().await.unwrap_err();
        assert!(matches!(error, CopyError::Checkpoint { .. }), "{error}");
        let (text, path) = (error.to_string(), files.path("map").display().to_string());
        assert!(text.starts_with(&format!("checkpoint {path}: ")) && text.contains(part), "{text}");
    };
    let copy = std::fs::read(files.path("copy")).unwrap();
    std::fs::write(files.path("map"), "something else").unwrap();
    refused("it is no checkpoint").await;
    std::fs::write(files.path("map"), &map[..map.len() - 2]).unwrap();
    refused("damaged").await;
    std::fs::write(files.path("map"), &map).unwrap();
    std::fs::remove_file(files.path("copy")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(files.path("copy"), &copy).unwrap();
    refused("the destination").await;
    assert_eq!(std::fs::read(files.path("map")).unwrap(), map);
    assert_eq!(std::fs::read(files.path("copy")).unwrap(), copy, "nothing was written");
}

#[tokio::test]
async fn an_end_that_no_later_run_could_recognize_is_refused_unless_it_is_named() {
    let (place, device) = (Place::new(), Memory::blank(LEN));
    let map = place.0.join("map");
    let (from, to) = (Source::device(device.clone()), Destination::device(device.clone()));
    let error = CopyJob::new(from.clone(), to.clone()).resume_from(&map).await.unwrap_err();
    assert!(matches!(error, CopyError::Source(_)), "{error}");
    let from = from.with_identity(Identity::new("memory", LEN as u64));
    let error = CopyJob::new(from.clone(), to.clone()).resume_from(&map).await.unwrap_err();
    assert!(matches!(error, CopyError::Destination(_)), "{error}");
    assert!(error.to_string().contains("with_identity"), "{error}");
    let sink = Destination::stream(tokio::io::sink());
    let error = CopyJob::new(from.clone(), sink).resume_from(&map).await.unwrap_err();
    assert!(error.to_string().contains("a stream"), "{error}");
    assert!(!map.exists());
    let to = to.with_identity(Identity::new("other memory", LEN as u64)).from_byte(512);
    CopyJob::new(from.part(0..512), to).resume_from(&map).await.unwrap();
    let text = std::fs::read_to_string(&map).unwrap();
    assert!(text.contains("# source: memory from byte 0 to 512, "), "{text}");
    assert!(text.contains("# destination: other memory from byte 512, "), "{text}");
}
