//! What the crates below have to tell.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use iscsi_testkit::fault::Fault;
use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::support::{Folder, Rig, ends, full_pipe, pattern, program, succeeds};

const MIB: usize = 1 << 20;

/// Copies a unit to a file over one session, which breaks midway and comes back; what was said.
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
    assert!(said.contains("\nwarning: a session was lost: lost 127.0.0.1"), "{said}");
    assert!(!said.contains("DEBUG") && !said.contains("INFO"), "{said}");
}

/// On a terminal a warning has a line of its own above the bar.
#[tokio::test(flavor = "multi_thread")]
async fn a_warning_does_not_garble_the_bar() {
    let rig = Rig::start_with(512, MIB as u64, |config| {
        config.keys.default_time2wait = 0;
        config.faults.push(Fault::cut_after_sent(300_000));
    })
    .await;
    rig.disk.fill(5);
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
    let mut command = program(&[&rig.url(), "/dev/null", "--sessions", "1", "--progress", "bar"]);
    let mut child = command.stderr(Stdio::from(slave)).spawn().unwrap();
    drop(command);
    let mut said = Vec::new();
    // Where the other side of a terminal is gone, its reader is told by an error.
    let _ = File::from(master).read_to_end(&mut said);
    assert!(child.wait().unwrap().success());
    let said = String::from_utf8(said).unwrap();
    let (before, _) = said.split_once("warning: a session was lost").unwrap();
    assert!(said.contains("MiB"), "there is no bar: {said:?}");
    assert!(before.ends_with("\r\x1b[2K") || before.ends_with('\n'), "{said:?}");
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
    assert!(said.starts_with("warning: RUST_LOG is ignored: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// The drivers of the sessions have much to tell, and go on where nobody takes it.
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
