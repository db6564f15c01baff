//! Tests of files: their holes, and files as streams.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::support::{Folder, Memory, pattern};
use iscsi_copy::{
    CopyError, CopyJob, CopyOptions, Destination, Device, FileDevice, Identity, Source,
};

const MIB: u64 = 1 << 20;

/// Creates a file of 64 MiB with two pieces of data, 8 KiB each.
fn sparse(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.path(name);
    let file = fs::File::create(&path).unwrap();
    file.set_len(64 * MIB).unwrap();
    for at in [20 * MIB, 63 * MIB] {
        file.write_all_at(&[7; 8192], at).unwrap();
    }
    path
}

/// Largest space that a file with holes may take on disk, bytes: 100,000 of data, and the file system's map
/// of its many pieces.
const HARDLY_ANYTHING: u64 = 256 << 10;

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn copy(from: &Path, to: &Path) -> CopyJob {
    let source = Source::device(FileDevice::open(from).unwrap());
    CopyJob::new(source, Destination::file(FileDevice::create(to).unwrap()))
}

#[tokio::test]
async fn holes_stay_holes() {
    let folder = Folder::new();
    let (from, to) = (sparse(&folder, "from"), folder.path("to"));
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    assert!(progress.read <= 256 << 10, "{progress:?}");
    assert!(allocated(&to) <= HARDLY_ANYTHING, "{progress:?}");
}

#[tokio::test]
async fn what_was_there_before_is_gone() {
    let folder = Folder::new();
    let (from, to) = (sparse(&folder, "from"), folder.path("to"));
    fs::write(&to, vec![9; 70 << 20]).unwrap();
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    assert!(progress.zeroed > 60 * MIB, "{progress:?}");
    let held = allocated(&to);
    assert!(held <= HARDLY_ANYTHING, "{held} bytes: its holes were punched");
}

#[tokio::test]
async fn a_stream_with_zeros_at_its_end_keeps_its_length() {
    let folder = Folder::new();
    let to = folder.path("to");
    let mut bytes = vec![3; 100_000];
    bytes.resize(4 << 20, 0);
    let source = Source::stream(std::io::Cursor::new(bytes.clone()), None);
    let destination = Destination::file(FileDevice::create(&to).unwrap());
    CopyJob::new(source, destination).run().await.unwrap();
    assert!(fs::read(&to).unwrap() == bytes);
    assert!(allocated(&to) <= HARDLY_ANYTHING);
}

#[tokio::test]
async fn a_file_that_becomes_shorter_is_told() {
    let folder = Folder::new();
    let (from, to) = (folder.path("from"), folder.path("to"));
    fs::write(&from, vec![9; 4 << 20]).unwrap();
    let copy = copy(&from, &to).with_options(CopyOptions::default().with_io_size(4096));
    fs::File::options().write(true).open(&from).unwrap().set_len(MIB + 1).unwrap();
    // The file system reports the missing data as a hole, but a read reaches the end of the file.
    let failure = copy.run().await.unwrap_err();
    assert!(matches!(failure.error, CopyError::Shrunk), "{failure:?}");
}

/// A copy that fails before its first read has completed does not change the destination.
#[tokio::test]
async fn a_file_is_left_alone_until_the_source_has_given_something() {
    let folder = Folder::new();
    let to = folder.path("to");
    let copied = |fails_at, place| {
        fs::write(&to, b"what was there").unwrap();
        let from = Memory::new(pattern(1 << 20));
        from.lock().depth = 1;
        from.lock().fails_at = Some(fails_at);
        let file = Destination::file(FileDevice::create(&to).unwrap());
        let file = if place > 0 { file.from_byte(place) } else { file };
        CopyJob::new(Source::device(from), file).run()
    };
    for place in [0, 4] {
        let failure = copied(0, place).await.unwrap_err();
        assert!(matches!(failure.error, CopyError::Source(_)), "{failure}");
        assert!(!failure.has_full_length && failure.progress.done == 0, "{failure:?}");
        assert_eq!(fs::read(&to).unwrap(), b"what was there");
        let failure = copied(MIB - 1, place).await.unwrap_err();
        assert!(failure.has_full_length && failure.progress.done > 0, "{failure:?}");
        assert_eq!(fs::metadata(&to).unwrap().len(), MIB + place);
    }
    // An earlier run has set the length of the destination.
    let from = Memory::new(pattern(1 << 20));
    from.lock().fails_at = Some(MIB / 2);
    let file = Destination::file(FileDevice::create(&to).unwrap());
    let options = CopyOptions::default().with_done((0..MIB / 2).into());
    let failure = CopyJob::new(Source::device(from), file).with_options(options).run().await;
    assert!(failure.unwrap_err().has_full_length);
}

