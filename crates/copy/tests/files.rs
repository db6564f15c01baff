//! Files: their holes, and streams of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use iscsi_copy::{Copy, Destination, Device, Error, FileDevice, Options, Source};
use support::Folder;

const MIB: u64 = 1 << 20;

/// A file of 64 MiB with two times 8 KiB of data.
fn sparse(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.path(name);
    let file = fs::File::create(&path).unwrap();
    file.set_len(64 * MIB).unwrap();
    for at in [20 * MIB, 63 * MIB] {
        file.write_all_at(&[7; 8192], at).unwrap();
    }
    path
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn copy(from: &Path, to: &Path) -> Copy {
    let source = Source::device(FileDevice::open(from).unwrap());
    Copy::new(source, Destination::file(FileDevice::create(to).unwrap()))
}

#[tokio::test]
async fn holes_stay_holes() {
    let folder = Folder::new();
    let (from, to) = (sparse(&folder, "from"), folder.path("to"));
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    assert!(progress.read <= 256 << 10, "{progress:?}");
    assert!(allocated(&to) <= allocated(&from), "{progress:?}");
}

#[tokio::test]
async fn what_was_there_before_is_gone() {
    let folder = Folder::new();
    let (from, to) = (sparse(&folder, "from"), folder.path("to"));
    fs::write(&to, vec![9; 70 << 20]).unwrap();
    let progress = copy(&from, &to).run().await.unwrap().progress;
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    assert!(progress.zeroed > 60 * MIB, "{progress:?}");
    assert!(allocated(&to) <= allocated(&from), "its holes were punched");
}

#[tokio::test]
async fn a_stream_with_zeros_at_its_end_keeps_its_length() {
    let folder = Folder::new();
    let to = folder.path("to");
    let mut bytes = vec![3; 100_000];
    bytes.resize(4 << 20, 0);
    let source = Source::stream(std::io::Cursor::new(bytes.clone()), None);
    let destination = Destination::file(FileDevice::create(&to).unwrap());
    Copy::new(source, destination).run().await.unwrap();
    assert!(fs::read(&to).unwrap() == bytes);
    assert!(allocated(&to) <= 256 << 10);
}

#[tokio::test]
async fn a_file_that_becomes_shorter_is_told() {
    let folder = Folder::new();
    let (from, to) = (folder.path("from"), folder.path("to"));
    fs::write(&from, vec![9; 4 << 20]).unwrap();
    let copy = copy(&from, &to).with_options(Options::default().with_io_size(4096));
    fs::File::options().write(true).open(&from).unwrap().set_len(MIB + 1).unwrap();
    // What is missing looks like a hole to the file system, and like an end to a read.
    let failure = copy.run().await.unwrap_err();
    assert!(matches!(failure.error, Error::Shrunk), "{failure:?}");
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
