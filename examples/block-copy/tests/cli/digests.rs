//! Tests of digests: a further copy sends only the blocks that differ, or the blocks in a list of ranges, and a
//! destination is verified without its source.

use std::fs;

use crate::support::{
    Folder, Rig, block_copy, block_copy_with_input, block_copy_within, fails, object, pattern,
    program, signal, succeeds, until,
};

const MIB: usize = 1 << 20;
const LEN: usize = 6 * MIB + 4096;
const QUIET: [&str; 3] = ["--progress", "none", "--digests"];

/// Returns the arguments of a copy with digests, with `more` added.
fn arguments<'a>(ends: &[&'a str], digests: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [ends, &QUIET[..], &[digests], more].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_differs_is_sent() {
    let rig = Rig::start(512, 8 << 20).await;
    let (folder, url) = (Folder::new(), rig.url());
    let mut image = pattern(LEN);
    let (source, digests) = (folder.file("image", &image), folder.path("digests"));
    succeeds(&block_copy(&arguments(&[&source, &url], &digests, &[])));
    let first = rig.written();
    assert_eq!(first, LEN as u64);
    image[2 * MIB + 5] ^= 1;
    image[LEN - 1] ^= 1;
    folder.file("image", &image);
    let output = block_copy(&arguments(&[&source, &url], &digests, &["--json"]));
    let said = object(&output);
    assert_eq!(said["bytes_sent"], MIB + 4096);
    assert_eq!(said["bytes_skipped"], 5 * MIB);
    assert_eq!((said["bytes"].as_u64(), &said["verified"]), (Some(LEN as u64), &false.into()));
    assert_eq!(rig.written() - first, (MIB + 4096) as u64);
    assert!(rig.disk.holds(0, &image));
    // A stream is compared with the digests while its bytes arrive.
    image[MIB] ^= 1;
    let more = ["--json", "--verify=digests"];
    let output = block_copy_with_input(&arguments(&["-", &url], &digests, &more), &image);
    let said = object(&output);
    assert_eq!((&said["bytes_sent"], &said["verified"]), (&MIB.into(), &true.into()));
    assert!(rig.disk.holds(0, &image));
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_has_written_is_found_and_sent_again() {
    let rig = Rig::start(512, 8 << 20).await;
    let (folder, url) = (Folder::new(), rig.url());
    let image = pattern(LEN);
    let (source, digests) = (folder.file("image", &image), folder.path("digests"));
    succeeds(&block_copy(&arguments(&[&source, &url], &digests, &["--verify=digests"])));
    rig.disk.write(3 * MIB as u64, &[7; 512]);
    succeeds(&block_copy(&arguments(&[&source, &url], &digests, &[])));
    assert!(!rig.disk.holds(0, &image), "nobody has looked");
    let output = block_copy(&arguments(&[&source, &url], &digests, &["--verify=digests"]));
    let at = format!("in the {MIB} bytes at byte {}", 3 * MIB);
    fails(&output, 65, &["verification failed", &at, "copy again"]);
    succeeds(&block_copy(&arguments(&[&source, &url], &digests, &["--verify=digests"])));
    assert!(rig.disk.holds(0, &image));
}

/// A copy succeeds even if its digests cannot be stored. The next copy then sends the blocks again for which no
/// digest was stored.
#[tokio::test(flavor = "multi_thread")]
async fn digests_that_cannot_be_kept_cost_the_next_copy() {
    const BLOCKS: usize = 16;
    let rig = Rig::start(512, (BLOCKS * MIB) as u64).await;
    let (folder, url) = (Folder::new(), rig.url());
    let image = pattern(BLOCKS * MIB);
    let (source, digests) = (folder.file("image", &image), folder.path("digests"));
    let arguments = [&source, &url, "--digests", &digests, "--flush-bytes", "4M"];
    let plain = [&arguments[..], &["--progress", "plain"]].concat();
    let said = succeeds(&block_copy_within(2, &plain));
    assert!(said.contains("what is flushed cannot be kept: File too large"), "{said}");
    assert!(said.contains("another run does it again"), "{said}");
    assert!(rig.disk.holds(0, &image));
    assert!(fs::metadata(&digests).unwrap().len() <= 1024);
    let quiet = [&arguments[..], &["--progress", "none", "--json"]].concat();
    let sent = object(&block_copy(&quiet))["bytes_sent"].as_u64().unwrap();
    assert!((1..=BLOCKS * MIB).contains(&(sent as usize)), "{sent}");
    assert_eq!(object(&block_copy(&quiet))["bytes_sent"], 0);
}

/// The digest of a block is removed from the file before the block is overwritten. If it cannot be removed, the
/// block is not overwritten.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_back_is_not_overwritten() {
    const BLOCKS: usize = 32;
    let rig = Rig::start(512, (BLOCKS * MIB) as u64).await;
    let (folder, url) = (Folder::new(), rig.url());
    let mut image = pattern(BLOCKS * MIB);
    let (source, digests) = (folder.file("image", &image), folder.path("digests"));
    succeeds(&block_copy(&arguments(&[&source, &url], &digests, &[])));
    let old = image.clone();
    image.chunks_mut(MIB).for_each(|block| block[7] ^= 1);
    folder.file("image", &image);
    // The file may grow no more: it has no room for another line per block.
    let room = fs::metadata(&digests).unwrap().len().div_ceil(512);
    let output = block_copy_within(room, &arguments(&[&source, &url], &digests, &[]));
    fails(&output, 1, &["digests ", "File too large"]);
    let untouched =
        (0..BLOCKS).filter(|at| rig.disk.holds((at * MIB) as u64, &old[at * MIB..][..MIB]));
    assert!(untouched.count() > 0, "it had room for all");
    // The digests that stayed in the file match the destination.
    let verify = [&QUIET[..], &[&digests, "--verify=digests", &url]].concat();
    let said = String::from_utf8(block_copy(&verify).stderr).unwrap();
    assert!(!said.contains("verification failed"), "{said}");
    succeeds(&block_copy(&arguments(&[&source, &url], &digests, &[])));
    assert!(rig.disk.holds(0, &image));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_of_this_destination_is_refused() {
    let rig = Rig::start(512, 8 << 20).await;
    let (folder, url) = (Folder::new(), rig.url());
    let image = pattern(MIB);
    let (source, digests) = (folder.file("image", &image), folder.path("digests"));
    let copy = folder.path("copy");
    succeeds(&block_copy(&arguments(&[&source, &copy], &digests, &[])));
    let output = block_copy(&arguments(&[&source, &url], &digests, &[]));
    fails(&output, 2, &["digests", "it is of the destination file", "and this is logical unit"]);
    assert_eq!(rig.written(), 0);
    folder.file("digests", b"something else");
    let output = block_copy(&arguments(&[&source, &copy], &digests, &[]));
    fails(&output, 2, &["no file of digests"]);
    assert_eq!(fs::read(&digests).unwrap(), b"something else", "it is not ours");
    let output = block_copy(&arguments(&[&source, "-"], &folder.path("new"), &[]));
    fails(&output, 2, &["leave --digests out"]);
    let output = block_copy(&[&source, &copy, "--verify=digests"]);
    fails(&output, 2, &["--digests FILE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_is_verified_alone() {
    let rig = Rig::start(512, 8 << 20).await;
    let (folder, url) = (Folder::new(), rig.url());
    let image = pattern(LEN);
    let (source, digests) = (folder.file("image", &image), folder.path("digests"));
    let copied = folder.path("copy");
    for (destination, digests) in [(&url, &digests), (&copied, &folder.path("others"))] {
        succeeds(&block_copy(&arguments(&[&source, destination], digests, &[])));
        let before = fs::read(digests).unwrap();
        let more = ["--verify=digests", "--json"];
        let output = block_copy(&arguments(&[destination], digests, &more));
        let said = object(&output);
        assert_eq!((&said["bytes_verified"], &said["verified"]), (&LEN.into(), &true.into()));
        assert_eq!(fs::read(digests).unwrap(), before, "it is only read");
    }
    let written = rig.written();
    rig.disk.write(MIB as u64, &[7; 512]);
    let output = block_copy(&arguments(&[&url], &digests, &["--verify=digests"]));
    fails(&output, 65, &["verification failed", "the next copy sends all"]);
    // The failed verification has removed all digests, so nothing can be compared. This verification must fail
    // as well: the destination is still damaged, and must not be reported as verified.
    let output = block_copy(&arguments(&[&url], &digests, &["--verify=digests"]));
    let nothing = "they know nothing of the destination, so nothing was verified";
    fails(&output, 65, &["digests ", nothing, "copy again"]);
    let told = object(&block_copy(&arguments(&[&url], &digests, &["--verify=digests", "--json"])));
    assert_eq!((&told["verified"], &told["kind"]), (&false.into(), &"data".into()));
    assert_eq!(rig.written(), written);
    succeeds(&block_copy(&arguments(&[&source, &url], &digests, &[])));
    assert!(rig.disk.holds(0, &image), "its digest does not keep it from being mended");
    let output = block_copy(&arguments(&[&url], &folder.path("missing"), &["--verify=digests"]));
    fails(&output, 1, &["digests", "missing"]);
    fails(&block_copy(&arguments(&[&url], &digests, &[])), 2, &["the <DESTINATION> is missing"]);
    fails(&block_copy(&[&url]), 2, &["the <DESTINATION> is missing"]);
}

/// Digests of a file are not used after other programs have written to it.
#[test]
fn of_a_file_that_others_have_written_to_nothing_is_known() {
    let folder = Folder::new();
    let image = pattern(2 * MIB);
    let (source, copy) = (folder.file("image", &image), folder.path("copy"));
    let digests = folder.path("digests");
    let sent = || {
        let output = block_copy(&arguments(&[&source, &copy], &digests, &["--json"]));
        succeeds(&output);
        assert!(fs::read(&copy).unwrap() == image);
        object(&output)["bytes_sent"].as_u64().unwrap()
    };
    assert_eq!([sent(), sent()], [2 * MIB as u64, 0]);
    let file = fs::File::options().write(true).open(&copy).unwrap();
    file.set_len(0).and_then(|()| file.set_len(2 * MIB as u64)).unwrap();
    // A verification notices as well that the digests are wrong, and removes them.
    let look = block_copy(&arguments(&[&copy], &digests, &["--verify=digests"]));
    fails(&look, 65, &["verification failed"]);
    assert_eq!([sent(), sent()], [2 * MIB as u64, 0]);
    file.set_len(0).and_then(|()| file.set_len(2 * MIB as u64)).unwrap();
    let told = ["--digests", &digests, "--progress", "plain"];
    let said = succeeds(&block_copy(&[&[&*source, &copy][..], &told].concat()));
    assert!(said.contains("another program has written to it; all is sent"), "{said}");
    assert!(fs::read(&copy).unwrap() == image);
    assert_eq!(sent(), 0);
}

/// A run with `--destination-is-zero` is killed before it has flushed anything. The next run must
/// write zeros over the data of the killed run.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_copy_has_written_is_not_zero() {
    let rig = Rig::start(512, 8 << 20).await;
    let folder = Folder::new();
    let (mut image, digests, url) = (pattern(LEN), folder.path("digests"), rig.url());
    let source = folder.file("image", &image);
    let arguments = arguments(&[&source, &url], &digests, &["--destination-is-zero"]);
    let mut first =
        program(&[&arguments[..], &["--rate-limit", "8mbit"]].concat()).spawn().unwrap();
    until(&mut first, || rig.written() > 2 * MIB as u64).await;
    signal(&first, "-KILL");
    first.wait().unwrap();
    image[..MIB].fill(0);
    folder.file("image", &image);
    for _ in 0..2 {
        succeeds(&block_copy(&arguments));
        assert!(rig.disk.holds(0, &image));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_ranges_are_copied() {
    let rig = Rig::start(512, 8 << 20).await;
    let (folder, url) = (Folder::new(), rig.url());
    let image = pattern(MIB);
    let source = folder.file("image", &image);
    let ranges = folder.file("ranges", b"# changed\n0x1000 4096\n512 512 # and this\n");
    let quiet = ["--progress", "none", "--ranges"];
    let copy = |more: &[&str]| {
        let all = [&[source.as_str(), url.as_str()], &quiet[..], &[ranges.as_str()], more].concat();
        block_copy(&all)
    };
    let said = object(&copy(&["--json", "--verify"]));
    assert_eq!((&said["bytes"], &said["bytes_sent"]), (&4608.into(), &4608.into()));
    assert_eq!(said["verified"], true);
    assert_eq!(rig.written(), 4608);
    assert!(rig.disk.holds(4096, &image[4096..8192]) && rig.disk.holds(512, &image[512..1024]));
    for (text, complaint) in [
        ("0 512\n1048576 1\n", "line 2: it ends at byte 1048577, and the source has 1048576"),
        ("some\n", "line 1: write the first byte and the length"),
        ("[{\"start\": 0}]", "entry 1: it has no"),
        ("[{\"start\": 0,", "not JSON"),
        (
            "0 512\nnbd+unix:///x?socket=/missing\n",
            "line 2: it names no dirty bitmap; write the URI of an export",
        ),
    ] {
        folder.file("ranges", text.as_bytes());
        fails(&copy(&[]), 2, &["ranges", complaint]);
    }
    folder.file("ranges", b"nbd+unix:///x?socket=/missing qemu:dirty-bitmap:b0\n");
    let complaint = "no NBD server listens at /missing: there is no such socket; check the address";
    fails(&copy(&[]), 75, &["ranges", complaint]);
    let missing = block_copy(&[&[source.as_str(), &url], &quiet[..], &["/missing"]].concat());
    fails(&missing, 1, &["ranges /missing"]);
    let stream = [&["-", url.as_str()], &quiet[..], &[ranges.as_str()]].concat();
    fails(&block_copy_with_input(&stream, b""), 2, &["a stream has no places"]);
    let bitmap = [&[source.as_str(), &url], &quiet[..], &["qemu:dirty-bitmap:b0"]].concat();
    fails(&block_copy(&bitmap), 2, &["an NBD export has dirty bitmaps"]);
    assert_eq!(rig.written(), 4608);
}

/// The verification of a run fails if the digest file lacks the digest of a block that the run has copied, even
/// if it has digests of other blocks.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_copied_and_has_no_digest_is_not_verified_by_others() {
    let rig = Rig::start(512, 16 << 20).await;
    let (folder, url) = (Folder::new(), rig.url());
    let digests = folder.path("digests");
    let ranges = folder.file("ranges", format!("{} {MIB}", 2 * MIB).as_bytes());
    // Each block takes a line of the file. With some numbers of blocks, the line that removes the old digest
    // fits, and the line with the new digest does not. A copy rewrites the file when it begins, which makes the
    // file shorter.
    for (blocks, less) in (8..=16).flat_map(|blocks| [(blocks, 1), (blocks, 0)]) {
        let mut image = pattern(blocks * MIB);
        let source = folder.file("image", &image);
        succeeds(&block_copy(&arguments(&[&source, &url], &digests, &[])));
        let room = fs::metadata(&digests).unwrap().len().div_ceil(512) - less;
        image[2 * MIB] ^= 1;
        folder.file("image", &image);
        let more = ["--ranges", &ranges, "--verify=digests"];
        let output = block_copy_within(room, &arguments(&[&source, &url], &digests, &more));
        let said = String::from_utf8(output.stderr).unwrap();
        let verify = arguments(&[&url], &digests, &["--verify=digests", "--json"]);
        let known = object(&block_copy(&verify))["bytes_verified"].clone();
        if said.contains("of some of it no digest is known") {
            assert_eq!(known, image.len() - MIB, "{blocks} blocks: {said}");
            rig.assert_clean();
            return;
        }
        if output.status.success() {
            assert_eq!(known, image.len(), "{blocks} blocks: {said}");
        }
        fs::remove_file(&digests).unwrap();
    }
    panic!("each time there was room, or none for what is taken back");
}
