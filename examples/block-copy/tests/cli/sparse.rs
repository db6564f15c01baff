//! Tests of zeros: they are sent only where necessary, and the destination reads as zeros in any case.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use serde_json::Value;

use crate::support::{
    Folder, Rig, block_copy, block_copy_with_input, fails, object, pattern, succeeds,
};

const MIB: u64 = 1 << 20;
const LEN: u64 = 16 * MIB;
/// The ranges of the image that have data: one at the beginning and one in the middle.
const PARTS: [(u64, usize); 2] = [(0, 64 << 10), (9 * MIB, 128 << 10)];
const DATA: u64 = 192 << 10;
/// Operation codes of WRITE (10) and (16), READ (10) and (16), WRITE SAME (10) and (16).
const WRITES: [u8; 2] = [0x2a, 0x8a];
const READS: [u8; 2] = [0x28, 0x88];
const WRITE_SAMES: [u8; 2] = [0x41, 0x93];
const OPTIONS: [&str; 2] = ["--verify", "--json"];

/// Creates a file of [`LEN`] bytes with holes.
fn sparse_file(folder: &Folder, name: &str) -> String {
    let path = folder.path(name);
    let file = File::create(&path).unwrap();
    file.set_len(LEN).unwrap();
    for (offset, len) in PARTS {
        file.write_all_at(&pattern(len), offset).unwrap();
    }
    path
}

/// Returns the bytes of the sparse file.
fn image() -> Vec<u8> {
    let folder = Folder::new();
    fs::read(sparse_file(&folder, "image")).unwrap()
}

fn allocated(path: &str) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Bytes of the destination that the program reads before it writes anything.
const LOOK: u64 = 10 << 10;
/// Bytes of the source that the program reads before the copy.
const FIRST: u64 = 4096 + 512;

/// Returns the number of bytes that commands with one of these operation codes have moved.
fn moved(rig: &Rig, codes: [u8; 2]) -> u64 {
    let blocks = |cdb: [u8; 16]| match cdb[0] {
        0x2a | 0x28 => u64::from(u16::from_be_bytes([cdb[7], cdb[8]])),
        _ => u64::from(u32::from_be_bytes([cdb[10], cdb[11], cdb[12], cdb[13]])),
    };
    rig.server.with(|target| {
        let commands = target.commands().iter();
        let commands = commands.filter(|command| codes.contains(&command.cdb[0]));
        commands.map(|command| 512 * blocks(command.cdb)).sum()
    })
}

fn count(rig: &Rig, codes: [u8; 2]) -> usize {
    rig.server.with(|target| {
        let commands = target.commands().iter();
        commands.filter(|command| codes.contains(&command.cdb[0])).count()
    })
}

