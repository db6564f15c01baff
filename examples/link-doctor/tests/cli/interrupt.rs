//! Tests of examinations that end early because of a signal.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use tokio::net::{TcpListener, unix::pipe};
use tokio::time::{sleep, timeout};

use crate::support::{
    MIB, TARGET, assert_untouched, complains, ends, link_doctor, object, program, signal, start,
    start_with, stderr, stdout,
};

fn spawn(arguments: &[&str]) -> Child {
    program(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Interrupts the reads after the first progress line about them, and checks the report.
async fn stopped_by(name: &str) {
    let rig = start(8 * MIB).await;
    let mut child = spawn(&[&rig.url(), "--seconds", "3600", "--json"]);
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("bit/s") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "the program ended early");
    }
    signal(&child, name);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report = object(&output);
    assert_eq!((&report["complete"], &report["error"]), (&false.into(), &"interrupted".into()));
    assert_eq!(report["kind"], "interrupted");
    assert!(report["read"]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(report["rtt"]["ping"]["samples"], 10);
    assert_untouched(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_in_order_with_what_was_measured() {
    stopped_by("-INT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_a_request_to_terminate() {
    stopped_by("-TERM").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_a_terminal_that_is_gone() {
    stopped_by("-HUP").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_there_is_a_session_there_is_no_report() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    let child = spawn(&[&format!("iscsi://{portal}/{TARGET}/0")]);
    // After its connection is accepted, the program waits for a response.
    let connection = listener.accept().await.unwrap();
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    drop(connection);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).ends_with("link-doctor: interrupted\n"), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

/// A signal ends the program after a complete examination, while no process reads the report.
#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_reads_the_report() {
    let rig = start_with(MIB, Duration::ZERO, |config| config.record = true).await;
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = pipe::Sender::from_owned_fd(writer.into()).unwrap();
    writer.writable().await.unwrap();
    while writer.try_write(&[0; 512]).is_ok() {}
    let full = writer.into_blocking_fd().unwrap();
    let mut command = program(&[&rig.at(&format!("/{TARGET}")), "--json"]);
    let mut child = command.stdout(Stdio::from(full)).stderr(Stdio::piped()).spawn().unwrap();
    // The URL names no unit, so only the logout follows after the pings.
    let is_goodbye = |(_, pdu): &(_, Pdu)| pdu.opcode() == Some(Opcode::LogoutRequest);
    let is_done = || rig.server.with(|target| target.received().iter().any(is_goodbye));
    let done = timeout(Duration::from_secs(60), async {
        while !is_done() {
            assert!(child.try_wait().unwrap().is_none(), "the program ended early");
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    if done.is_err() {
        child.kill().unwrap();
        panic!("the program says no goodbye");
    }
    signal(&child, "-TERM");
    let said = stderr(&ends(child).await);
    assert!(said.ends_with("standard output: interrupted while no program read it\n"), "{said}");
    drop(reader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_leaves_what_was_measured() {
    // The connection breaks after thousands of reads: each command has 48 bytes.
    let fault = Fault::cut_after_received(100_000);
    let rig = start_with(8 * MIB, Duration::ZERO, |config| config.faults.push(fault)).await;
    let output = link_doctor(&[&rig.url(), "--seconds", "3600", "--json"]);
    complains(&output, 75, &["the read test ended early: lost"]);
    let report = object(&output);
    assert_eq!(report["complete"], false);
    assert_eq!(report["rtt"]["ping"]["samples"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_during_the_pings_leaves_a_report() {
    let fault = Fault::receiving(Opcode::NopOut, 3, Effect::Close);
    let rig = start_with(MIB, Duration::ZERO, |config| config.faults.push(fault)).await;
    let output = link_doctor(&[&rig.url(), "--json"]);
    complains(&output, 75, &["the link was examined in part: "]);
    let report = object(&output);
    assert_eq!((&report["complete"], &report["target"]), (&false.into(), &TARGET.into()));
    assert_eq!(report["rtt"]["ping"]["samples"], 3);
    assert!(report["tcp"]["mss_bytes"].as_u64().unwrap() > 500);
}
