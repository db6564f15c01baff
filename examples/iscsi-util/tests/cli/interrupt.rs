//! Tests of commands that end early because of a signal.

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::Access;
use tokio::net::TcpListener;

use crate::support::{BLOCK, MIB, Rig, TARGET, object, program, signal, stderr, stdout, until};

fn start(arguments: &[&str]) -> Child {
    program(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Checks that the program was interrupted, and returns its JSON object.
fn was_interrupted(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(130), "{}", stderr(output));
    let object = object(output);
    assert_eq!((&object["complete"], &object["error"]), (&false.into(), &"interrupted".into()));
    assert_eq!(object["kind"], "interrupted");
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_told_up_to_the_interrupt() {
    let rig = Rig::start(BLOCK, MIB).await;
    let mut child =
        start(&["ping", &rig.url(), "--count", "1000000", "--interval", "3600", "--json"]);
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.starts_with("1: "), "{line}");
    signal(&child, "-INT");
    let object = was_interrupted(&child.wait_with_output().unwrap());
    assert_eq!(object["answers"], 1);
    rig.assert_logged_out();
}

/// Runs a load, interrupts it after it has begun, and checks the result.
async fn load(options: &[&str], codes: [u8; 2], name: &str) {
    let rig = Rig::start(BLOCK, MIB).await;
    let url = rig.url();
    let arguments =
        [&["perf", &url, "--seconds", "3600", "--depth", "1", "--json"], options].concat();
    let mut child = start(&arguments);
    until(&mut child, || codes.iter().any(|code| rig.seen(*code) > 100)).await;
    signal(&child, name);
    let object = was_interrupted(&child.wait_with_output().unwrap());
    assert!(object["requests"].as_u64().unwrap() > 0, "{object}");
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_told_up_to_the_interrupt() {
    load(&[], [0x28, 0x88], "-INT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_end_in_order_after_a_request_to_terminate() {
    load(&["--write", "--yes"], [0x2a, 0x8a], "-TERM").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_end_in_order_when_the_terminal_is_gone() {
    load(&["--write", "--yes"], [0x2a, 0x8a], "-HUP").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_there_is_a_session_there_is_nothing_to_tell() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    let url = format!("iscsi://{portal}/{TARGET}/0");
    for subcommand in ["discover", "luns", "inquiry", "capacity", "extents", "ping", "perf"] {
        let child = start(&[subcommand, &url]);
        // After its connection is accepted, the program waits for a response.
        let connection = listener.accept().await.unwrap();
        signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        drop(connection);
        assert_eq!((output.status.code(), stdout(&output)), (Some(130), String::new()));
        let said = stderr(&output);
        assert!(said.ends_with("\niscsi-util: interrupted\n"), "{said}");
    }
}

/// Interrupts a program after it has sent a command to which the unit does not respond.
async fn without_an_answer(arguments: &[&str], access: Access, codes: [u8; 2], error: &str) {
    let hour = Duration::from_secs(3600);
    let late = Fault::delay(.., hour).on_access(access);
    let rig = Rig::start_with(BLOCK, MIB, |config| config.faults = vec![late]).await;
    let url = rig.url();
    let mut child = start(&[&arguments[..1], &[&url, "--json"], &arguments[1..]].concat());
    until(&mut child, || codes.iter().any(|code| rig.seen(*code) > 0)).await;
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let object = object(&output);
    assert_eq!((&object["error"], &object["kind"]), (&error.into(), &"interrupted".into()));
}

/// If a change is interrupted, the error says that commands in flight may still be executed.
#[tokio::test(flavor = "multi_thread")]
async fn changes_that_were_not_answered_are_told() {
    let discard = ["discard", "--offset", "0", "--length", "1M", "--yes"];
    let error = "interrupted with a discard in flight, which may still be executed";
    without_an_answer(&discard, Access::Unmap, [0x42; 2], error).await;
    let write = ["perf", "--write", "--yes", "--depth", "1"];
    let error = "interrupted with writes in flight, which may still be executed";
    without_an_answer(&write, Access::Write, [0x2a, 0x8a], error).await;
    without_an_answer(&["perf"], Access::Read, [0x28, 0x88], "interrupted").await;
}
