//! Tests of copies in several processes that share one tree of traffic classes. One process, the keeper, has
//! the tree, and grants each request of the copies in the other processes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};

use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::control::{Orders, connect, start};
use crate::support::{
    Folder, Rig, block_copy, ends, fails, object, pattern, program, signal, succeeds,
};

/// Bytes of the source. At 1 kbit/s the copy takes hours.
const LEN: usize = 4 << 20;
const CHUNK: usize = 4096;
/// Option that avoids reads of the destination, so that only written data are counted.
const ASK_NOTHING: &str = "--destination-is-zero";

/// Starts a process that keeps classes. Returns the process, a connection to it, and the path of its socket.
async fn keeper(folder: &Folder, classes: &str) -> (Child, Orders, String) {
    let (file, socket) = (folder.file("classes.toml", classes.as_bytes()), folder.path("keeper"));
    let child = start(&["--jobs", &file, "--control", &socket]);
    let orders = connect(&socket).await;
    (child, orders, socket)
}

/// Starts a copy of a pattern to a unit. `socket` is that of the keeper.
fn copy(folder: &Folder, rig: &Rig, socket: &str, options: &[&str]) -> Child {
    let image = folder.path("image");
    // Another copy may be reading the image: a file that is written again is short for a moment.
    if !Path::new(&image).exists() {
        folder.file("image", &pattern(LEN));
    }
    let both = [&image, &rig.url(), "--io-size", "4k", "--share", socket];
    start(&[&both[..], options].concat())
}