/// Returns four numbers of bytes from the report: total, sent, zeroed and skipped.
fn bytes(report: &Value) -> [u64; 4] {
    ["bytes", "bytes_sent", "bytes_zeroed", "bytes_skipped"].map(|name| {
        let value = &report[name];
        value.as_u64().unwrap_or_else(|| panic!("{name} is {value}"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_to_a_thin_unit_and_back() {
    let (rig, folder) = (Rig::start(512, LEN).await, Folder::new());
    let source = sparse_file(&folder, "image");
    // Zeros that the unit is known to hold are not read back for the verification.
    let output = block_copy(&[&[source.as_str(), &rig.url()], &OPTIONS[..]].concat());
    let said = succeeds(&output);
    let zeros = "copied 16 MiB (192 KiB of data, 15.8 MiB of zeros that needed no transfer) in ";
    assert!(said.contains(zeros), "{said}");
    let report = object(&output);
    assert_eq!(bytes(&report), [LEN, DATA, 0, LEN - DATA]);
    assert_eq!((report["bytes_again"].as_u64(), &report["verified"]), (Some(0), &true.into()));
    assert!(rig.disk.holds(0, &image()));
    assert_eq!((moved(&rig, WRITES), moved(&rig, READS)), (DATA, LOOK + DATA));
    assert_eq!(count(&rig, WRITE_SAMES), 0);

    let copy = folder.path("copy");
    let output = block_copy(&[&[rig.url().as_str(), &copy], &OPTIONS[..]].concat());
    succeeds(&output);
    assert_eq!(bytes(&object(&output)), [LEN, DATA, 0, LEN - DATA]);
    assert!(fs::read(&copy).unwrap() == image());
    assert!(allocated(&copy) <= 2 * DATA, "the holes are filled");
    assert_eq!(moved(&rig, READS), 2 * DATA + LOOK + FIRST);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stood_in_the_place_of_a_hole_is_gone() {
    for is_thin in [true, false] {
        let rig = Rig::start_with(512, LEN, |config| {
            config.units.values_mut().for_each(|unit| unit.thin = is_thin);
        })
        .await;
        rig.disk.fill(7);
        let folder = Folder::new();
        let source = sparse_file(&folder, "image");
        let output = block_copy(&[&[source.as_str(), &rig.url()], &OPTIONS[..]].concat());
        succeeds(&output);
        assert!(rig.disk.holds(0, &image()), "thin: {is_thin}");
        let [all, sent, zeroed, skipped] = bytes(&object(&output));
        assert_eq!((all, sent + zeroed, skipped), (LEN, LEN, 0));
        assert_eq!(moved(&rig, WRITES), sent);
        assert!(!is_thin || sent == DATA, "{sent}");
        rig.assert_clean();
    }
}

/// Old data in a destination file are replaced by holes.
#[test]
fn a_sparse_file_over_an_older_one() {
    let folder = Folder::new();
    let source = sparse_file(&folder, "image");
    let copy = folder.file("copy", &vec![9; LEN as usize + 4096]);
    let output = block_copy(&[&[source.as_str(), &copy], &OPTIONS[..]].concat());
    succeeds(&output);
    assert_eq!(bytes(&object(&output)), [LEN, DATA, LEN - DATA, 0]);
    assert!(fs::read(&copy).unwrap() == image());
    assert!(allocated(&copy) <= 2 * DATA, "the holes are filled");
}

#[test]
fn a_very_large_file_that_is_nearly_empty() {
    const TIB: u64 = 1 << 40;
    let folder = Folder::new();
    let (source, copy) = (folder.path("image"), folder.path("copy"));
    let file = File::create(&source).unwrap();
    file.set_len(TIB).unwrap();
    let data = pattern(512 << 10);
    for offset in [0, TIB - MIB] {
        file.write_all_at(&data, offset).unwrap();
    }
    let output = block_copy(&[&[source.as_str(), &copy], &OPTIONS[..]].concat());
    succeeds(&output);
    let report = object(&output);
    assert_eq!(bytes(&report), [TIB, MIB, 0, TIB - MIB]);
    assert_eq!(report["verified"], true);
    let copied = File::open(&copy).unwrap();
    assert_eq!(copied.metadata().unwrap().len(), TIB);
    for offset in [0, TIB - MIB] {
        let mut found = vec![0; data.len()];
        copied.read_exact_at(&mut found, offset).unwrap();
        assert!(found == data, "at {offset}");
    }
    assert!(allocated(&copy) <= 2 * MIB, "the holes are filled");
}

/// The zeros in a stream are not sent as data, although a stream has no holes.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_zeros() {
    let image = image();
    let skipped = [LEN, DATA, 0, LEN - DATA];
    for (is_thin, is_blank, options, expected) in [
        (true, false, &[][..], [LEN, DATA, LEN - DATA, 0]),
        (true, true, &[], skipped),
        (false, true, &["--destination-is-zero"], skipped),
        (true, true, &["--zero-granularity", "off"], [LEN, LEN, 0, 0]),
    ] {
        let rig = Rig::start_with(512, LEN, |config| {
            config.units.values_mut().for_each(|unit| unit.thin = is_thin);
        })
        .await;
        if !is_blank {
            rig.disk.fill(7);
        }
        let url = rig.url();
        let arguments = [&["-", url.as_str()], &OPTIONS[..], options].concat();
        let output = block_copy_with_input(&arguments, &image);
        succeeds(&output);
        assert_eq!(bytes(&object(&output)), expected, "{options:?}");
        assert_eq!(moved(&rig, WRITES), expected[1], "{options:?}");
        assert_eq!(count(&rig, WRITE_SAMES) > 0, expected[2] > 0, "{options:?}");
        assert!(rig.disk.holds(0, &image), "{options:?}");
        rig.assert_clean();
    }
}

/// If the destination is not zero despite `--destination-is-zero`, the verification reports the difference.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_not_zero_after_all() {
    let (rig, folder) = (Rig::start(512, LEN).await, Folder::new());
    rig.disk.fill(7);
    let source = sparse_file(&folder, "image");
    let options = ["--destination-is-zero", "--verify", "--progress", "none"];
    let output = block_copy(&[&[source.as_str(), &rig.url()], &options[..]].concat());
    let at = format!("at byte {};", PARTS[0].1);
    fails(&output, 65, &["verification failed", &at]);
}

/// With `--zero-granularity off`, zeros in data are sent as data. Holes are not sent.
#[tokio::test(flavor = "multi_thread")]
async fn zeros_that_are_sent_as_data() {
    let (rig, folder) = (Rig::start(512, LEN).await, Folder::new());
    let source = sparse_file(&folder, "image");
    let mut file = File::options().write(true).open(&source).unwrap();
    file.seek(SeekFrom::Start(4 * MIB)).unwrap();
    file.write_all(&vec![0; MIB as usize]).unwrap();
    let (url, options) = (rig.url(), ["--zero-granularity", "off"]);
    let arguments = [&[source.as_str(), url.as_str()], &OPTIONS[..], &options].concat();
    let output = block_copy(&arguments);
    succeeds(&output);
    assert_eq!(bytes(&object(&output)), [LEN, DATA + MIB, 0, LEN - DATA - MIB]);
    assert!(rig.disk.holds(0, &image()));
    rig.assert_clean();
}

/// A destination that is a stream receives all bytes, even where the source reports holes.
#[tokio::test(flavor = "multi_thread")]
async fn to_standard_output() {
    let (rig, image) = (Rig::start(512, LEN).await, image());
    rig.disk.write(0, &image);
    for options in [&[][..], &["--destination-is-zero"]] {
        let output = block_copy(&[&[&rig.url(), "-"], options].concat());
        succeeds(&output);
        assert!(output.stdout == image, "{options:?}");
    }
}
