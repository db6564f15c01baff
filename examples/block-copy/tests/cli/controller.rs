//! Tests of what a controller sees: the page of metrics, the termination log, and the end after SIGTERM.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use iscsi_examples_testkit::page::{ask, free_address, number, page_until};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{
    Folder, Rig, TARGET, block_copy, ends, fails, pattern, program, signal, succeeds, until,
};

const LEN: usize = 1 << 20;

fn start(arguments: &[&str]) -> Child {
    let mut command = program(&[arguments, &["--progress", "none"]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_copy_tells_how_far_it_is_and_what_its_link_does() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(LEN));
    let address = free_address();
    let name = r#"openstack_populator_progress{ownerUID="1f0e"}"#;
    let child = start(&[
        &source,
        &rig.url(),
        "--rate-limit",
        "1kbit",
        "--io-size",
        "4k",
        "--metrics",
        &address.to_string(),
        "--metrics-progress",
        name,
    ]);
    let copied = |page: &str| number(page, "block_copy_done_bytes") > Some(0.0);
    let page = page_until(address, copied).await;
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("content-type: text/plain; version=0.0.4"), "{page}");
    let open =
        ask(address, "GET /metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    let open = open.unwrap();
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    let unit = format!("{{target=\"{TARGET}\",lun=\"0\"}}");
    for (name, expected) in [
        ("block_copy_phase{phase=\"copying\"}", 1.0),
        ("block_copy_phase{phase=\"verifying\"}", 0.0),
        ("block_copy_paused", 0.0),
        ("block_copy_size_bytes", LEN as f64),
        ("block_copy_rate_limit_bytes_per_second", 125.0),
        (&format!("iscsi_disk_sessions{unit}"), 1.0),
        (&format!("iscsi_disk_sessions_lost_total{unit}"), 0.0),
    ] {
        assert_eq!(number(&page, name), Some(expected), "{name}\n{page}");
    }
    let done = number(&page, "block_copy_done_bytes").unwrap();
    let percent = number(&page, name).unwrap();
    assert!((percent - done * 100.0 / LEN as f64).abs() < 0.011, "{percent} of {done}");
    assert!(
        page.contains("\nblock_copy_retransmitted_segments{end=\"destination\",target="),
        "{page}"
    );
    assert!(page.contains("\niscsi_session_round_trip_seconds{"), "{page}");

    assert!(ask(address, "GET /", "").unwrap().starts_with("HTTP/1.1 404 "));
    assert!(ask(address, "POST /metrics", "").unwrap().starts_with("HTTP/1.1 405 "));
    assert!(ask(address, "HEAD /metrics", "").unwrap().ends_with("\r\n\r\n"));
    signal(&child, "-INT");
    assert_eq!(ends(child).await.status.code(), Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_job_file_has_each_copy_by_its_name() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(LEN));
    let (url, copy) = (rig.url(), folder.path("copy"));
    let jobs = format!(
        "rate = \"2kbit\"\n\
         [[job]]\nname = \"one\"\nsource = {source:?}\ndestination = {url:?}\nio-size = \"4k\"\n\
         [[job]]\nname = \"a \\\"b\\\"\"\nsource = {source:?}\ndestination = {copy:?}\n"
    );
    let address = free_address();
    let jobs = folder.file("jobs", jobs.as_bytes());
    let address_text = format!("http://{address}/metrics");
    let name = "p{uid=\"1\"}";
    let child = start(&["--jobs", &jobs, "--metrics", &address_text, "--metrics-progress", name]);
    let ended = "block_copy_phase{job=\"a \\\"b\\\"\",phase=\"ended\"}";
    let page = page_until(address, |page| number(page, ended) == Some(1.0)).await;
    assert_eq!(number(&page, "block_copy_phase{job=\"one\",phase=\"ended\"}"), Some(0.0), "{page}");
    assert_eq!(
        number(&page, "block_copy_progress_ratio{job=\"a \\\"b\\\"\"}"),
        Some(1.0),
        "{page}"
    );
    let percent = number(&page, name).unwrap();
    assert!((50.0..100.0).contains(&percent), "{page}");
    signal(&child, "-INT");
    assert_eq!(ends(child).await.status.code(), Some(130));
}

#[test]
fn an_address_that_cannot_be_served_ends_the_program_before_it_copies() {
    let folder = Folder::new();
    let (source, copy) = (folder.file("image", b"x"), folder.path("copy"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let missing = folder.path("missing");
    for (options, status, part) in [
        (&["--metrics", &*taken][..], 75, "choose another port"),
        (&["--metrics", "192.0.2.1:9464"], 1, "choose an address of this host"),
        (
            &["--metrics", "127.0.0.1:0", "--metrics-cert", &missing, "--metrics-key", &missing],
            2,
            "https://",
        ),
        (
            &[
                "--metrics",
                "https://127.0.0.1:0",
                "--metrics-cert",
                &missing,
                "--metrics-key",
                &missing,
            ],
            2,
            &missing,
        ),
        (&["--termination-log", &folder.path("missing/log")], 1, "termination log"),
    ] {
        let arguments = [&[&*source, &copy, "--progress", "none"], options].concat();
        fails(&block_copy(&arguments), status, &[part]);
        assert!(!fs::exists(&copy).unwrap());
    }
}

/// The log overwrites a file, so it must be none that holds anything else, and no other file of the copy.
#[test]
fn a_termination_log_is_no_other_file() {
    let folder = Folder::new();
    let image = folder.file("image", &pattern(LEN));
    let (small, empty, copy) =
        (folder.file("small", b"x"), folder.file("empty", b""), folder.path("copy"));
    let jobs = |destination: &str| {
        let text = format!("[[job]]\nsource = {small:?}\ndestination = {destination:?}\n");
        folder.file("jobs", text.as_bytes())
    };
    let held = "it holds something else";
    for (arguments, log, part) in [
        (&[&*small, &copy][..], &*image, held),
        (&[&*small, &copy], "/dev/null", "no regular file"),
        (&[&*small, &copy], &small, held),
        (&[&*image, &empty], &empty, "destination and --termination-log are the same file"),
        (&[&*image, &copy], &copy, "destination and --termination-log are the same file"),
        (&["--jobs", &jobs(&copy)], &folder.path("jobs"), held),
        (
            &["--jobs", &jobs(&empty)],
            &empty,
            "destination: it is the --termination-log of this run",
        ),
    ] {
        let options = ["--termination-log", log, "--progress", "none"];
        let output = block_copy(&[arguments, &options].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(part), "{said}");
        let is_kept =
            fs::read(&image).unwrap() == pattern(LEN) && fs::read(&small).unwrap() == b"x";
        assert!(is_kept, "{log}");
        drop(fs::remove_file(&copy));
        fs::write(&empty, b"").unwrap();
    }
    let output = block_copy(&[&small, &copy, "--termination-log", "/dev/null", "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["kind"], "caller", "{object}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_termination_log_has_the_result_in_short() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (source, log) = (folder.file("image", &pattern(LEN)), folder.file("log", b""));
    let read = || -> Value { serde_json::from_slice(&fs::read(&log).unwrap()).unwrap() };
    let url = rig.url();
    let copy = [&*source, &url, "--progress", "none", "--termination-log", &log];
    succeeds(&block_copy(&[&copy[..], &["--verify"]].concat()));
    let result = read();
    for (name, value) in [
        ("status", json!(0)),
        ("bytes", json!(LEN)),
        ("verified", json!(true)),
        ("error", Value::Null),
        ("kind", Value::Null),
    ] {
        assert_eq!(result.get(name), Some(&value), "{result}");
    }
    assert!(fs::metadata(&log).unwrap().len() <= 4096);

    rig.disk.set_read_only(true);
    assert_eq!(block_copy(&copy).status.code(), Some(69));
    let result = read();
    assert_eq!((&result["status"], &result["kind"]), (&json!(69), &json!("target")), "{result}");
    assert!(result["error"].as_str().unwrap().contains("write protected"), "{result}");

    let jobs = format!("[[job]]\nsource = {source:?}\ndestination = {url:?}\n");
    let jobs = folder.file("jobs", jobs.as_bytes());
    let jobs = ["--jobs", &jobs, "--progress", "none", "--termination-log", &log];
    assert_eq!(block_copy(&jobs).status.code(), Some(69));
    assert_eq!(read()["status"], 69);
}

/// Ends a copy whose target answers no more, by a signal. The target answers again if `is_back`, later than the program waits
/// after SIGINT. Returns the last line.
async fn ended_by(name: &str, is_back: bool, options: &[&str]) -> String {
    let rig = Rig::start(512, LEN as u64).await;
    let url = rig.url();
    let arguments = [&["-", &url, "--io-size", "4k", "--sessions", "1"], options].concat();
    let mut child = start(&arguments);
    let mut input = child.stdin.take().unwrap();
    let chunk = pattern(2 * 4096);
    input.write_all(&chunk[..4096]).unwrap();
    until(&mut child, || rig.disk.holds(0, &chunk[..4096])).await;
    rig.server.with(|target| target.hold());
    let before = rig.server.with(|target| target.commands().len());
    input.write_all(&chunk[4096..]).unwrap();
    until(&mut child, || rig.server.with(|target| target.commands().len()) > before).await;
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    signal(&child, name);
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("stopping"), "{said}");
    if is_back {
        sleep(Duration::from_millis(1500)).await;
        rig.server.with(|target| target.release());
    }
    assert_eq!(ends(child).await.status.code(), Some(130));
    said.clear();
    errors.read_to_string(&mut said).unwrap();
    drop(input);
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn after_sigterm_the_requests_in_flight_have_the_time_of_grace() {
    let said = ended_by("-TERM", true, &[]).await;
    assert!(said.contains("8 KiB were written and flushed"), "{said}");
    let said = ended_by("-TERM", false, &["--grace", "2s"]).await;
    assert!(said.contains("in flight, which may be written or not"), "{said}");
}
