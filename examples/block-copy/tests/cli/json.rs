//! Tests of the JSON object on standard output.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

use iscsi_testkit::config::{Redirect, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{Folder, Rig, TARGET, block_copy, fails, object, pattern, program, succeeds};

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_everything_about_a_copy_to_a_unit() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(300_000));
    let options = ["--json", "--verify", "--io-size", "64k", "--queue-depth", "3"];
    let output = block_copy(&[&[source.as_str(), &rig.url()][..], &options].concat());
    assert!(succeeds(&output).contains("read back equal"));
    let report = object(&output);

    assert_eq!(report["bytes"], 300_000);
    assert_eq!(report["bytes_sent"], 300_000);
    for name in ["bytes_zeroed", "bytes_skipped", "bytes_again", "bytes_resumed"] {
        assert_eq!(report[name], 0, "{name}");
    }
    assert_eq!(report["sessions"], 1);
    assert_eq!(report["sessions_peak"], 1);
    assert!(!report["sessions_reason"].as_str().unwrap().is_empty());
    assert_eq!(report["notes"], serde_json::json!([]));
    assert_eq!(report["destination_held"], Value::Null);
    let portal = rig.server.address().to_string();
    assert_eq!(report["portals"], json!([{ "end": "destination", "portals": [portal] }]));
    assert_eq!(report["connections"], 1);
    assert_eq!(report["queue_depth"], 3);
    assert_eq!(report["io_size_bytes"], 65_536);
    assert_eq!(report["retries"], 0);
    assert_eq!(report["reconnects"], 0);
    assert_eq!(report["verified"], true);
    let seconds = report["seconds"].as_f64().unwrap();
    let goodput = report["goodput_mbit_per_s"].as_f64().unwrap();
    assert!((goodput * seconds - 2.4).abs() < 1e-6, "{goodput} Mbit/s in {seconds} s");
    assert!(report["rtt_ms"].as_f64().unwrap() > 0.0);
    assert!(report["cpu_seconds"].as_f64().unwrap() > 0.0);
    assert!(report["samples_mbit_per_s"].is_array());

    let plan = &report["plan"];
    assert_eq!(plan["queue_depth"]["value"], 3);
    assert!(plan["queue_depth"]["reason"].as_str().unwrap().contains("--queue-depth"));
    assert!(plan["io_size_bytes"]["reason"].as_str().unwrap().contains("--io-size"));
    assert_eq!(plan["source"]["kind"], "file");
    assert_eq!(plan["destination"]["name"], rig.url());
    assert_eq!(plan["destination"]["negotiated"]["FirstBurstLength"], 262_144);
    assert_eq!(plan["destination"]["negotiated"]["InitialR2T"], false);
    let tuning = &plan["destination"]["tuning"];
    assert_eq!(tuning["policy"]["value"], "auto");
    for (name, choice) in tuning.as_object().unwrap() {
        assert!(!choice["reason"].as_str().unwrap().is_empty(), "{tuning}");
        let (value, has_unit) =
            (&choice["value"], name.ends_with("_bytes") || name.contains("_per_"));
        assert!(!has_unit || value.is_number() || value.is_null(), "{name}: {choice}");
        assert!(has_unit || !value.to_string().contains("iB"), "{name} has no unit: {choice}");
    }
    assert!(tuning["io_size_bytes"]["value"].as_u64().unwrap() > 0, "{tuning}");

    let [diagnosis] = report["diagnosis"].as_array().unwrap().as_slice() else {
        panic!("one end is a unit: {report}");
    };
    assert_eq!(diagnosis["end"], "destination");
    assert!(diagnosis["goodput_mbit_per_s"].as_f64().unwrap() > 0.0);
    for finding in diagnosis["findings"].as_array().unwrap() {
        assert!((0.0..=1.0).contains(&finding["share"].as_f64().unwrap()), "{finding}");
    }
    assert_eq!((&report["error"], &report["kind"]), (&Value::Null, &Value::Null));
    assert_eq!(report.as_object().unwrap().len(), 30);
}

