//! Tests of copies over several sessions, some of which cannot be opened or are lost.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;

use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::support::{
    Folder, Rig, TARGET, block_copy, fails, object, pattern, program, refuses, succeeds,
};

const MIB: u64 = 1 << 20;
/// Bytes of the image: enough that each session gets work.
const IMAGE: usize = 4 << 20;
const SMALL: [&str; 5] = ["--verify", "--json", "--io-size", "64k", "--queue-depth"];

/// Copies an image to a unit with verification. Returns the messages and the report.
fn copy_to(url: &str, rig: &Rig, options: &[&str]) -> (String, Value) {
    let folder = Folder::new();
    let image = pattern(IMAGE);
    let source = folder.file("image", &image);
    let output = block_copy(&[&[source.as_str(), url], &SMALL[..], &["16"], options].concat());
    let (said, report) = (succeeds(&output), object(&output));
    assert_eq!(report["verified"], true, "{report}");
    assert!(rig.disk.holds(0, &image), "the image is not on the unit");
    (said, report)
}

/// Starts a target whose first connection breaks after it has received `bytes`.
async fn breaks_at(bytes: u64) -> Rig {
    let fault = Fault::cut_after_received(bytes);
    Rig::start_with(512, IMAGE as u64, |config| config.faults.push(fault)).await
}

/// After the only session was lost, its writes may be missing from the unit's cache: no session was open to
/// receive the report of a reset. So the writes that were not flushed are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_session_that_is_lost_comes_back_and_what_was_not_flushed_is_written_again() {
    // Twice the bytes in flight. So half of the writes were answered, and the program has read the responses,
    // before the session breaks.
    let rig = breaks_at(2 << 20).await;
    let (said, report) = copy_to(&rig.url(), &rig, &["--sessions", "1", "--progress", "plain"]);
    assert!(
        said.contains("writes that were not flushed may be lost")
            && said.contains(" are written again"),
        "{said}"
    );
    let again = report["bytes_again"].as_u64().unwrap();
    assert!(again > 0 && report["bytes_sent"] == IMAGE as u64 + again, "{report}");
    assert!(said.contains(" written again\n"), "{said}");
    assert_eq!((&report["reconnects"], &report["sessions_peak"]), (&1.into(), &1.into()));
    assert_eq!(report["bytes"], IMAGE);
}

/// If no login makes the target drop a lost session, the writes of that session may still be executed. The copy
/// is completed over another session, and its last message warns of these writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_that_nothing_settles_is_told_at_the_end() {
    let rig = Rig::start_with(512, IMAGE as u64, |config| {
        let loss = Fault::receiving(Opcode::ScsiCommand, 8, Effect::Close);
        config.faults.push(loss.on_connection(1));
        for connection in 2..64 {
            let refusal = Effect::SetByte { at: 36, value: 2 };
            let refused = Fault::sending(Opcode::LoginResponse, 0, refusal);
            config.faults.push(refused.on_connection(connection));
        }
    })
    .await;
    let folder = Folder::new();
    let image = pattern(IMAGE);
    let source = folder.file("image", &image);
    let options = ["--sessions", "2", "--io-size", "64k", "--progress", "none"];
    let url = format!("{}?retry_timeout=1", rig.url());
    let output = block_copy(&[&[source.as_str(), &url], &options[..]].concat());
    let parts = ["destination: the target may still carry out writes of a lost session"];
    fails(&output, 75, &parts);
    assert!(rig.disk.holds(0, &image));
}

/// Returns the notes of the report. Checks that each of them is among the messages as well.
fn notes(said: &str, report: &Value) -> Vec<String> {
    let notes = report["notes"].as_array().unwrap().iter();
    let notes: Vec<_> = notes.map(|note| note.as_str().unwrap().to_owned()).collect();
    for note in &notes {
        let text = note.strip_prefix("destination: ").unwrap();
        assert!(said.contains(text), "{said:?} does not say {text:?}");
    }
    notes
}

