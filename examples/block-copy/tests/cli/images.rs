//! Tests of sources whose bytes are not the bytes of a disk, or belong on a disk with blocks of another length.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{
    Folder, Rig, block_copy, block_copy_with_input, fails, pattern, refuses, succeeds,
};

const MIB: usize = 1 << 20;
const QUIET: [&str; 2] = ["--progress", "none"];

/// Returns bytes that begin with the signature `mark`.
fn beginning(mark: &[u8]) -> Vec<u8> {
    let mut image = pattern(20_000);
    image[..mark.len()].copy_from_slice(mark);
    image
}

/// Returns bytes with the signature `mark` at an offset. A negative offset counts from the end.
fn holding(at: isize, mark: &[u8]) -> Vec<u8> {
    let mut image = pattern(20_000);
    let at = if at < 0 { image.len() - at.unsigned_abs() } else { at.unsigned_abs() };
    let end = (at + mark.len()).min(image.len());
    image[at..end].copy_from_slice(&mark[..end - at]);
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_another_format_is_not_taken_for_a_disk() {
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let copy = folder.path("copy");
    let serve = |format: &str| format!("qemu-nbd --read-only --fork --shared=8 --format={format} ");
    let unpack = |command: &str| format!("{command} ");
    for (image, what, remedy) in [
        (beginning(b"QFI\xfb\0\0\0\x03"), "qcow2", serve("qcow2")),
        (beginning(b"QFI\xfb\0\0\0\x01"), "qcow image", serve("qcow")),
        (beginning(b"QED\0"), "QED", serve("qed")),
        (beginning(b"KDMV"), "VMDK", serve("vmdk")),
        (beginning(b"# Disk DescriptorFile\n"), "VMDK", serve("vmdk")),
        (beginning(b"vhdxfile"), "VHDX", serve("vhdx")),
        (holding(64, b"\x7f\x10\xda\xbe"), "VDI", serve("vdi")),
        (beginning(b"conectix"), "VHD", serve("vpc")),
        (holding(-512, b"conectix"), "VHD", serve("vpc")),
        (holding(-511, b"conectix"), "VHD", serve("vpc")),
        (beginning(b"\x1f\x8b\x08"), "gzip", unpack("gzip -dc")),
        (beginning(b"\xfd7zXZ\0"), "xz", unpack("xz -dc")),
        (beginning(b"\x28\xb5\x2f\xfd"), "zstd", unpack("zstd -dc")),
        (beginning(b"BZh91AY&SY"), "bzip2", unpack("bzip2 -dc")),
        (beginning(b"\x04\x22\x4d\x18"), "lz4", unpack("lz4 -dc")),
        (holding(257, b"ustar\x0000"), "tar archive", unpack("tar -xf")),
    ] {
        let source = folder.file("an image", &image);
        let parts = [what, "not those of the disk", &remedy, "an image'", "--format raw"];
        refuses(2, &source, &rig.url(), &parts);
        refuses(2, &source, &copy, &parts);
        assert!(!fs::exists(&copy).unwrap() && rig.written() == 0, "{what}");
        // The bytes of a stream that are read for the check are also copied: none is lost.
        let stream =
            |more: &[&str]| block_copy_with_input(&[&["-", &copy], more, &QUIET].concat(), &image);
        if !image.ends_with(&pattern(20_000)[20_000 - 512..]) {
            continue;
        }
        fails(&stream(&[]), 2, &["standard input", what, "--format raw"]);
        assert!(!fs::exists(&copy).unwrap());
        succeeds(&stream(&["--format", "raw"]));
        assert!(fs::read(&copy).unwrap() == image, "{what}");
        fs::remove_file(&copy).unwrap();
    }
    let source = folder.file("image", &beginning(b"QFI\xfb\0\0\0\x03"));
    succeeds(&block_copy(&[&[&source, &rig.url(), "--format", "raw"], &QUIET[..]].concat()));
    assert!(rig.disk.holds(0, &fs::read(&source).unwrap()));
    // A unit may hold the image of another disk, so this is only a warning.
    let output = block_copy(&[&rig.url(), &copy, "--progress", "plain"]);
    assert!(succeeds(&output).contains("it is a qcow2 image, and is copied as it is"));
}

/// A qcow2 image as source is refused. The command in the advice serves the bytes of the disk.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_is_shown_serves_the_disk() {
    let folder = Folder::new();
    let image = pattern(MIB);
    let (raw, qcow2) = (folder.file("raw", &image), folder.path("the disk's.qcow2"));
    let mut convert = Command::new("qemu-img");
    let convert = convert.args(["convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2]).output();
    if !convert.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no qemu-img; install qemu-utils");
        return;
    }
    let rig = Rig::start(512, MIB as u64).await;
    let refused = block_copy(&[&[&*qcow2, &rig.url()][..], &QUIET].concat());
    let told = String::from_utf8(refused.stderr).unwrap();
    let (_, rest) = told.split_once("serve it with: ").unwrap();
    let (command, rest) = rest.split_once("; and copy from ").unwrap();
    let (uri, _) = rest.split_once(';').unwrap();
    let mine = |text: &str| text.replace("/tmp/disk.sock", &folder.path("disk.sock"));
    assert!(Command::new("sh").args(["-c", &mine(command)]).status().unwrap().success());
    // The server ends when its last client disconnects.
    succeeds(&block_copy(&[&[&*mine(uri), &rig.url()][..], &QUIET].concat()));
    assert!(rig.disk.holds(0, &image));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_stream_is_unpacked_as_shown() {
    let folder = Folder::new();
    let (image, copy) = (pattern(MIB), folder.path("copy"));
    for command in ["gzip", "xz", "zstd", "bzip2"] {
        let mut pack = Command::new(command);
        let pack = pack.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut pack) = pack else {
            eprintln!("SKIPPED: there is no {command}");
            continue;
        };
        let (mut input, wanted) = (pack.stdin.take().unwrap(), image.clone());
        let feeding = std::thread::spawn(move || input.write_all(&wanted));
        let packed = pack.wait_with_output().unwrap().stdout;
        feeding.join().unwrap().unwrap();
        let refused = block_copy_with_input(&[&["-", &*copy][..], &QUIET].concat(), &packed);
        fails(&refused, 2, &[command, &format!("... | {command} -dc | block-copy - DESTINATION")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_table_for_other_blocks_is_told_of() {
    let folder = Folder::new();
    let table = |block: usize| {
        let mut disk = vec![0; MIB];
        disk[block..block + 8].copy_from_slice(b"EFI PART");
        folder.file(&format!("gpt-{block}"), &disk)
    };
    for (there, image, is_told) in
        [(4096, table(512), true), (512, table(4096), true), (512, table(512), false)]
    {
        let rig = Rig::start(there, MIB as u64).await;
        let said = succeeds(&block_copy(&[&image, &rig.url(), "--progress", "plain"]));
        assert_eq!(said.contains("no system will find the partitions there"), is_told, "{said}");
    }
    // An MBR has no block size, so the block size of the source unit is compared.
    let (from, to) = (Rig::start(4096, MIB as u64).await, Rig::start(512, MIB as u64).await);
    let mut mbr = vec![0; 4096];
    (mbr[450], mbr[458], mbr[510], mbr[511]) = (0x83, 1, 0x55, 0xaa);
    from.disk.write(0, &mbr);
    let said = succeeds(&block_copy(&[&from.url(), &to.url(), "--progress", "plain"]));
    assert!(said.contains("counts in blocks of 4096 bytes"), "{said}");
}