/// Ends a keeper by SIGTERM, and checks that it ends without an error.
async fn is_told_to_end(keeper: Child) {
    signal(&keeper, "-TERM");
    let output = ends(keeper).await;
    succeeds(&output);
    assert_eq!(object(&output)["error"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_a_tree_that_counts_what_they_write() {
    let rigs = [Rig::start(512, LEN as u64).await, Rig::start(512, LEN as u64).await];
    let folder = Folder::new();
    let classes = "[class.one]\nrate = \"1mbit\"\nceil = \"off\"\n";
    let (keeper, mut orders, socket) = keeper(&folder, classes).await;
    let copies = [
        copy(&folder, &rigs[0], &socket, &[ASK_NOTHING, "--class", "one"]),
        copy(&folder, &rigs[1], &socket, &[ASK_NOTHING]),
    ];
    for copy in copies {
        let output = ends(copy).await;
        succeeds(&output);
        assert_eq!(object(&output)["bytes"], LEN);
    }
    let status = orders.until_status(|status| status["clients"] == Value::Array(vec![])).await;
    assert_eq!(rigs.each_ref().map(Rig::written), [LEN as u64; 2]);
    assert_eq!(status["classes"]["one"]["sent_bytes"], LEN);
    assert_eq!(status["all"]["sent_bytes"], 2 * LEN);
    for rig in rigs {
        assert!(rig.disk.holds(0, &pattern(LEN)));
        rig.assert_clean();
    }
    is_told_to_end(keeper).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_reaches_what_waits_in_another_process() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (keeper, mut orders, socket) = keeper(&folder, "rate = \"1kbit\"").await;
    let own = folder.path("control");
    let copy = copy(&folder, &rig, &socket, &["--control", &own]);
    let waits = |status: &Value| {
        let client = &status["clients"][0];
        client["sent_bytes"].as_u64() > Some(0) && client["waiting_requests"].as_u64() > Some(0)
    };
    let status = orders.until_status(waits).await;
    let client = &status["clients"][0];
    assert_eq!((&client["pid"], &client["class"]), (&copy.id().into(), &Value::Null));
    assert!(client["sent_bytes"].as_u64().unwrap() < LEN as u64, "{status}");

    // Commands on the copy's own socket may change the copy, but not the keeper's tree.
    let mut own = connect(&own).await;
    let status = own.give("status");
    assert_eq!(status["share"]["connected"], true);
    assert_eq!(status["share"]["ceil_bit_per_s"], 1000);
    let refusal = own.give("rate off")["error"].as_str().unwrap().to_owned();
    assert!(refusal.contains("another process keeps the classes"), "{refusal}");
    assert_eq!(own.give("pause")["jobs"][0]["paused"], true);
    orders.until_status(|status| status["clients"][0]["waiting_requests"] == 0).await;
    assert_eq!(own.give("resume")["jobs"][0]["paused"], false);

    assert_eq!(orders.give("rate off")["all"]["rate_bit_per_s"], Value::Null);
    succeeds(&ends(copy).await);
    assert!(rig.disk.holds(0, &pattern(LEN)));
    is_told_to_end(keeper).await;
}

/// A byte that is copied between two units is charged once. The source keeps to the ceil of the class, also
/// after a change.
#[tokio::test(flavor = "multi_thread")]
async fn between_units_each_byte_is_taken_once() {
    let (from, to) = (Rig::start(512, LEN as u64).await, Rig::start(512, LEN as u64).await);
    from.disk.write(0, &pattern(LEN));
    let folder = Folder::new();
    let (keeper, mut orders, socket) = keeper(&folder, "rate = \"1kbit\"").await;
    let (source, destination) = (from.url(), to.url());
    let options = [ASK_NOTHING, "--io-size", "4k", "--share", &socket];
    let copy = start(&[&[&*source, &destination], &options[..]].concat());
    let sent = |status: &Value| status["all"]["sent_bytes"].as_u64();
    let status = orders.until_status(|status| sent(status) >= Some(CHUNK as u64)).await;
    assert!(sent(&status) < Some(2 * CHUNK as u64), "{status}");
    orders.give("rate off");
    succeeds(&ends(copy).await);
    assert!(to.disk.holds(0, &pattern(LEN)));
    assert_eq!(orders.give("status")["all"]["sent_bytes"], LEN);
    is_told_to_end(keeper).await;
}

/// When a process is killed, the keeper drops its waiting requests.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_waits_no_more() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (keeper, mut orders, socket) = keeper(&folder, "rate = \"1kbit\"").await;
    let copy = copy(&folder, &rig, &socket, &[]);
    orders.until_status(|status| status["clients"][0]["sent_bytes"].as_u64() > Some(0)).await;
    signal(&copy, "-KILL");
    ends(copy).await;
    let status = orders.until_status(|status| status["clients"] == Value::Array(vec![])).await;
    let sent = status["all"]["sent_bytes"].as_u64().unwrap();
    assert_eq!(orders.give("rate off")["all"]["sent_bytes"], sent, "nothing waits any more");
    is_told_to_end(keeper).await;
}

/// Starts a copy from a pipe, and waits until its first chunk is written and counted by the keeper.
async fn piped(
    rig: &Rig,
    [keeper, own]: [&str; 2],
    options: &[&str],
    orders: &mut Orders,
) -> (Child, ChildStdin) {
    let url = rig.url();
    let both = ["-", &url, "--io-size", "4k", "--share", keeper, "--control", own];
    let mut command =
        program(&[&both[..], &["--progress", "plain", ASK_NOTHING], options].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut copy = command.spawn().unwrap();
    let mut input = copy.stdin.take().unwrap();
    input.write_all(&pattern(LEN)[..CHUNK]).unwrap();
    orders.until_status(|status| status["clients"][0]["sent_bytes"] == CHUNK).await;
    (copy, input)
}

/// Kills a keeper, and waits until the copy has noticed. Returns the copy's status of the shared class.
async fn is_killed(keeper: Child, copy: &mut Orders) -> Value {
    signal(&keeper, "-KILL");
    ends(keeper).await;
    let lost = copy.until_status(|status| status["share"]["connected"] == false).await;
    lost["share"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_keeper_is_killed_goes_on_at_what_it_is_guaranteed() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let classes = "[class.one]\nrate = \"1gbit\"\nceil = \"2gbit\"\n";
    let (keeper, mut orders, socket) = keeper(&folder, classes).await;
    let own = folder.path("control");
    let (copy, mut input) = piped(&rig, [&socket, &own], &["--class", "one"], &mut orders).await;
    let mut own = connect(&own).await;
    assert_eq!(is_killed(keeper, &mut own).await["alone_bit_per_s"], 1_000_000_000);
    input.write_all(&pattern(LEN)[CHUNK..]).unwrap();
    drop(input);
    let said = succeeds(&ends(copy).await);
    let parts = ["is gone; the copy goes on at 1 Gbit/s until the classes are kept again"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    assert!(rig.disk.holds(0, &pattern(LEN)));
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_to_which_nothing_is_guaranteed_waits_for_the_next_keeper() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let classes = "rate = \"1gbit\"\n[class.others]\nrate = \"1gbit\"\n";
    let (first, mut orders, socket) = keeper(&folder, classes).await;
    let own = folder.path("control");
    let (copy, mut input) = piped(&rig, [&socket, &own], &[], &mut orders).await;
    let mut own = connect(&own).await;
    assert_eq!(is_killed(first, &mut own).await["alone_bit_per_s"], 0);
    // The rate without a keeper is 0, so the copy takes a part of these bytes and waits. The rest stays in the
    // pipe until the second keeper grants the requests.
    let writer = spawn_blocking(move || input.write_all(&pattern(LEN)[CHUNK..]).unwrap());
    let (second, mut orders, _) = keeper(&folder, classes).await;
    writer.await.unwrap();
    let said = succeeds(&ends(copy).await);
    assert!(said.contains("so it waits until the classes are kept again"), "{said}");
    assert_eq!(orders.give("status")["all"]["sent_bytes"], LEN - CHUNK);
    assert!(rig.disk.holds(0, &pattern(LEN)));
    is_told_to_end(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_shared_is_told_before_anything_is_copied() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let classes = "[class.one]\n[class.two]\nparent = \"one\"\n";
    let (keeper, _, socket) = keeper(&folder, classes).await;
    let (image, url, nowhere) = (folder.file("image", b"x"), rig.url(), folder.path("nowhere"));
    let share = |path: &str, options: &[&str]| {
        let both = [&image, &*url, "--progress", "none", "--share", path];
        block_copy(&[&both[..], options].concat())
    };
    fails(&share(&nowhere, &[]), 75, &["share ", "nowhere: no process keeps classes there; start"]);
    fails(&share(&image, &[]), 75, &["share ", "no process keeps classes there"]);
    fails(&share(&socket, &["--class", "three"]), 2, &["there is no class \"three\""]);
    fails(&share(&socket, &["--class", "one"]), 2, &["there are classes below \"one\""]);
    let files = [&image, "/dev/null", "--progress", "none", "--share", &socket];
    fails(&block_copy(&files), 2, &["--share holds for what is read from units"]);
    for wrong in [["--share", "p", "--rate-limit", "1mbit"], ["--class", "one", "--io-size", "4k"]]
    {
        let output = block_copy(&[&[&image, &*url], &wrong[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(rig.written(), 0);
    is_told_to_end(keeper).await;
}

/// A line that is no message of the protocol ends the connection, and does not affect other clients.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_from_one_that_shares_ends_its_connection() {
    let folder = Folder::new();
    let (keeper, mut orders, socket) = keeper(&folder, "").await;
    for (lines, told) in [
        ("rate off\n", "is nothing that a shared class knows"),
        ("take 1 99999999999\n", "is nothing that a shared class knows"),
        ("take 2 1\ntake 2 1\n", "ids rise"),
        (&"x".repeat(5000), "is nothing that a shared class knows"),
    ] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(format!("share\n{lines}").as_bytes()).unwrap();
        let mut said = String::new();
        // The keeper closes the connection before it has read all bytes, so the connection is reset.
        _ = stream.read_to_string(&mut said);
        let mut answers = said.lines().filter(|line| !line.contains("granted"));
        assert!(answers.next().is_some_and(|line| line.contains("limits")), "{said}");
        assert!(answers.next().is_some_and(|line| line.contains(told)), "{said}");
    }
    orders.until_status(|status| status["clients"] == Value::Array(vec![])).await;
    is_told_to_end(keeper).await;
}
