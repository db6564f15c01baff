//! Tests of the log of the libraries.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use iscsi_testkit::fault::Fault;
use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::support::{
    Folder, Rig, block_copy, ends, full_pipe, pattern, program, signal, succeeds,
};

const MIB: usize = 1 << 20;

/// Copies a unit to a file over one session, which breaks midway and is reconnected. Returns the text on
/// standard error.
async fn copies_with(log: Option<&str>, progress: &str) -> String {
    let fault = Fault::cut_after_sent(300_000);
    let rig = Rig::start_with(512, MIB as u64, |config| {
        config.keys.default_time2wait = 0;
        config.faults.push(fault);
    })
    .await;
    let image = pattern(MIB);
    rig.disk.write(0, &image);
    let folder = Folder::new();
    let copy = folder.path("copy");
    let mut command = program(&[&rig.url(), &copy, "--sessions", "1", "--progress", progress]);
    if let Some(log) = log {
        command.env("RUST_LOG", log);
    }
    let output = command.output().unwrap();
    assert!(output.stdout.is_empty());
    assert_eq!(std::fs::read(copy).unwrap(), image);
    let said = succeeds(&output);
    assert!(!said.contains('\x1b'), "no terminal is there: {said:?}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_is_told_once() {
    let said = copies_with(None, "plain").await;
    assert_eq!(said.matches("a session was lost").count(), 1, "{said}");
    let line = said.lines().find(|line| line.contains("a session was lost: lost 127.0.0.1"));
    let (stamp, _) = line.and_then(|line| line.split_once(" warning: ")).unwrap();
    assert!(stamp.starts_with("20") && stamp.ends_with('Z'), "it has a time stamp: {said}");
    assert!(!said.contains("DEBUG") && !said.contains("INFO"), "{said}");
}

/// On a terminal, a warning is a separate line above the bar.
#[tokio::test(flavor = "multi_thread")]
async fn a_warning_does_not_garble_the_bar() {
    let rig = Rig::start_with(512, MIB as u64, |config| {
        config.keys.default_time2wait = 0;
        config.faults.push(Fault::cut_after_sent(300_000));
    })
    .await;
    rig.disk.fill(5);
    let said = on_a_terminal(&[&rig.url(), "/dev/null", "--sessions", "1"]);
    let (before, _) = said.split_once("warning: a session was lost").unwrap();
    assert!(said.contains("MiB"), "there is no bar: {said:?}");
    assert!(before.ends_with("\r\x1b[2K") || before.ends_with('\n'), "{said:?}");
}

/// Returns what a copy with a bar writes to its terminal.
fn on_a_terminal(arguments: &[&str]) -> String {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
    let mut command = program(&[arguments, &["--progress", "bar"]].concat());
    let mut child = command.stderr(Stdio::from(slave)).spawn().unwrap();
    drop(command);
    let mut said = Vec::new();
    // When the program closes its end of the terminal, the read returns an error. It is ignored.
    let _ = File::from(master).read_to_end(&mut said);
    assert!(child.wait().unwrap().success());
    String::from_utf8(said).unwrap()
}

/// A bar that wraps because the terminal was made narrower is cleared completely.
#[tokio::test(flavor = "multi_thread")]
async fn a_narrower_terminal_keeps_no_row_of_the_bar() {
    const UP: &str = "\u{1b}[1A";
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(MIB));
    let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
    let narrower = slave.try_clone().unwrap();
    let slow = ["--rate-limit", "100kbit", "--io-size", "4k", "--progress", "bar"];
    let mut command = program(&[&[&*source, &rig.url()], &slow[..]].concat());
    let mut child = command.stderr(Stdio::from(slave)).spawn().unwrap();
    drop(command);
    let (mut terminal, mut said) = (File::from(master), String::new());
    let mut read_until = |holds: &dyn Fn(&str) -> bool| {
        while !holds(&said) {
            let mut part = [0; 256];
            let count = terminal.read(&mut part).unwrap();
            said += &String::from_utf8_lossy(&part[..count]);
        }
        said.clone()
    };
    // Waits for the line with the rate and the time left.
    let said = read_until(&|said| said.contains("% of 1 MiB") && said.contains("left"));
    assert!(!said.contains(UP), "the bar has one row: {said:?}");
    let mut resize = Command::new("stty");
    let resized = resize.args(["cols", "20"]).stdin(Stdio::from(narrower)).status().unwrap();
    assert!(resized.success());
    signal(&child, "-TERM");
    let said = read_until(&|said| said.contains("interrupted"));
    assert!(said.contains(UP), "the upper rows stay: {said:?}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// The total of the bar is that of the ranges to copy. Bytes outside of them that an earlier run has copied do
/// not count.
#[tokio::test(flavor = "multi_thread")]
async fn the_bar_is_as_long_as_what_is_to_be_copied() {
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let (source, map) = (folder.file("image", &pattern(MIB)), folder.path("map"));
    let ranges = folder.file("ranges", b"0 262144\n");
    let url = rig.url();
    let slow = [&source, &*url, "--ranges", &ranges, "--rate-limit", "2mbit", "--io-size", "4K"];
    let said = on_a_terminal(&slow);
    assert!(said.contains("% of 256 KiB") && !said.contains("% of 1 MiB"), "{said:?}");
    let half = folder.file("half", b"131072 131072\n524288 262144\n");
    let earlier = [&source, &*url, "--checkpoint", &map, "--progress", "none", "--ranges", &half];
    succeeds(&block_copy(&earlier));
    let said = on_a_terminal(&[&slow[..], &["--checkpoint", &map, "--resume"]].concat());
    let shown = said.split("% of 256 KiB").map(|before| before.rsplit(' ').next().unwrap());
    let shown: Vec<_> = shown.filter_map(|percent| percent.parse::<u32>().ok()).collect();
    assert!(!shown.is_empty() && shown.iter().all(|percent| *percent >= 50), "{shown:?}: {said:?}");
    assert!(!said.contains("% of 1 MiB"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_to_hear_nothing_hears_nothing() {
    assert_eq!(copies_with(None, "none").await, "");
    assert_eq!(copies_with(Some(""), "none").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_log_says_what_is_told() {
    let said = copies_with(Some("iscsi_initiator=debug"), "none").await;
    for line in said.lines() {
        assert!(line.contains(" iscsi_initiator"), "{line}");
    }
    assert!(said.contains(" WARN ") && said.contains(" DEBUG "), "{said}");
    assert_eq!(copies_with(Some("off"), "none").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rust_log_that_makes_no_sense_is_told() {
    let said = copies_with(Some("a=b=c"), "none").await;
    assert!(said.contains("Z warning: RUST_LOG is ignored: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A copy does not wait for the reader of its log, although the drivers of the sessions log many lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_takes_holds_nothing_up() {
    let rig = Rig::start(512, MIB as u64).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(MIB));
    let (reader, full) = full_pipe().await;
    let mut command = program(&[&source, &rig.url(), "--progress", "none"]);
    command.env("RUST_LOG", "trace").env("TOKIO_WORKER_THREADS", "1");
    let child = command.stderr(Stdio::from(full)).spawn().unwrap();
    assert!(ends(child).await.status.success());
    assert!(rig.disk.holds(0, &pattern(MIB)), "the image is not on the unit");
    drop(reader);
}
