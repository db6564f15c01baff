//! Copies that end before their time, from outside.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Folder, Rig, fails, pattern, program};

/// Sends a signal to a program of this test's own.
fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// A source that pauses after its first chunk keeps the copy waiting until the signal comes.
async fn stopped_by(name: &str) {
    let rig = Rig::start(512, 1 << 20).await;
    let mut command = program(&["-", &rig.url(), "--io-size", "4k", "--progress", "none"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let chunk = pattern(4096);
    input.write_all(&chunk).unwrap();
    while !rig.disk.holds(0, &chunk) {
        assert!(child.try_wait().unwrap().is_none(), "the program ended early");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    signal(&child, name);
    let output = child.wait_with_output().unwrap();
    drop(input);

    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("stopping"), "{said}");
    assert!(lines[1].contains("interrupted; 4 KiB were written"), "{said}");
    assert!(lines[1].contains("incomplete"), "{said}");
    // It said goodbye: the session is gone, not merely its connection.
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_stops_in_order() {
    stopped_by("-INT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_a_request_to_terminate() {
    stopped_by("-TERM").await;
}

#[test]
fn a_reader_that_goes_away() {
    let folder = Folder::new();
    let source = folder.file("image", &pattern(1 << 20));
    let mut command = program(&[&source, "-", "--io-size", "64k", "--progress", "none"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut [0; 1000]).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    fails(&output, 1, &["standard output", "the program that reads it has ended"]);
}
