//! Tests of many concurrent copies in one process.

use std::fs;

use iscsi_testkit::fault::Fault;
use serde_json::Value;

use crate::control;
use crate::support::{Folder, Rig, block_copy, ends, fails, object, pattern, program, succeeds};

const LEN: usize = 1 << 20;

fn job(name: &str, source: &str, destination: &str) -> String {
    format!("[[job]]\nname = {name:?}\nsource = {source:?}\ndestination = {destination:?}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fails_does_not_stop_the_others() {
    let (there, back) = (Rig::start(512, LEN as u64).await, Rig::start(512, LEN as u64).await);
    back.disk.write(0, &pattern(LEN));
    let folder = Folder::new();
    let (image, copy) = (folder.file("image", &pattern(LEN)), folder.path("copy"));
    let text = [
        "rate = \"1gbit\"\n[class.low]\nrate = \"1mbit\"\nceil = \"off\"\n".to_owned(),
        job("lost", &folder.path("missing"), &folder.path("nothing")),
        job("there", &image, &there.url()) + "class = \"low\"\nverify = true\nio-size = \"64K\"\n",
        job("back", &back.url(), &copy),
    ];
    let file = folder.file("jobs.toml", text.concat().as_bytes());
    let output = block_copy(&["--jobs", &file, "--json", "--progress", "none"]);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("block-copy: lost: source ") && said.lines().count() == 1, "{said}");
    let told = object(&output);
    let jobs = told["jobs"].as_array().unwrap();
    let names: Vec<_> = jobs.iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lost", "there", "back"]);
    assert!(told["error"].as_str().unwrap().starts_with("lost: source "), "{told}");
    assert_eq!((&jobs[0]["bytes"], &jobs[0]["kind"]), (&0.into(), &"system".into()));
    assert_eq!((&jobs[1]["bytes"], &jobs[1]["verified"]), (&LEN.into(), &true.into()));
    assert_eq!(jobs[2]["error"], Value::Null);
    assert!(there.disk.holds(0, &pattern(LEN)));
    assert!(fs::read(&copy).unwrap() == pattern(LEN));
    there.assert_clean();
    back.assert_clean();
}

/// The bytes of one copy make the other copies wait, and a command applies to all copies.
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_one_process_share_a_tree() {
    let rigs = [Rig::start(512, LEN as u64).await, Rig::start(512, LEN as u64).await];
    let folder = Folder::new();
    let (image, socket) = (folder.file("image", &pattern(LEN)), folder.path("control"));
    let text = [
        "rate = \"1kbit\"\n[class.low]\nceil = \"off\"\n".to_owned(),
        job("one", &image, &rigs[0].url()) + "io-size = \"4k\"\n",
        job("other", &image, &rigs[1].url()) + "io-size = \"4k\"\nclass = \"low\"\n",
    ];
    let file = folder.file("jobs.toml", text.concat().as_bytes());
    let copies = control::start(&["--jobs", &file, "--control", &socket]);
    let mut orders = control::connect(&socket).await;
    let waits = |status: &Value| {
        let is_copying = |at: usize| status["jobs"][at]["phase"] == "copying";
        let is_behind = status["classes"]["low"]["waiting_requests"].as_u64() > Some(0);
        is_behind && is_copying(0) && is_copying(1)
    };
    orders.until_status(waits).await;
    let sent: u64 = rigs.iter().map(Rig::written).sum();
    assert!(sent <= 64 << 10, "{sent} bytes at 1 kbit/s");
    assert_eq!(orders.give("rate off")["error"], Value::Null);
    succeeds(&ends(copies).await);
    for rig in rigs {
        assert!(rig.disk.holds(0, &pattern(LEN)));
        rig.assert_clean();
    }
}

/// A class that does not apply to a job is an error: the job would run without a limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_rules_nothing_is_refused() {
    let folder = Folder::new();
    let (image, copy) = (folder.file("image", &pattern(LEN)), folder.path("copy"));
    let job = job("files", &image, &copy) + "class = \"low\"\n";
    let inner = "[class.low]\nrate = \"1mbit\"\n[class.lower]\nparent = \"low\"\n";
    let leaf = "[class.low]\nrate = \"1mbit\"\n";
    for (classes, told) in [
        (inner, "line 9: job \"files\": there are classes below \"low\"; name one of them"),
        (leaf, "files: a class holds for what is read from units and written to them"),
    ] {
        let file = folder.file("jobs.toml", format!("{classes}{job}").as_bytes());
        fails(&block_copy(&["--jobs", &file]), 2, &[told]);
        assert!(!fs::exists(&copy).unwrap());
    }
}

