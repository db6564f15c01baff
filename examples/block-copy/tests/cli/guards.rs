//! Tests of the checks before a copy: data on a destination are reported before they are overwritten, and a
//! copy of an empty source fails.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{
    Folder, Rig, block_copy, block_copy_with_input, fails, object, pattern, program, refuses,
    succeeds,
};

const MIB: usize = 1 << 20;
const QUIET: [&str; 2] = ["--progress", "none"];

/// Returns the bytes of an ext4 file system with this label, as far as the program reads them.
fn ext4(label: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let block = &mut bytes[1024..];
    block[4..8].copy_from_slice(&2560_u32.to_le_bytes());
    block[24] = 2;
    (block[56], block[57], block[96]) = (0x53, 0xef, 0x40);
    block[120..120 + label.len()].copy_from_slice(label.as_bytes());
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_unit_holds_is_said_before_it_is_overwritten() {
    let rig = Rig::start(512, MIB as u64).await;
    rig.disk.write(0, &ext4("pay\nroll"));
    let folder = Folder::new();
    let image = folder.file("image", &pattern(MIB));
    let output = block_copy(&[&image, &rig.url(), "--json", "--progress", "plain"]);
    let held = "an ext4 file system \"pay\\nroll\" of 10 MiB";
    let told = format!("destination {}: it holds {held}, which is overwritten\n", rig.url());
    assert!(succeeds(&output).contains(&told), "{:?}", String::from_utf8(output.stderr));
    let report = object(&output);
    assert_eq!(report["destination_held"], held);
    assert_eq!(report["notes"].as_array().unwrap().len(), 1);
    assert!(rig.disk.holds(0, &pattern(MIB)));
    rig.assert_clean();
}

/// The reads that check the destination are concurrent and short: a distant unit returns their data in one
/// round trip.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_the_destination_is_short() {
    let rig = Rig::start(512, 64 * MIB as u64).await;
    let folder = Folder::new();
    let image = folder.file("image", &pattern(4096));
    succeeds(&block_copy(&[&[&*image, &rig.url()][..], &QUIET].concat()));
    let blocks = |cdb: &[u8]| match cdb[0] {
        0x28 => u64::from(u16::from_be_bytes([cdb[7], cdb[8]])),
        0x88 => u64::from(u32::from_be_bytes([cdb[10], cdb[11], cdb[12], cdb[13]])),
        _ => 0,
    };
    let read: u64 = rig
        .server
        .with(|target| target.commands().iter().map(|command| blocks(&command.cdb)).sum());
    // The initial congestion window is ten segments of 1,460 bytes (RFC 6928). Reads within it take one round
    // trip.
    assert!(read > 0 && read * 512 <= 14_600, "{read} blocks were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_must_be_blank() {
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let image = folder.file("image", &pattern(4096));
    let (map, digests) = (folder.path("map"), folder.path("digests"));
    let copy = |to: &str, more: &[&str]| {
        block_copy(&[&[&*image, to, "--if-blank"], more, &QUIET].concat())
    };
    let resume = ["--checkpoint", &*map, "--resume"];
    for (at, data, what) in [
        (0, ext4("data"), "it holds an ext4 file system \"data\" of 10 MiB"),
        (0, b"LUKS\xba\xbe\0\x02".to_vec(), "it holds a volume of LUKS"),
        (MIB - 512, b"EFI PART".to_vec(), "the second header of a GPT"),
        (512, [[0; 88], [7; 88]].concat(), "unknown data, byte 600 is not zero"),
    ] {
        rig.disk.write(0, &vec![0; MIB]);
        rig.disk.write(at as u64, &data);
        for more in [&[][..], &resume, &["--digests", &digests]] {
            fails(&copy(&rig.url(), more), 2, &["not blank", what, "--if-blank"]);
            // A failed run leaves no files: a second run would take its files for those of an earlier copy.
            assert!(!fs::exists(&map).unwrap() && !fs::exists(&digests).unwrap());
        }
        assert_eq!(rig.written(), 0);
    }
    rig.disk.write(0, &vec![0; MIB]);
    succeeds(&copy(&rig.url(), &resume));
    // Data that an earlier run of this copy has written are allowed.
    succeeds(&copy(&rig.url(), &resume));
    fails(&copy(&rig.url(), &[]), 2, &["unknown data, byte 0 is not zero"]);

    let file = folder.file("file", &pattern(4096));
    fails(&copy(&file, &[]), 2, &["not blank", &file]);
    succeeds(&copy(&folder.path("new"), &[]));
    // The bytes before --destination-offset are not checked.
    succeeds(&copy(&rig.url(), &["--destination-offset", "512K"]));
    fails(&copy(&rig.url(), &["--destination-offset", "512K"]), 2, &["byte 524288 is not zero"]);
    fails(&copy("/dev/null", &[]), 2, &["stream", "--if-blank"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copys_own_data_is_not_told_of() {
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let mut disk = pattern(MIB);
    disk[..4096].copy_from_slice(&ext4("data"));
    let image = folder.file("image", &disk);
    let (map, digests) = (folder.path("map"), folder.path("digests"));
    let ranges = folder.file("ranges", b"0 4096\n");
    let says = |more: &[&str]| {
        let output = block_copy(&[&[&*image, &rig.url(), "--progress", "plain"], more].concat());
        succeeds(&output).contains("which is overwritten")
    };
    assert!(!says(&["--checkpoint", &map, "--resume", "--digests", &digests]));
    assert!(!says(&["--checkpoint", &map, "--resume"]));
    assert!(!says(&["--digests", &digests]));
    assert!(!says(&["--ranges", &ranges]));
    assert!(says(&[]), "it could be somebody else's by now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_nothing_is_told_and_destroys_nothing() {
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let (empty, old, new) =
        (folder.file("empty", b""), folder.file("old", b"precious"), folder.path("new"));
    for to in [&*rig.url(), &old, &new] {
        refuses(2, &empty, to, &["source", "it is empty"]);
        refuses(2, "/dev/null", to, &["source /dev/null: it is empty"]);
        let output = block_copy_with_input(&[&["-", to][..], &QUIET].concat(), b"");
        fails(&output, 2, &["source standard input: it is empty"]);
    }
    assert_eq!(rig.written(), 0);
    assert_eq!(fs::read(&old).unwrap(), b"precious");
    assert!(!fs::exists(&new).unwrap());
}

#[test]
fn a_standard_output_that_is_closed_takes_no_copy() {
    let folder = Folder::new();
    let image = folder.file("image", b"x");
    let run = |script: &str| {
        let program = program(&[&[&*image, "-"][..], &QUIET].concat());
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(program.get_program()).args(program.get_args());
        shell.stdin(Stdio::null()).output().unwrap()
    };
    fails(&run("exec \"$0\" \"$@\" >&-"), 2, &["standard output", "closed", "/dev/null"]);
    succeeds(&run("exec \"$0\" \"$@\" >/dev/null"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_congestion_control_that_is_not_there() {
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let image = folder.file("image", b"x");
    let copy = |name: &str| {
        block_copy(&[&[&*image, &rig.url(), "--congestion", name][..], &QUIET].concat())
    };
    fails(&copy("nosuch"), 2, &["--congestion", "has no nosuch", "it has ", "modprobe tcp_nosuch"]);
    assert_eq!(rig.written(), 0);
    succeeds(&copy("reno"));
}