/// A part with a hole is copied to another offset, and the bytes around it are not changed.
#[tokio::test]
async fn a_part_goes_to_another_place() {
    let folder = Folder::new();
    let (from, to) = (sparse(&folder, "from"), folder.path("to"));
    let part = 20 * MIB - 4096..20 * MIB + 10_000;
    let len = part.end - part.start;
    let source = || Source::device(FileDevice::open(&from).unwrap()).part(part.clone());
    assert_eq!(source().length(), Some(len));
    // The part goes to the middle of a file, to its end, and beyond its end.
    for place in [1000, 2 * MIB - len, 2 * MIB - 5000, 3 * MIB + 1] {
        fs::write(&to, vec![9; 2 << 20]).unwrap();
        let destination = Destination::file(FileDevice::create(&to).unwrap()).from_byte(place);
        CopyJob::new(source(), destination).run().await.unwrap();
        let mut expected = vec![9; 2 << 20];
        expected.resize(expected.len().max((place + len) as usize), 0);
        let image = &fs::read(&from).unwrap()[part.start as usize..part.end as usize];
        expected[place as usize..(place + len) as usize].copy_from_slice(image);
        assert!(fs::read(&to).unwrap() == expected, "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_not_there_is_not_copied() {
    let (from, to) = (Memory::new(pattern(10_000)), Memory::new(pattern(20_000)));
    let copied = |range, place| {
        let source = Source::device(from.clone()).part(range);
        CopyJob::new(source, Destination::device(to.clone()).from_byte(place)).run()
    };
    let progress = copied(9_000..12_000, 19_000).await.unwrap().progress;
    assert_eq!((progress.total, progress.flushed), (Some(1000), 1000));
    assert_eq!(to.lock().bytes[19_000..], from.lock().bytes[9_000..]);
    assert_eq!(copied(12_000..13_000, 0).await.unwrap().progress.total, Some(0));
    let error = copied(0..2000, 19_000).await.unwrap_err().error;
    assert!(matches!(error, CopyError::TooSmall { capacity: 1000, needed: 2000 }), "{error}");
    assert!(to.lock().bytes[..19_000] == pattern(20_000)[..19_000]);
}

#[tokio::test]
async fn only_files_and_block_devices_are_devices() {
    let error = FileDevice::open("/dev/null").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(FileDevice::open("/nowhere/at/all").is_err());
    let folder = Folder::new();
    let path = sparse(&folder, "file");
    assert!(FileDevice::open(&path).unwrap().limits().is_read_only);
}

/// The text form of an identity must not change, because checkpoints and digests of earlier runs contain it.
#[test]
fn a_file_is_recognized_by_when_it_changed_where_it_is_read_and_else_by_its_number() {
    let folder = Folder::new();
    let path = folder.path("file");
    fs::write(&path, [7; 1000]).unwrap();
    let file = FileDevice::create(&path).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    let changed = format!("file changed {}.{:09}", metadata.mtime(), metadata.mtime_nsec());
    let read = Identity::of_source(&file).unwrap().to_string();
    assert_eq!(read, format!("{changed}, 1000 bytes"));
    let mut place = format!("file {:#x} of device {:#x}", metadata.ino(), metadata.dev());
    if let Ok(made) = metadata.created() {
        let made = made.duration_since(UNIX_EPOCH).unwrap();
        place += &format!(" made {}.{:09}", made.as_secs(), made.subsec_nanos());
    }
    let written = Identity::of_destination(&file).unwrap().to_string();
    assert_eq!(written, format!("{place}, 0 bytes"));
    let in_use = Identity::of_source_in_use(&file).unwrap().to_string();
    assert_eq!(in_use, format!("{place}, in use, 1000 bytes"));
}