/// Returns an address of this machine where nothing listens.
async fn dead_portal() -> SocketAddr {
    TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn four_sessions_share_the_work() {
    let rig = Rig::start(512, IMAGE as u64).await;
    let (said, report) = copy_to(&rig.url(), &rig, &["--sessions", "4", "-v"]);
    assert!(said.contains("4 sessions: as asked for"), "{said}");
    assert_eq!((&report["sessions"], &report["sessions_peak"]), (&4.into(), &4.into()));
    assert_eq!(report["sessions_reason"], "as asked for");
    assert!(report["plan"]["destination"]["sessions"].as_u64().unwrap() >= 1);
    assert_eq!(notes(&said, &report), [""; 0]);
    let [diagnosis] = report["diagnosis"].as_array().unwrap().as_slice() else {
        panic!("one end is a unit: {report}");
    };
    let remarks = diagnosis["remarks"].as_array().unwrap();
    assert!(remarks.iter().any(|row| row["name"] == "sessions" && row["value"] == "4"));

    let mut writers: Vec<_> = rig.server.with(|target| {
        let is_write = |cdb: [u8; 16]| matches!(cdb[0], 0x2a | 0x8a);
        let writes = target.commands().iter().filter(|command| is_write(command.cdb));
        writes.map(|command| command.connection).collect()
    });
    writers.sort_unstable();
    writers.dedup();
    assert_eq!(writers.len(), 4, "a session had nothing to do");
    // The program has logged out of all sessions.
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_read_over_several_sessions_as_well() {
    let rig = Rig::start(512, MIB).await;
    rig.disk.fill(9);
    let folder = Folder::new();
    let copy = folder.path("copy");
    let output = block_copy(&[&rig.url(), &copy, "--sessions", "3", "--json", "-v"]);
    assert!(succeeds(&output).contains("source: 3 sessions"));
    assert_eq!(object(&output)["sessions"], 3);
    assert_eq!(std::fs::read(copy).unwrap(), rig.disk.read(0, usize::MAX));
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_session_does_where_the_target_refuses_a_second() {
    // Login response with status class 3, detail 2: out of resources (RFC 7143 §11.13.5).
    let refusal = Effect::SetWord { at: 36, value: 0x0302_0000 };
    let refusal = Fault::sending(Opcode::LoginResponse, 0, refusal).on_connection(1);
    let rig = Rig::start_with(512, IMAGE as u64, |config| config.faults.push(refusal)).await;
    let (said, report) = copy_to(&rig.url(), &rig, &["--sessions", "2"]);
    assert_eq!((&report["sessions"], &report["sessions_peak"]), (&1.into(), &1.into()));
    let notes = notes(&said, &report);
    assert!(notes[0].contains("a further session was not opened"), "{notes:?}");
    let reason = report["sessions_reason"].as_str().unwrap();
    assert!(reason.starts_with("2 asked for; 1 not to be had ("), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_does_not_answer_is_passed_over() {
    let rig = Rig::start(512, IMAGE as u64).await;
    let dead = dead_portal().await;
    let url = rig.at(&format!("/{TARGET}/0?portal={dead}"));
    let (_, report) = copy_to(&url, &rig, &["--sessions", "2"]);
    assert_eq!(report["sessions"], 2);

    let url = format!("iscsi://{dead}/{TARGET}/0?portal={}", rig.server.address());
    let (_, report) = copy_to(&url, &rig, &["--sessions", "2"]);
    assert_eq!(report["sessions"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_of_different_units_are_refused() {
    let (one, other) = (Rig::start(512, MIB).await, Rig::start(512, MIB).await);
    other.server.with(|target| {
        let unit = target.config_mut().units.get_mut(&0).unwrap();
        (unit.serial, unit.naa) = ("0002".into(), 0x3000_0000_0000_0002);
    });
    let url = one.at(&format!("/{TARGET}/0?portal={}", other.server.address()));
    let folder = Folder::new();
    let source = folder.file("image", &pattern(512));
    let output = block_copy(&[&source, &url, "--sessions", "2", "--progress", "none"]);
    let portal = other.server.address().to_string();
    let names = ["naa.3000000000000001", "naa.3000000000000002"];
    fails(&output, 69, &[&portal, "another unit", names[0], names[1], "portals of one unit"]);
    assert!(one.disk.holds(0, &[0; 512]) && other.disk.holds(0, &[0; 512]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_lost_midway_takes_nothing_with_it() {
    let rig = breaks_at(300_000).await;
    let (said, report) = copy_to(&rig.url(), &rig, &["--sessions", "3"]);
    assert_eq!(report["sessions_peak"], 3);
    let notes = notes(&said, &report);
    assert!(notes.iter().any(|note| note.contains("a session was lost")), "{notes:?}");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_session_is_opened_again() {
    let fault = Fault::cut_after_sent(300_000);
    let rig = Rig::start_with(512, MIB, |config| config.faults.push(fault)).await;
    rig.disk.fill(5);
    let folder = Folder::new();
    let copy = folder.path("copy");
    let output = block_copy(&[&rig.url(), &copy, "--json"]);
    assert!(succeeds(&output).contains("a session was lost"));
    let report = object(&output);
    assert_eq!((&report["sessions"], &report["reconnects"]), (&1.into(), &1.into()));
    assert_eq!(std::fs::read(copy).unwrap(), rig.disk.read(0, usize::MAX));
    rig.assert_clean();
}

/// While the only session is lost, the unit may be reset without a report. So the bytes from the pipe are kept
/// until a flush has covered them, and are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_goes_on_over_a_session_that_is_lost() {
    let rig = breaks_at(300_000).await;
    // With a queue depth of 1, some writes succeed before the session is lost.
    let options = ["--verify", "--json", "--io-size", "64k", "--queue-depth", "1"];
    let mut command = program(&[&["-", &rig.url()], &options[..]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&pattern(IMAGE)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(succeeds(&output).contains(" are written again"));
    let report = object(&output);
    assert!(report["bytes_again"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((&report["bytes"], &report["verified"]), (&IMAGE.into(), &true.into()));
    assert!(rig.disk.holds(0, &pattern(IMAGE)), "the image is not on the unit");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_connections_are_one_session() {
    let rig = Rig::start(512, IMAGE as u64).await;
    let (said, report) = copy_to(&rig.url(), &rig, &["--connections", "4", "-v"]);
    assert_eq!((&report["sessions"], &report["connections"]), (&1.into(), &4.into()));
    let reason = report["sessions_reason"].as_str().unwrap();
    assert!(reason.contains("--connections") && said.contains(reason), "{said}");
    assert!(said.contains("connections of a session: 4 of 4"), "{said}");
    assert_eq!(notes(&said, &report), [""; 0]);
    assert_eq!(rig.server.with(|target| target.accepted()), 4);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_may_want_fewer_connections() {
    let rig = Rig::start_with(512, IMAGE as u64, |config| config.keys.max_connections = 2).await;
    let (said, report) = copy_to(&rig.url(), &rig, &["--connections", "3"]);
    assert_eq!(report["connections"], 2);
    assert_eq!(notes(&said, &report).len(), 1, "{report}");
    rig.assert_clean();
}

/// The destination is opened while the source does not respond yet. If both fail, the error of the source is
/// reported.
#[tokio::test(flavor = "multi_thread")]
async fn two_units_are_opened_side_by_side() {
    let rig = Rig::start(512, MIB).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = silent.local_addr().unwrap();
    let source = format!("iscsi://{portal}/{TARGET}/0?login_timeout=1");
    refuses(75, &source, &rig.url(), &["source", "did not answer in time"]);
    assert_eq!(rig.server.with(|target| target.accepted()), 1);

    let dead = dead_portal().await;
    let nobody = format!("iscsi://{dead}/{TARGET}/0");
    refuses(
        75,
        &nobody,
        &rig.at("/iqn.2026-01.org.example:other/0"),
        &["source", &dead.to_string()],
    );
    refuses(75, &rig.url(), &nobody, &["destination", &dead.to_string()]);
}

/// With the log turned off, the report contains the text of the warnings.
#[tokio::test(flavor = "multi_thread")]
async fn the_report_says_what_no_warning_did() {
    for (log, is_heard) in [("warn", true), ("off", false)] {
        let dead = dead_portal().await;
        let rig = Rig::start(512, MIB).await;
        let folder = Folder::new();
        let source = folder.file("image", b"something");
        let url = format!("iscsi://{dead}/{TARGET}/0?portal={}", rig.server.address());
        let mut command = program(&[&source, &url, "--sessions", "2", "--progress", "plain"]);
        let said = succeeds(&command.env("RUST_LOG", log).output().unwrap());
        let (_, report) = said.split_once("\ncopied 9 bytes").unwrap();
        let note = format!("\ndestination: portal {dead} was passed over");
        assert_eq!(
            (said.contains(" WARN "), report.contains(&note)),
            (is_heard, !is_heard),
            "{said}"
        );
    }
}
