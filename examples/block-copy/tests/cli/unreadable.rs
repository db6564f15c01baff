//! Tests of sources with unreadable blocks.

use std::fs;
use std::process::Output;

use iscsi_testkit::fault::Fault;

use crate::support::{Folder, Rig, block_copy, fails, object, pattern, succeeds};

const LEN: usize = 1 << 20;

/// Starts a unit with unreadable blocks, two of which are adjacent.
async fn bad() -> Rig {
    let rig = Rig::start_with(512, LEN as u64, |config| {
        config.faults.extend([Fault::medium_error(100..102), Fault::medium_error(2047..=2047)]);
    });
    let rig = rig.await;
    rig.disk.write(0, &pattern(LEN));
    rig
}

fn copied(rig: &Rig, copy: &str, more: &[&str]) -> Output {
    let url = rig.url();
    block_copy(&[&[&*url, copy, "--progress", "none", "--on-read-error", "skip"], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_but_the_bad_blocks_arrives_and_the_map_says_which_they_are() {
    let rig = bad().await;
    let folder = Folder::new();
    let (copy, map) = (folder.file("copy", &vec![9; LEN]), folder.path("map"));
    let output = copied(&rig, &copy, &["--checkpoint", &map, "--verify"]);
    let parts = ["1.5 KiB in 2 places", "--resume tries again"];
    fails(&output, 3, &parts);
    let mut expected = pattern(LEN);
    expected[51_200..52_224].fill(9);
    expected[LEN - 512..].fill(9);
    assert!(fs::read(&copy).unwrap() == expected, "what is not known is left alone");
    let text = fs::read_to_string(&map).unwrap();
    let bad: Vec<_> = text.lines().filter(|line| line.ends_with('-')).collect();
    assert_eq!(bad, ["0xc800 0x400 -", "0xffe00 0x200 -"]);

    rig.server.with(|target| target.config_mut().faults.clear());
    succeeds(&copied(&rig, &copy, &["--checkpoint", &map, "--resume", "--verify"]));
    assert!(fs::read(&copy).unwrap() == pattern(LEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_told_where_the_bad_blocks_are() {
    let rig = bad().await;
    let folder = Folder::new();
    let output = copied(&rig, &folder.path("copy"), &["--json", "--verify"]);
    assert_eq!(output.status.code(), Some(3));
    let report = object(&output);
    let bad = serde_json::json!([
        { "offset": 51_200, "length": 1024 },
        { "offset": LEN - 512, "length": 512 },
    ]);
    assert_eq!((&report["unreadable"], &report["kind"]), (&bad, &"data".into()));
    assert_eq!((&report["bytes"], &report["verified"]), (&(LEN - 1536).into(), &false.into()));
    assert_eq!(report["bytes_flushed"], LEN - 1536);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_to_be_asked_for_and_streams_cannot_do_it() {
    let rig = bad().await;
    let folder = Folder::new();
    let output = block_copy(&[&rig.url(), &folder.path("copy"), "--progress", "none"]);
    fails(&output, 69, &["source: ", "MEDIUM ERROR"]);
    fails(&copied(&rig, "/dev/null", &[]), 2, &["nothing can be left out of a stream"]);
}