/// If one copy writes a file or unit, no other copy may read or write it, under any name.
#[tokio::test(flavor = "multi_thread")]
async fn no_copy_gets_in_the_way_of_another() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (one, other) = (folder.file("one", &pattern(LEN)), folder.file("other", &[7; LEN]));
    let (url, again) = (rig.url(), rig.url().replacen("/iqn", ",1/iqn", 1) + "?timeout=60");
    let link = folder.path("link");
    fs::hard_link(&other, &link).unwrap();
    // The portal by host name, as another spelling of the same URL.
    let by_name = url.replacen("127.0.0.1", "localhost", 1);
    for [first, second] in [
        [(&*one, &*url), (&*other, &*by_name)],
        [(&*one, &*url), (&*other, &*again)],
        [(&one, &url), (&again, &other)],
        [(&one, &other), (&link, &url)],
        [(&one, &other), (&url, &link)],
    ] {
        let text = job("first", first.0, first.1) + &job("second", second.0, second.1);
        let output =
            block_copy(&["--jobs", &folder.file("jobs", text.as_bytes()), "--progress", "none"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(" as well; name another one, or copy one after the other"), "{said}");
    }
    // Two copies may read the same unit.
    let text = job("first", &url, &folder.path("a")) + &job("second", &again, &folder.path("b"));
    succeeds(&block_copy(&["--jobs", &folder.file("jobs", text.as_bytes()), "--progress", "none"]));
}

/// A warning of a session names the job of the session, even if the session was opened long after the job
/// began.
#[tokio::test(flavor = "multi_thread")]
async fn a_warning_says_of_which_job_it_is() {
    let rig = |connection| {
        Rig::start_with(512, LEN as u64, move |config| {
            config.keys.default_time2wait = 0;
            config.faults.extend(connection);
        })
    };
    let cut = |connection| Fault::cut_after_sent(300_000).on_connection(connection);
    let folder = Folder::new();
    let job = |name: &str, rig: &Rig| {
        rig.disk.fill(9);
        job(name, &rig.url(), &folder.path(name)) + "sessions = \"1\"\n"
    };
    for (log, line) in [("", "warning: "), ("iscsi_initiator=warn", "")] {
        let rigs = [rig(vec![cut(0), cut(1)]).await, rig(vec![cut(0)]).await, rig(vec![]).await];
        let text = [job("twice", &rigs[0]), job("once", &rigs[1]), job("never", &rigs[2])];
        let file = folder.file("jobs.toml", text.concat().as_bytes());
        let mut command = program(&["--jobs", &file, "--progress", "plain"]);
        let said = succeeds(&command.env("RUST_LOG", log).output().unwrap());
        let count = |name: &str| {
            let start = format!("{line}{name}: ");
            // A warning may have a time stamp before it.
            let lines = said
                .lines()
                .map(|told| told.find("Z warning: ").map_or(told, |at| &told[at + 2..]));
            let lines = lines.filter(|told| told.starts_with(&start));
            lines.filter(|told| told.contains("a session was lost: ")).count()
        };
        assert_eq!(["twice", "once", "never"].map(count), [2, 1, 0], "{said}");
    }
}

/// With many copies, --json-lines is an error, because the lines describe a single copy.
#[test]
fn many_copies_have_no_lines() {
    let folder = Folder::new();
    let (image, copy) = (folder.file("image", b"x"), folder.path("copy"));
    let file = folder.file("jobs.toml", job("one", &image, &copy).as_bytes());
    let output = block_copy(&["--jobs", &file, "--json-lines", "--progress", "none"]);
    assert_eq!(output.status.code(), Some(2));
    let told = object(&output);
    assert_eq!((&told["jobs"], &told["kind"]), (&Value::Array(vec![]), &"caller".into()));
    assert!(told["error"].as_str().unwrap().contains("take --json"), "{told}");
    assert!(!fs::exists(&copy).unwrap());
}

#[test]
fn a_file_that_makes_no_sense_begins_nothing() {
    let folder = Folder::new();
    let (image, copy) = (folder.file("image", b"x"), folder.path("copy"));
    let text = job("good", &image, &copy) + "[[job]]\nsource = \"a\"\n";
    let file = folder.file("jobs.toml", text.as_bytes());
    let none = ["--progress", "none"];
    fails(&block_copy(&[&["--jobs", &*file], &none[..]].concat()), 2, &["line 5: missing field"]);
    fails(&block_copy(&[&["--jobs", "/nowhere"], &none[..]].concat()), 2, &["/nowhere"]);
    assert!(!fs::exists(&copy).unwrap());
}
