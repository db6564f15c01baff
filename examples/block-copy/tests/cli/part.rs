//! Tests of copies of a part of a source, and to an offset in a destination.

use std::fs;

use crate::support::{Folder, Rig, block_copy, fails, object, pattern, succeeds};

const NONE: [&str; 2] = ["--progress", "none"];

/// Copies with the given options, which are separated by spaces.
fn copied(source: &str, destination: &str, options: &str) -> std::process::Output {
    let options: Vec<_> = options.split_whitespace().collect();
    block_copy(&[&[source, destination], &NONE[..], &options].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_to_its_place_and_the_rest_stays() {
    const LEN: usize = 1 << 20;
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (image, before) = (pattern(300_000), vec![7; LEN]);
    let source = folder.file("image", &image);
    for (offset, length, place) in
        [(65_536, 131_072, 524_288), (1, 99_999, 700_001), (299_999, 1, 0)]
    {
        rig.disk.write(0, &before);
        let options = format!(
            "--offset {offset} --length {length} --destination-offset {place} --io-size 16k --verify --json"
        );
        let output = copied(&source, &rig.url(), &options);
        succeeds(&output);
        assert_eq!(object(&output)["bytes"], length);
        let mut expected = before.clone();
        expected[place..place + length].copy_from_slice(&image[offset..offset + length]);
        assert!(rig.disk.holds(0, &expected), "{options}");

        // Copies the part back, into an existing file and into a new one.
        let back = format!("--offset {place} --length {length} --verify");
        let copy = folder.file("copy", &[9; 2000]);
        succeeds(&copied(&rig.url(), &copy, &back));
        assert!(fs::read(&copy).unwrap() == image[offset..offset + length], "as long as the copy");
        let copy = folder.file("copy", &[9; 200_000]);
        succeeds(&copied(&rig.url(), &copy, &format!("{back} --destination-offset 1000")));
        let mut expected = vec![9; 200_000];
        expected[1000..1000 + length].copy_from_slice(&image[offset..offset + length]);
        assert!(fs::read(&copy).unwrap() == expected, "the rest of it stays");
    }
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_told() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(300_000));
    let url = rig.url();
    for (destination, options, status, parts) in [
        (
            &*url,
            "--offset 300001",
            2,
            &["292.9 KiB (300000 bytes)", "--offset 300001 bytes leaves nothing"][..],
        ),
        (
            &url,
            "--offset 1 --length 300000",
            2,
            &["--offset 1 bytes with --length 300000 bytes ends at"],
        ),
        (
            &url,
            "--destination-offset 800000",
            2,
            &["242.7 KiB", "292.9 KiB", "from --destination-offset 800000 bytes on"],
        ),
        (&url, "--offset 300000", 2, &["--offset 300000 bytes leaves nothing"]),
        (&url, "--destination-offset 2M --length 1", 2, &["too small", "0 bytes"]),
        ("-", "--destination-offset 1", 2, &["a stream has no --destination-offset"]),
        ("/dev/null", "--destination-offset 0", 2, &["a stream has no --destination-offset"]),
    ] {
        fails(&copied(&source, destination, options), status, parts);
    }
    for options in ["--offset 1", "--length 1"] {
        fails(&copied("-", &url, options), 2, &["a stream has no --offset and no --length"]);
    }
    assert_eq!(rig.written(), 0);
    for options in ["--offset x", "--length -1", "--destination-offset 1MB"] {
        assert_eq!(copied(&source, &url, options).status.code(), Some(2), "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_of_one_part_and_one_place() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let (source, map) = (folder.file("image", &pattern(300_000)), folder.path("map"));
    let resumed = |part: &str| {
        copied(&source, &rig.url(), &format!("{part} --checkpoint {map} --resume --verify"))
    };
    let part = "--offset 4k --length 8k --destination-offset 512";
    succeeds(&resumed(part));
    let sent = rig.written();
    succeeds(&resumed(part));
    assert_eq!(rig.written(), sent);
    for (other, end) in [
        ("", "source"),
        ("--offset 4k --length 8k", "destination"),
        ("--offset 4k --length 9k --destination-offset 512", "source"),
        ("--offset 4k --length 8k --destination-offset 1k", "destination"),
    ] {
        let known = format!("it is of the {end} ");
        fails(&resumed(other), 2, &[&known, "from byte ", "and this is "]);
    }
    // The message about a difference names the offset in the destination, not the offset in the part.
    rig.disk.write(5000, b"wrong");
    fails(&resumed(part), 65, &["verification failed", "at byte 5000"]);
}