/// Returns the object of a copy that fails with this status. Checks that the object's error is the message on
/// standard error.
fn failure(output: &Output, status: i32) -> Value {
    assert_eq!(output.status.code(), Some(status));
    let failure = object(output);
    let error = failure["error"].as_str().unwrap();
    let said = std::str::from_utf8(&output.stderr).unwrap();
    assert!(said.contains(&format!("block-copy: {error}\n")), "{error:?} was not said: {said:?}");
    failure
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_does_not_begin_says_why_and_whose_fault_it_is() {
    let rig = Rig::start(512, 1 << 20).await;
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let nobody = format!("iscsi://{}/{TARGET}/0", listener.local_addr().unwrap());
    drop(listener);
    rig.disk.set_read_only(true);
    for (source, destination, status, kind) in [
        ("/dev/null", &*rig.at(&format!("/{TARGET}/7")), 69, "caller"),
        ("/dev/null", &nobody, 75, "network"),
        ("/dev/null", &rig.url(), 69, "target"),
        ("/dev/null/missing", "/dev/null", 1, "system"),
    ] {
        let output = block_copy(&[source, destination, "--json", "--progress", "none"]);
        let failure = failure(&output, status);
        assert_eq!((&failure["kind"], &failure["bytes"]), (&kind.into(), &0.into()), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_fails_midway_tells_what_is_known() {
    let rig = Rig::start(512, 1 << 20).await;
    let options = ["--json", "--io-size", "4k", "--sessions", "1", "--progress", "none"];
    let mut command = program(&[&["-", &rig.url()], &options[..]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&pattern(4096)).unwrap();
    while !rig.disk.holds(0, &pattern(4096)) {
        assert!(child.try_wait().unwrap().is_none(), "the program ended early");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Takes the target's lock: the unit must not become read-only between the execution of a write and its
    // status.
    rig.server.with(|_| rig.disk.set_read_only(true));
    input.write_all(&pattern(4096)).unwrap();
    let failure = failure(&child.wait_with_output().unwrap(), 69);
    assert_eq!(failure["kind"], "target");
    assert!(failure["error"].as_str().unwrap().contains("4 KiB were written and flushed"));
    assert_eq!((&failure["bytes"], &failure["verified"]), (&4096.into(), &false.into()));
    assert_eq!((&failure["sessions"], &failure["io_size_bytes"]), (&1.into(), &4096.into()));
    assert_eq!(failure["plan"]["destination"]["name"], rig.url());
    assert_eq!(failure.as_object().unwrap().len(), 30);
}

#[test]
fn a_wrong_command_line_is_an_object_as_well() {
    let output = block_copy(&["a", "b", "--json", "--io-size", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let failure = object(&output);
    assert!(failure["error"].as_str().unwrap().starts_with("invalid value '1' for '--io-size"));
    assert_eq!((&failure["kind"], &failure["bytes"]), (&"caller".into(), &0.into()));
}

#[test]
fn a_wrong_command_line_puts_nothing_among_the_data() {
    let output = block_copy(&["a", "-", "--json", "--io-size", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8(output.stdout));
    assert!(output.stderr.starts_with(b"block-copy: invalid value '1' for '--io-size"));
}

#[test]
fn a_wrong_command_line_does_not_tell_a_password() {
    let url = "iscsi://user%hunter2@host/target/0?timeout=hunter3";
    for (arguments, complaint) in [
        (&["a", "b", url][..], "unexpected argument 'iscsi://...' found"),
        (&["a", "b", "--io-size", url], "invalid value 'iscsi://...' for '--io-size"),
        (&["a", "b", &format!("--io-size={url}")], "invalid value 'iscsi://...' for '--io-size"),
        (&["a", "b", &format!("--json={url}")], "unexpected value 'iscsi://...' for '--json"),
        (&["a", "b", &format!("--verify={url}")], "invalid value 'iscsi://...' for '--verify"),
        (&["a", "b", &format!("--{url}")], "unexpected argument 'iscsi://...' found"),
    ] {
        let output = block_copy(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(said.contains(complaint) && !said.contains("hunter"), "{said}");
        let error = object(&output)["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with(complaint) && !error.contains("hunter"), "{error}");
    }
}

#[test]
fn without_a_unit_there_is_no_session_and_no_round_trip() {
    let folder = Folder::new();
    let source = folder.file("image", b"something");
    let output = block_copy(&[&source, &folder.path("copy"), "--json", "--progress", "none"]);
    assert_eq!(succeeds(&output), "");
    let report = object(&output);
    assert_eq!(report["bytes"], 9);
    assert_eq!(report["verified"], false);
    assert_eq!(report["sessions"], 0);
    assert_eq!(report["connections"], 0);
    assert_eq!(report["sessions_reason"], Value::Null);
    assert_eq!(report["rtt_ms"], Value::Null);
    assert_eq!(report["diagnosis"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_were_sent_again_are_counted() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(4096));
    // The next command is one of those that read the properties of the unit. It ends with BUSY.
    rig.server.with(|target| {
        target.end_next_with(iscsi_testkit::target::Outcome::status(0x08));
    });
    let output = block_copy(&[&source, &rig.url(), "--json", "-v"]);
    assert!(succeeds(&output).contains("1 command sent again"));
    assert_eq!(object(&output)["retries"], 1);
}

/// If standard output is the destination, the object would be inside the data, so it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn standard_output_under_another_name_is_for_the_data_alone() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let image = folder.file("image", &pattern(4096));
    let url = rig.url();
    let run = |source: &str, destination: &str, options: &[&str], output: Stdio| {
        let arguments = [&[source, destination, "--progress", "none"], options].concat();
        let mut command = program(&arguments);
        command.stdout(output).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    let to_image = || OpenOptions::new().write(true).open(&image).unwrap().into();
    let is_untouched = || std::fs::read(&image).unwrap() == pattern(4096);
    for destination in ["/dev/stdout", "/proc/self/fd/1", &image] {
        for options in [&["--json", "--verify"][..], &["--json-lines"]] {
            let output = run(&url, destination, options, to_image());
            fails(&output, 2, &["--json", "standard output"]);
            assert!(is_untouched(), "{destination} {options:?}");
        }
        // If the copy fails before it begins, no object is written to the destination either.
        fails(&run("/nowhere", destination, &["--json"], to_image()), 1, &["/nowhere"]);
        assert!(is_untouched(), "{destination}");
    }
    fails(&run(&url, "/dev/stdout", &["--json"], Stdio::piped()), 2, &["standard output"]);
    // The result of a verification is not written to the destination either.
    let (copied, digests) = (folder.path("copied"), folder.path("digests"));
    succeeds(&run(&url, &copied, &["--digests", &digests], Stdio::null()));
    let copy = std::fs::read(&copied).unwrap();
    let output = OpenOptions::new().write(true).open(&copied).unwrap();
    let look = [&copied, "--verify=digests", "--digests", &digests, "--json"];
    let output = program(&look).stdout(output).output().unwrap();
    fails(&output, 2, &["standard output"]);
    assert!(std::fs::read(&copied).unwrap() == copy);
    // `/dev/null` keeps neither the data nor the object, so both are allowed there.
    succeeds(&run(&url, "/dev/null", &["--json"], Stdio::null()));
    let jobs = format!("[[job]]\nname = \"a\"\nsource = {url:?}\ndestination = \"/dev/stdout\"\n");
    let jobs = folder.file("jobs.toml", jobs.as_bytes());
    let output = program(&["--jobs", &jobs, "--json", "--progress", "none"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = object(&output);
    assert!(told["jobs"][0]["error"].as_str().unwrap().contains("standard output"), "{told}");
}

/// Starts a portal that redirects its logins to a portal at another host.
async fn redirected() -> (Rig, Server) {
    let to = Server::start_at(
        ("127.0.0.2", 0),
        Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 2048))),
        Duration::ZERO,
    );
    let to = to.await.unwrap();
    let address = to.address().to_string();
    let rig = Rig::start_with(512, 1 << 20, |config| {
        config.login.redirect =
            Some(Redirect { address, permanent: false, after_authentication: false });
    })
    .await;
    (rig, to)
}

/// The report names the portal of the sessions, and notes that its host differs from the one in the URL.
#[tokio::test(flavor = "multi_thread")]
async fn a_redirection_is_told() {
    let (rig, to) = redirected().await;
    let url = format!("{}?redirects=any", rig.url());
    let output = block_copy(&[&url, "/dev/null", "--json", "--progress", "plain"]);
    let there = to.address().to_string();
    let note = format!("the target at 127.0.0.1 sends the login on to another host: {there}");
    assert_eq!(succeeds(&output).matches(&note).count(), 1);
    let report = object(&output);
    assert_eq!(report["portals"], json!([{ "end": "source", "portals": [there] }]));
    assert_eq!(report["notes"], json!([format!("source: {note}")]));

    let output = block_copy(&[&rig.url(), "/dev/null", "--progress", "none"]);
    fails(&output, 77, &["source: ", "127.0.0.1", &there, "redirects=any"]);
}
