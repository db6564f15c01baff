//! Tests that copied bytes arrive, for every length, and that nothing else changes.

use std::fs::{self, File};
use std::process::Stdio;

use crate::support::{
    Folder, Rig, TARGET, block_copy, block_copy_with_input, pattern, program, succeeds,
};

const MIB: u64 = 1 << 20;

/// Copies an image to a unit and back. `bytes` need not be a multiple of the block size.
async fn there_and_back(block_size: u32, bytes: usize, options: &[&str]) {
    let rig = Rig::start(block_size, 4 * MIB).await;
    rig.disk.fill(7);
    let before = rig.disk.read(0, usize::MAX);
    let folder = Folder::new();
    let image = pattern(bytes);
    let source = folder.file("image", &image);

    succeeds(&block_copy(&[&[source.as_str(), &rig.url()], options].concat()));
    assert!(rig.disk.holds(0, &image), "the image is not on the unit");
    assert!(rig.disk.holds(bytes as u64, &before[bytes..]), "bytes behind the image changed");
    assert!(rig.disk.flushes() > 0, "the unit was not flushed");

    let copy = folder.path("copy");
    succeeds(&block_copy(&[&[rig.url().as_str(), &copy], options].concat()));
    assert_eq!(fs::read(&copy).unwrap(), rig.disk.read(0, usize::MAX));
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_every_length() {
    for bytes in [1, 511, 512, 513, 4096, 65_536, 1_000_001, 4 << 20] {
        there_and_back(512, bytes, &["--verify"]).await;
        there_and_back(4096, bytes, &["--verify"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_every_size_in_queues_of_every_depth() {
    for (io_size, depth) in
        [("512", "1"), ("1000", "7"), ("64k", "1024"), ("3M", "2"), ("64M", "auto")]
    {
        there_and_back(4096, 150_001, &["--io-size", io_size, "--queue-depth", depth]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_standard_input_to_standard_output() {
    let rig = Rig::start(4096, 2 * MIB).await;
    let image = pattern(1_234_567);
    let output = block_copy_with_input(&["-", &rig.url(), "--verify", "--io-size", "64k"], &image);
    succeeds(&output);
    assert!(rig.disk.holds(0, &image));

    let output = block_copy(&[&rig.url(), "-", "--io-size", "64k", "--queue-depth", "9"]);
    succeeds(&output);
    assert_eq!(output.stdout, rig.disk.read(0, usize::MAX));
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_redirected_file_on_from_where_it_stands() {
    let rig = Rig::start(512, MIB).await;
    let folder = Folder::new();
    let image = pattern(5000);
    let source = folder.file("image", &image);
    let mut input = File::open(source).unwrap();
    std::io::Seek::seek(&mut input, std::io::SeekFrom::Start(1000)).unwrap();
    let mut command = program(&["-", &rig.url()]);
    succeeds(&command.stdin(Stdio::from(input)).output().unwrap());
    assert!(rig.disk.holds(0, &image[1000..]) && rig.disk.holds(4000, &[0; 1000]));
}

#[tokio::test(flavor = "multi_thread")]
async fn from_unit_to_unit() {
    let (from, to) = (Rig::start(512, MIB).await, Rig::start(4096, 2 * MIB).await);
    from.disk.fill(3);
    let to_url = to.at(&format!("/{TARGET}/0?data_digest=crc32c"));
    // A unit with the same target name and LUN, but another designator, is another unit.
    succeeds(&block_copy(&[&from.url(), &to_url, "--verify"]));
    assert!(to.disk.holds(0, &from.disk.read(0, usize::MAX)));
    from.assert_clean();
    to.assert_clean();
}

#[test]
fn from_file_to_file() {
    let folder = Folder::new();
    let image = pattern(3_000_001);
    let source = folder.file("image", &image);
    // The file is longer than the copy: its old end must not remain.
    let copy = folder.file("copy", &pattern(4_000_000));
    succeeds(&block_copy(&[&source, &copy, "--verify", "--io-size", "4k"]));
    assert_eq!(fs::read(copy).unwrap(), image);
}

#[test]
fn into_a_device_that_takes_everything() {
    let folder = Folder::new();
    let source = folder.file("image", &pattern(70_000));
    let output = block_copy(&[&source, "/dev/null"]);
    assert!(succeeds(&output).contains("copied 68.3 KiB"));
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_name_and_with_a_password_from_the_environment() {
    let rig = Rig::start_with(512, MIB, |config| {
        config.chap = Some(iscsi_testkit::config::Chap::new("me", "a long enough hunter"));
        config.record = true;
    })
    .await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(512));
    let name = "iqn.2026-01.org.example:somebody";
    let mut command = program(&[&source, &rig.url(), "--initiator-name", name]);
    command.env("LIBISCSI_CHAP_USERNAME", "me");
    command.env("LIBISCSI_CHAP_PASSWORD", "a long enough hunter");
    let said = succeeds(&command.output().unwrap());
    assert!(!said.contains("hunter"));
    let login = format!("InitiatorName={name}\0").into_bytes();
    let has_login = |data: &[u8]| data.windows(login.len()).any(|part| part == login);
    assert!(
        rig.server.with(|target| target.received().iter().any(|(_, pdu)| has_login(&pdu.data)))
    );
}

/// A copy succeeds even if standard error is closed.
#[test]
fn nobody_needs_to_listen() {
    let folder = Folder::new();
    let image = pattern(300_000);
    let source = folder.file("image", &image);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = program(&[&source, &folder.path("copy"), "--progress", "plain"]);
    assert!(command.stderr(writer).status().unwrap().success());
    assert_eq!(fs::read(folder.path("copy")).unwrap(), image);
}
