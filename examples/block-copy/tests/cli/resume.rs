//! Tests of copies that end early and are resumed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, SystemTime};

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::Cache;

use crate::support::{
    Folder, Rig, block_copy, block_copy_within, ends, fails, object, pattern, program, signal,
    succeeds, until,
};

const LEN: usize = 64 << 20;
const FLUSH: u64 = 1 << 20;
const IO: u64 = 64 << 10;
/// Options for few bytes in flight, and a flush after each MiB.
const OPTIONS: [&str; 10] = [
    "--io-size",
    "64k",
    "--queue-depth",
    "4",
    "--sessions",
    "1",
    "--flush-bytes",
    "1M",
    "--progress",
    "none",
];
/// With this delay a copy is long enough that it can be stopped midway.
const FAR: Duration = Duration::from_millis(10);

/// Returns the arguments of a copy of a file to a unit with a checkpoint, with `more` added.
fn arguments<'a>(source: &'a str, url: &'a str, map: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[source, url, "--checkpoint", map], &OPTIONS[..], more].concat()
}

fn start(arguments: &[&str]) -> Child {
    let mut command = program(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Stops a copy by a signal when the target has received `bytes` of it.
async fn stopped(rig: &Rig, arguments: &[&str], bytes: u64, name: &str) -> Output {
    let mut child = start(arguments);
    let before = rig.written();
    until(&mut child, || rig.written() >= before + bytes).await;
    signal(&child, name);
    ends(child).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_ten_moments_little_is_sent_twice() {
    let rig = Rig::start_far(512, LEN as u64, FAR).await;
    rig.disk.set_cache(Cache::Volatile);
    let folder = Folder::new();
    let (image, map) = (pattern(LEN), folder.path("map"));
    let (source, url) = (folder.file("image", &image), rig.url());
    let mut random = 1_u64;
    for kill in 0..10 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // A number of bytes between 1 and 3 MiB.
        let bytes = FLUSH + (random >> 43);
        let more: &[&str] = if kill == 0 { &[] } else { &["--resume"] };
        let output = stopped(&rig, &arguments(&source, &url, &map, more), bytes, "-KILL").await;
        assert_eq!(output.status.code(), None);
        if kill % 2 == 1 {
            rig.disk.lose_power();
        }
    }
    let output = block_copy(&arguments(&source, &url, &map, &["--resume", "--json", "--verify"]));
    succeeds(&output);
    let report = object(&output);
    assert!(rig.disk.holds(0, &image));
    assert_eq!((&report["bytes"], &report["verified"]), (&LEN.into(), &true.into()));
    let (sent, resumed) =
        (report["bytes_sent"].as_u64().unwrap(), report["bytes_resumed"].as_u64());
    assert_eq!(resumed, Some(LEN as u64 - sent));
    let twice = rig.written() - LEN as u64;
    println!("{:.1} % sent twice by ten kills", twice as f64 * 100.0 / LEN as f64);
    assert!(twice <= 10 * (2 * FLUSH + IO), "{twice} bytes are sent twice");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_says_how_to_go_on() {
    let rig = Rig::start_far(512, LEN as u64, FAR).await;
    let folder = Folder::new();
    let (image, map) = (pattern(LEN), folder.path("map"));
    let (source, url) = (folder.file("image", &image), rig.url());
    let first = arguments(&source, &url, &map, &[]);
    let output = stopped(&rig, &first, 2 * FLUSH, "-INT").await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("block-copy: interrupted"), "{said}");
    assert!(
        last.ends_with("the same command with --resume goes on from what is flushed"),
        "{said}"
    );
    let sent = rig.written();
    let output = block_copy(&arguments(&source, &url, &map, &["--resume"]));
    succeeds(&output);
    assert!(rig.disk.holds(0, &image));
    assert!(sent < LEN as u64, "it was over before");
    let all = rig.written();
    assert!(all <= LEN as u64 + 2 * FLUSH + IO, "{all} bytes were sent");
    // The checkpoint of a complete copy covers all bytes, so the same command sends nothing.
    succeeds(&block_copy(&arguments(&source, &url, &map, &["--resume"])));
    assert_eq!(rig.written(), all);
}

/// Returns a unit, the path of the source and the path of the checkpoint, after a complete copy.
async fn done(folder: &Folder) -> (Rig, String, String) {
    let rig = Rig::start(512, 1 << 20).await;
    let (source, map) = (folder.file("image", &pattern(1 << 20)), folder.path("map"));
    succeeds(&block_copy(&arguments(&source, &rig.url(), &map, &[])));
    (rig, source, map)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_not_lost_by_mistake() {
    let folder = Folder::new();
    let (rig, source, map) = done(&folder).await;
    let before = fs::read(&map).unwrap();
    let output = block_copy(&arguments(&source, &rig.url(), &map, &[]));
    fails(&output, 2, &["checkpoint ", &map, "it exists; add --resume"]);
    assert_eq!(fs::read(&map).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_another_copy_or_a_damaged_one_is_refused() {
    let folder = Folder::new();
    let (rig, source, map) = done(&folder).await;
    let resumed = |source: &str, url: &str, parts: &[&str]| {
        let parts = [&["checkpoint ", &map], parts].concat();
        fails(&block_copy(&arguments(source, url, &map, &["--resume"])), 2, &parts);
    };
    let name = |config: &mut TargetConfig| {
        for unit in config.units.values_mut() {
            unit.naa += 1;
        }
    };
    let other = Rig::start_with(512, 1 << 20, name).await;
    resumed(&source, &other.url(), &["it is of the destination logical unit ", "and this is "]);
    assert_eq!(other.written(), 0);

    let longer = folder.file("longer", &pattern((1 << 20) - 512));
    resumed(&longer, &rig.url(), &["it is of the source file ", "1048064 bytes"]);
    let file = fs::File::options().write(true).open(&source).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    resumed(&source, &rig.url(), &["it is of the source file changed "]);
    file.set_modified(before).unwrap();

    let text = fs::read_to_string(&map).unwrap();
    let no_text = [text.as_bytes(), b"\xff"].concat();
    for (damaged, part) in [
        (
            &text.as_bytes()[..text.len() - 2],
            "it is damaged in line 8; remove it to begin from the start",
        ),
        (text.replace("checkpoint 2", "checkpoint 3").as_bytes(), "of a newer version"),
        (b"something else", "it is no checkpoint"),
        (&no_text[60..], "it is no checkpoint"),
    ] {
        fs::write(&map, damaged).unwrap();
        resumed(&source, &rig.url(), &[part]);
        assert_eq!(fs::read(&map).unwrap(), damaged, "it is as it was");
    }
    fs::write(&map, text).unwrap();
    succeeds(&block_copy(&arguments(&source, &rig.url(), &map, &["--resume"])));
}

/// A file that is the source, the destination or used by another option is refused as a checkpoint or digest
/// file.
#[test]
fn what_is_kept_of_a_copy_has_a_file_of_its_own() {
    let folder = Folder::new();
    let (source, copy) = (folder.file("image", &pattern(9999)), folder.path("copy"));
    let map = folder.path("map");
    for kept in [
        &["--checkpoint", &*copy][..],
        &["--digests", &copy],
        &["--checkpoint", &source, "--resume"],
        &["--checkpoint", &map, "--digests", &map],
    ] {
        let output = block_copy(&[&[&*source, &copy], kept].concat());
        fails(&output, 2, &["a file of its own; name another one"]);
        assert!(!fs::exists(&copy).unwrap() && !fs::exists(&map).unwrap());
    }
    assert_eq!(fs::read(&source).unwrap(), pattern(9999));
}

#[test]
fn a_file_in_the_place_of_the_destination_is_another_one() {
    let folder = Folder::new();
    let (source, copy, map) =
        (folder.file("image", &pattern(9999)), folder.path("copy"), folder.path("map"));
    succeeds(&block_copy(&arguments(&source, &copy, &map, &[])));
    let resumed = |status, part: &str| {
        fails(&block_copy(&arguments(&source, &copy, &map, &["--resume"])), status, &[part]);
    };
    fs::File::options().write(true).open(&copy).unwrap().set_len(100).unwrap();
    resumed(2, "another program has written to it");
    // Removes the length of the file from the checkpoint, as after a kill before the length was recorded.
    let text = fs::read_to_string(&map).unwrap();
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("# left: "));
    fs::write(&map, lines.collect::<String>()).unwrap();
    resumed(2, "the destination is shorter than what it says to be there");
    fs::remove_file(&copy).unwrap();
    resumed(1, "check the path");
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&copy, pattern(9999)).unwrap();
    resumed(2, "it is of the destination file ");
}

/// If another program has written to the destination file, the checkpoint no longer applies, even with the same
/// inode and length.
#[test]
fn a_destination_that_others_have_written_to_is_refused() {
    let folder = Folder::new();
    let (source, copy, map) =
        (folder.file("image", &pattern(9999)), folder.path("copy"), folder.path("map"));
    let other = folder.file("other", &[7; 9999]);
    let empty = || {
        let file = fs::File::options().write(true).open(&copy).unwrap();
        file.set_len(0).and_then(|()| file.set_len(9999)).unwrap();
    };
    let overwrite = || drop(succeeds(&block_copy(&[&other, &copy, "--progress", "none"])));
    for change in [&empty as &dyn Fn(), &overwrite] {
        let resume = arguments(&source, &copy, &map, &["--resume", "--json"]);
        succeeds(&block_copy(&resume));
        // A file that was only renamed meanwhile is unchanged, so the copy is resumed.
        fs::rename(&copy, folder.path("moved")).unwrap();
        fs::rename(folder.path("moved"), &copy).unwrap();
        assert_eq!(object(&block_copy(&resume))["bytes_resumed"], 9999);
        change();
        for _ in 0..2 {
            let refused = block_copy(&arguments(&source, &copy, &map, &["--resume"]));
            let parts = [
                "checkpoint ",
                "another program has written to it",
                "remove it to begin from the start",
            ];
            fails(&refused, 2, &parts);
        }
        fs::remove_file(&map).unwrap();
        succeeds(&block_copy(&resume));
        assert!(fs::read(&copy).unwrap() == pattern(9999));
    }
}

/// Copies to several places of one file can run one after the other, each with its checkpoint. They can be
/// resumed.
#[test]
fn a_part_of_a_file_is_gone_on_with_after_others_were_written() {
    let folder = Folder::new();
    let (source, copy) = (folder.file("image", &pattern(9999)), folder.path("copy"));
    for _ in 0..2 {
        for (place, map) in [("0", "one"), ("16K", "two")] {
            let map = folder.path(map);
            let more = ["--resume", "--destination-offset", place];
            succeeds(&block_copy(&arguments(&source, &copy, &map, &more)));
        }
    }
    assert!(fs::read(&copy).unwrap()[16 << 10..] == pattern(9999));
}

/// The first run may skip zeros, because the destination is zero. The next run must not, because the
/// destination was found to differ.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_differs_is_not_zero_any_more() {
    let folder = Folder::new();
    let rig = Rig::start(512, 1 << 20).await;
    let mut image = pattern(1 << 20);
    image[256 << 10..512 << 10].fill(0);
    let (source, map, url) = (folder.file("image", &image), folder.path("map"), rig.url());
    let more = ["--verify", "--destination-is-zero"];
    succeeds(&block_copy(&arguments(&source, &url, &map, &more)));
    rig.disk.write(300 << 10, &[7; 512]);
    let more = [&more[..], &["--resume"]].concat();
    fails(&block_copy(&arguments(&source, &url, &map, &more)), 65, &["verification failed"]);
    succeeds(&block_copy(&arguments(&source, &url, &map, &more)));
    assert!(rig.disk.holds(0, &image));
}

/// The bytes of an earlier run are verified as well. If they differ, the checkpoint is cleared.
#[tokio::test(flavor = "multi_thread")]
async fn all_is_verified_and_what_differs_is_not_done() {
    let folder = Folder::new();
    let (rig, source, map) = done(&folder).await;
    rig.disk.write(5000, b"wrong");
    let url = rig.url();
    let verified = arguments(&source, &url, &map, &["--resume", "--verify"]);
    fails(&block_copy(&verified), 65, &["verification failed", "at byte 5000"]);
    succeeds(&block_copy(&verified));
    assert!(rig.disk.holds(0, &pattern(1 << 20)));
}

#[test]
fn a_checkpoint_needs_both_ends_and_a_place() {
    let folder = Folder::new();
    let (source, copy) = (folder.file("image", b"x"), folder.path("copy"));
    let (map, none) = (folder.path("map"), ["--progress", "none"]);
    for (from, to, part) in
        [("-", &*copy, "cannot be read again"), (&source, "/dev/null", "what a stream got is gone")]
    {
        let output = block_copy(&[&[from, to, "--checkpoint", &map], &none[..]].concat());
        fails(&output, 2, &[part, "leave --checkpoint out"]);
    }
    let nowhere = folder.path("missing/map");
    let output = block_copy(&[&[&*source, &copy, "--checkpoint", &nowhere], &none[..]].concat());
    fails(&output, 1, &["checkpoint ", "check the path"]);
    let output = block_copy(&[&source, &copy, "--resume"]);
    assert_eq!(output.status.code(), Some(2));
    // With --resume and without a checkpoint, the copy begins from the start.
    succeeds(&block_copy(&arguments(&source, &copy, &map, &["--resume"])));
    assert_eq!(fs::read(&copy).unwrap(), b"x");
}

/// Another host has the same bytes in another file, changed at another time, and the same unit. The user knows that both are the
/// same, and names them.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_user_names_is_known_on_another_host() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (url, map) = (rig.url(), folder.path("map"));
    let source = folder.file("image", &pattern(LEN));
    let run = |source: &str, more: &[&str]| {
        let ends = [source, &url, "--checkpoint", &map, "--io-size", "4k", "--json"];
        start(&[&ends[..], &["--progress", "none"], more].concat())
    };
    let ids = ["--source-id", "1f0e-77", "--destination-id", "snapshot"];
    let mut child = run(&source, &[&ids[..], &["--rate-limit", "1kbit"]].concat());
    until(&mut child, || rig.written() > 0).await;
    signal(&child, "-INT");
    assert_eq!(ends(child).await.status.code(), Some(130));
    let known = fs::read_to_string(&map).unwrap();
    assert!(known.contains("called 1f0e-77, ") && known.contains("called snapshot, "), "{known}");

    std::thread::sleep(Duration::from_millis(20));
    let elsewhere = folder.file("elsewhere", &pattern(LEN));
    for others in [
        &[][..],
        &["--source-id", "1f0e-77"],
        &["--source-id", "1f0e-78", "--destination-id", "snapshot"],
    ] {
        let output = ends(run(&elsewhere, &[others, &["--resume"]].concat())).await;
        assert_eq!(output.status.code(), Some(2), "{others:?}");
    }
    let output = ends(run(&elsewhere, &[&ids[..], &["--resume"]].concat())).await;
    succeeds(&output);
    assert_eq!(object(&output)["bytes_resumed"], 4096);
    assert!(rig.disk.holds(0, &pattern(LEN)));
    assert_eq!(rig.written(), LEN as u64, "nothing was written twice");
}

#[test]
fn a_name_is_a_word_and_no_name_makes_up_for_a_stream() {
    let folder = Folder::new();
    let (source, map) = (folder.file("image", b"x"), folder.path("map"));
    for id in ["", "two words", "a,b", &"x".repeat(201)] {
        let options = ["--checkpoint", &map, "--source-id", id];
        fails(
            &block_copy(&[&[&*source, "/dev/null"], &options[..]].concat()),
            2,
            &["write a word"],
        );
    }
    let options = ["--checkpoint", &map, "--source-id", "x", "--progress", "none"];
    let output = block_copy(&[&["-", &*folder.path("copy")], &options[..]].concat());
    fails(&output, 2, &["a stream cannot be read again"]);
}

/// A copy succeeds even if its checkpoint cannot be written. After an early end, the next run would then repeat
/// more.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_cannot_be_written_does_not_end_the_copy() {
    let rig = Rig::start_far(512, LEN as u64, FAR).await;
    let folder = Folder::new();
    let kept = folder.path("kept");
    fs::create_dir(&kept).unwrap();
    let (image, map) = (pattern(LEN), format!("{kept}/map"));
    let (source, url) = (folder.file("image", &image), rig.url());
    let ends = [&*source, &url, "--checkpoint", &map, "--progress", "plain"];
    let mut child = start(&[&ends[..], &OPTIONS[..8]].concat());
    until(&mut child, || rig.written() > 0).await;
    // Removed by one rename: a file that the program creates in the folder meanwhile is moved with it.
    fs::rename(&kept, folder.path("gone")).unwrap();
    let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
    let said = succeeds(&output);
    assert!(said.contains("what is flushed cannot be kept: No such file"), "{said}");
    assert!(rig.disk.holds(0, &image));
    assert!(rig.disk.flushes() > 0 && !fs::exists(&map).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_complete_has_its_full_length_and_that_is_said() {
    let rig = Rig::start_far(512, LEN as u64, FAR).await;
    rig.disk.write(0, &pattern(LEN));
    let folder = Folder::new();
    let (copy, map, url) = (folder.path("copy"), folder.path("map"), rig.url());
    let mut child = start(&arguments(&url, &copy, &map, &[]));
    until(&mut child, || {
        let text = fs::read_to_string(&map).unwrap_or_default();
        text.lines().any(|line| line.ends_with('+'))
    })
    .await;
    signal(&child, "-TERM");
    let output = ends(child).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        said.contains("the destination is incomplete and has its full length already; "),
        "{said}"
    );
    assert_eq!(fs::metadata(&copy).unwrap().len(), LEN as u64);
    succeeds(&block_copy(&arguments(&url, &copy, &map, &["--resume"])));
    assert!(fs::read(&copy).unwrap() == pattern(LEN));
    // Without a checkpoint, the message says as well that the file has its full length.
    let again = folder.path("again");
    let mut child = start(&[&[&*url, &again], &OPTIONS[..]].concat());
    // The copy has begun to write when the first MiB has a byte that is not zero. The beginning is written
    // early, so the rest need not be read.
    let begins = |file: fs::File| {
        let mut data = Vec::new();
        file.take(1 << 20).read_to_end(&mut data).unwrap();
        data.iter().any(|byte| *byte > 0)
    };
    until(&mut child, || fs::File::open(&again).is_ok_and(begins)).await;
    signal(&child, "-TERM");
    let said = String::from_utf8(ends(child).await.stderr).unwrap();
    assert!(said.ends_with("is incomplete and has its full length already\n"), "{said}");
    assert_eq!(fs::metadata(&again).unwrap().len(), LEN as u64);
}

/// After a write fails, earlier writes may be missing as well, and no flush reports that again. So they do not
/// count as flushed.
#[test]
fn what_was_written_before_a_file_had_no_room_is_not_done() {
    const ROOM: usize = 1 << 20;
    let folder = Folder::new();
    let (image, map) = (pattern(2 * ROOM), folder.path("map"));
    let source = folder.file("image", &image);
    let copy = folder.file("copy", &vec![0; image.len()]);
    let in_order = ["--io-size", "64k", "--queue-depth", "1"];
    let ends = [&*source, &copy, "--progress", "none", "--checkpoint", &map];
    let arguments = [&ends[..], &in_order].concat();
    let output = block_copy_within(ROOM as u64 / 512, &arguments);
    fails(&output, 1, &["File too large"]);
    assert!(fs::read(&copy).unwrap().starts_with(&image[..64 << 10]), "it was written");
    let known = fs::read_to_string(&map).unwrap();
    assert!(!known.lines().any(|line| line.ends_with('+')), "{known}");
}

/// The destination file of a stopped stream ends with the bytes that came before the signal, because the length
/// of the stream is not known.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_stream_that_stops_is_as_long_as_what_came() {
    let folder = Folder::new();
    let copy = folder.path("copy");
    let mut command = program(&[&["-", &*copy], &OPTIONS[..]].concat());
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&pattern(1 << 20)).unwrap();
    until(&mut child, || fs::read(&copy).is_ok_and(|data| data == pattern(1 << 20))).await;
    signal(&child, "-TERM");
    let said = String::from_utf8(ends(child).await.stderr).unwrap();
    assert!(said.ends_with("the destination is incomplete\n"), "{said}");
    assert_eq!(fs::metadata(&copy).unwrap().len(), 1 << 20);
}
