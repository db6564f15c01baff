//! Tests of the messages during a copy, and of changes of the source during a copy.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Folder, Rig, block_copy, ends, fails, object, pattern, program, succeeds, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_line_a_second_tells_programs_how_it_stands() {
    let rig = Rig::start(512, 1 << 20).await;
    let options = ["--json-lines", "--io-size", "4k", "--sessions", "1", "--stats", "1s"];
    let mut command = program(&[&["-", &*rig.url()], &options[..]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut data = pattern(8192);
    data.resize(12_288, 0);
    input.write_all(&data).unwrap();
    until(&mut child, || rig.disk.holds(0, &data[..8192])).await;
    let mut line = String::new();
    let mut next = |output: &mut BufReader<_>| {
        line.clear();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let mut status = next(&mut output);
    while status["bytes"] != 12_288 {
        status = next(&mut output);
    }
    for (name, value) in [
        ("pass", Value::from("copied")),
        ("bytes_total", Value::Null),
        ("bytes_sent", 8192.into()),
        ("bytes_zeroed", 0.into()),
        ("bytes_skipped", 4096.into()),
        ("bytes_resumed", 0.into()),
        ("seconds_left", Value::Null),
        ("sessions", 1.into()),
    ] {
        assert_eq!(status[name], value, "{name}");
    }
    for name in ["bytes_flushed", "seconds", "mbit_per_s", "mean_mbit_per_s", "rtt_ms"] {
        assert!(status[name].is_number(), "{name}: {status}");
    }
    assert_eq!(status.as_object().unwrap().len(), 14);
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!((&last["bytes"], &last["error"]), (&12_288.into(), &Value::Null));
    let said = succeeds(&ends(child).await);
    let line = said.lines().find(|line| line.contains("Mbit/s, mean ")).unwrap_or(&said);
    assert!(line.contains("Z copied ") && line.starts_with("20"), "it has a time stamp: {line}");
    assert!(said.contains(", sent 8 KiB, skipped 4 KiB, 1 session, RTT "), "{said}");
}

#[test]
fn the_last_line_is_the_failure() {
    let output = block_copy(&["/nowhere", "/dev/null", "--json-lines", "--progress", "none"]);
    assert_eq!((output.status.code(), &object(&output)["kind"]), (Some(1), &"system".into()));
    let output = block_copy(&["a", "b", "--json-lines", "--io-size", "1"]);
    assert_eq!((output.status.code(), &object(&output)["kind"]), (Some(2), &"caller".into()));
    let output = block_copy(&["a", "-", "--json-lines", "--progress", "none"]);
    fails(&output, 2, &["standard output"]);
}

/// If the source grows during the copy, its initial length is copied, and a message says that there are more
/// bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_grows_meanwhile_is_told() {
    const LEN: usize = 16 << 20;
    let rig = Rig::start_far(512, LEN as u64, Duration::from_millis(20)).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(LEN));
    let url = rig.url();
    let copy =
        [&*source, &url, "--json", "--io-size", "64k", "--queue-depth", "2", "--sessions", "1"];
    let mut command = program(&copy);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until(&mut child, || rig.written() > 0).await;
    fs::File::options().append(true).open(&source).unwrap().write_all(b"more").unwrap();
    let output = ends(child).await;
    let said = succeeds(&output);
    assert!(said.contains("Z warning: the source was changed while it was copied"), "{said}");
    let report = object(&output);
    assert_eq!((&report["source_changed"], &report["bytes"]), (&true.into(), &LEN.into()));
    assert!(rig.disk.holds(0, &pattern(LEN)));
    let output = block_copy(&[&[&source, "/dev/null"], &["--json"][..]].concat());
    assert_eq!(object(&output)["source_changed"], false);
}

/// Returns the lines on standard error of a copy of 1 MiB to a unit with these options, without a terminal.
async fn lines_with(options: &[&str]) -> Vec<String> {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(1 << 20));
    let output = block_copy(&[&[&*source, &rig.url()][..], options].concat());
    succeeds(&output).lines().map(str::to_owned).collect()
}

/// A copy without trouble prints one line before the copy, and two lines after it.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_copy_needs_few_lines() {
    let lines = lines_with(&["--verify"]).await;
    assert!((2..=3).contains(&lines.len()), "{lines:?}");
    assert!(
        lines[0].starts_with("copying /") && lines[0].contains(" (1 MiB) to iscsi://"),
        "{lines:?}"
    );
    assert!(lines[0].ends_with(", 1 MiB, 1 session)"), "{lines:?}");
    assert!(
        lines[1].starts_with("copied 1 MiB in ")
            && lines[1].ends_with(", flushed, read back equal"),
        "{lines:?}"
    );
    assert!(lines[2..].iter().all(|line| line.starts_with("limited by: ")), "{lines:?}");
    for line in lines {
        assert!(!line.contains("sent again"), "a unit attention at the login is no news: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_is_said_as_asked_for() {
    for quiet in [&["-q"][..], &["--quiet", "--progress", "plain"], &["--progress", "none"]] {
        assert_eq!(lines_with(quiet).await, [""; 0], "{quiet:?}");
    }
    let verbose = lines_with(&["-v"]).await;
    for part in ["  agreed: ", "queue depth ", "what held the destination back:"] {
        assert!(
            verbose.iter().any(|line| line.contains(part)),
            "{verbose:?} does not say {part:?}"
        );
    }
    assert!(!verbose.iter().any(|line| line.contains(" INFO ")), "{verbose:?}");
    let details = lines_with(&["-vv"]).await;
    assert!(details.iter().any(|line| line.contains("Z  INFO iscsi_initiator")), "{details:?}");
    for contrary in [&["-q", "-v"][..], &["--stats", "0"]] {
        let output = block_copy(&[&["a", "b"][..], contrary].concat());
        assert_eq!(output.status.code(), Some(2), "{contrary:?}");
    }
}
