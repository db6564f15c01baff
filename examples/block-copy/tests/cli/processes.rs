//! Tests of two processes: concurrently, and one after the other was killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use iscsi_testkit::fault::Fault;

use crate::support::{
    Folder, Rig, block_copy, ends, fails, object, pattern, program, signal, succeeds, until,
    within_time_limit,
};

const LEN: usize = 4 << 20;
const QUIET: [&str; 2] = ["--progress", "none"];

fn start(arguments: &[&str]) -> Child {
    let mut command = program(&[arguments, &QUIET].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Starts a copy that runs until it is killed, and waits until it has begun.
async fn slow(rig: &Rig, source: &str, more: &[&str]) -> Child {
    let url = rig.url();
    let mut child = start(&[&[source, &url, "--rate-limit", "64kbit"], more].concat());
    until(&mut child, || rig.written() > 0).await;
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_writes_no_other_one_does() {
    let rigs = [Rig::start(512, LEN as u64).await, Rig::start(512, LEN as u64).await];
    let folder = Folder::new();
    let source = folder.file("image", &pattern(LEN));
    let [map, digests, copy] = ["map", "digests", "copy"].map(|name| folder.path(name));
    let [url, other] = [rigs[0].url(), rigs[1].url()];
    let by_name = url.replacen("127.0.0.1", "localhost", 1);
    let kept = ["--checkpoint", &*map, "--digests", &digests];
    let first = slow(&rigs[0], &source, &kept).await;
    let holder = format!("process {} of this host writes there", first.id());
    for (what, arguments) in [
        ("destination: ", &[&*source, &url][..]),
        ("destination: ", &[&*source, &by_name]),
        ("--checkpoint: ", &[&source, &other, "--checkpoint", &map, "--resume"]),
        ("--digests: ", &[&source, &copy, "--digests", &digests]),
        ("destination: ", &[&source, &map]),
        ("--digests: ", &[&url, "--verify=digests", "--digests", &digests]),
    ] {
        let output = block_copy(&[arguments, &QUIET].concat());
        fails(&output, 75, &[what, &holder]);
    }
    assert!(!fs::exists(&copy).unwrap() && rigs[1].written() == 0);
    // Several processes may read the same source.
    succeeds(&block_copy(&[&[&*source, &copy][..], &QUIET].concat()));
    signal(&first, "-KILL");
    ends(first).await;
    let resumed = [&[&*source, &url][..], &kept, &["--resume"], &QUIET].concat();
    succeeds(&block_copy(&resumed));
    assert!(rigs[0].disk.holds(0, &pattern(LEN)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_one_writer_too() {
    let rig = Rig::start(512, LEN as u64).await;
    rig.disk.write(0, &pattern(LEN));
    let folder = Folder::new();
    let (copy, link) = (folder.path("copy"), folder.path("link"));
    let url = rig.url();
    let mut first = start(&[&url, &copy, "--rate-limit", "64kbit", "--io-size", "4k"]);
    until(&mut first, || fs::metadata(&copy).is_ok_and(|file| file.len() > 0)).await;
    fs::hard_link(&copy, &link).unwrap();
    let source = folder.file("image", b"x");
    let output = block_copy(&[&source, &link, "--progress", "none"]);
    fails(&output, 75, &["destination: ", &format!("process {} of", first.id())]);
    signal(&first, "-KILL");
    ends(first).await;
    succeeds(&block_copy(&[&source, &link, "--progress", "none"]));
    assert_eq!(fs::read(&copy).unwrap(), b"x");
}

/// Returns a command that waits without output until it is ended, and writes its process id to a file.
fn waits(folder: &Folder, name: &str, prefix: &str) -> String {
    let path = folder.path(name);
    format!("{prefix} sh -c 'echo $$ >{path}.new; mv {path}.new {path}; exec sleep 1000'")
}

async fn id_in(child: &mut Child, path: &str) -> String {
    until(child, || Path::new(path).exists()).await;
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Returns whether a process has ended, even if its parent has not waited for it.
fn is_gone(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z') || stat.is_empty()
}

/// A command whose copy was killed ends as well: it would take changes that no copy receives.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_a_process_that_is_killed_ends_with_it() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(LEN));
    // Two processes: the command itself, and a process that the command has started.
    let command = waits(&folder, "child", "") + " & " + &waits(&folder, "command", "");
    let mut first = start(&[&source, &rig.url(), "--ranges-from", &command]);
    let mut ids = Vec::new();
    for name in ["child", "command"] {
        ids.push(id_in(&mut first, &folder.path(name)).await);
    }
    signal(&first, "-KILL");
    first.wait().unwrap();
    let gone = async {
        while !ids.iter().all(|id| is_gone(id)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(within_time_limit(gone).await.is_some(), "{ids:?} are still there");
    let again = [&*source, &rig.url(), "--ranges-from", "true", "--progress", "none"];
    succeeds(&block_copy(&again));
}

/// A command that has left its process group outlives its killed copy. Until it ends, no other copy of the
/// destination begins.
#[tokio::test(flavor = "multi_thread")]
async fn no_copy_begins_while_the_command_of_another_one_lives_on() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(LEN));
    let command = waits(&folder, "command", "exec setsid");
    let mut first = start(&[&source, &rig.url(), "--ranges-from", &command]);
    let id = id_in(&mut first, &folder.path("command")).await;
    let killed = first.id();
    signal(&first, "-KILL");
    // The command keeps standard error open, so wait only for the exit of the process.
    first.wait().unwrap();
    assert!(!is_gone(&id));
    let written = rig.written();
    let output = block_copy(&[&*source, &rig.url(), "--ranges-from", "true", "--progress", "none"]);
    let still = format!("a command that process {killed} has started still runs");
    let is_ended = Command::new("kill").arg(&id).status().unwrap().success();
    fails(&output, 75, &["--ranges-from: ", &still, "end it"]);
    assert!(is_ended && rig.written() == written);
    let gone = async {
        while !is_gone(&id) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(within_time_limit(gone).await.is_some());
    succeeds(&block_copy(&[&*source, &rig.url(), "--ranges-from", "true", "--progress", "none"]));
}

/// A process that a command leaves running on purpose, for instance a server of a bitmap, does not prevent the
/// next copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_leave_a_server_behind() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(LEN));
    // The program runs the command twice, so only the first run of the command starts the server.
    let started = folder.path("started");
    let server = waits(&folder, "server", "setsid");
    let server = format!("mkdir {started} 2>/dev/null || exit 0; {server} >/dev/null 2>&1 &");
    let url = rig.url();
    let more = ["--ranges-from", &*server, "--before-last-pass", "true", "--progress", "none"];
    succeeds(&block_copy(&[&[&*source, &url][..], &more].concat()));
    let server = folder.path("server");
    let there = async {
        while !Path::new(&server).exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(within_time_limit(there).await.is_some());
    succeeds(&block_copy(&[&*source, &url, "--ranges-from", "true", "--progress", "none"]));
    let id = fs::read_to_string(&server).unwrap();
    assert!(!is_gone(id.trim()));
    Command::new("kill").arg(id.trim()).status().unwrap();
}

/// Writes that a process has sent before it was killed are not executed after the writes of the next process.
#[tokio::test(flavor = "multi_thread")]
async fn late_writes_of_a_process_that_was_killed_are_ended() {
    // Longer than the test: the writes are in flight until the next process ends them.
    let late = Duration::from_secs(3600);
    for option in ["--digests", "--checkpoint"] {
        let rig = Rig::start_with(512, LEN as u64, |config| {
            config.faults.push(Fault::execute_late(2048..4096, late).times(1));
        })
        .await;
        let folder = Folder::new();
        let mut image = pattern(LEN);
        let (source, kept, url) = (folder.file("image", &image), folder.path("kept"), rig.url());
        let mut first = start(&[&source, &url, option, &kept]);
        until(&mut first, || rig.server.with(|target| target.put_off_commands()) > 0).await;
        signal(&first, "-KILL");
        ends(first).await;
        let sessions = fs::read_to_string(&kept).unwrap();
        assert!(sessions.contains("# sessions: iqn."), "{sessions}");
        if option == "--digests" {
            image[1 << 20..2 << 20].fill(9);
            folder.file("image", &image);
        }
        let more: &[&str] = if option == "--checkpoint" { &["--resume"] } else { &[] };
        let again = [&[&*source, &url, option, &kept, "--json"], more, &QUIET[..]].concat();
        let output = block_copy(&again);
        succeeds(&output);
        assert!(object(&output)["bytes_sent"].as_u64() > Some(0));
        assert!(rig.disk.holds(0, &image));
        assert_eq!(rig.server.with(|target| target.put_off_commands()), 0, "{option}");
        // The process has logged out, so the next one has no session to end.
        let text = fs::read_to_string(&kept).unwrap();
        let last = text.lines().rfind(|line| line.starts_with("# se"));
        assert!(last.is_none_or(|line| line == "# settled"), "{text}");
        rig.assert_clean();
    }
}
