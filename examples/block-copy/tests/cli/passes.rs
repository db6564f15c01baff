//! Tests of copies of a source in use, in passes over the ranges that a command lists.

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Folder, Rig, block_copy, block_copy_with_input, ends, fails, object, pattern, program, signal,
    succeeds, until,
};

const LEN: usize = 1 << 20;
const KIB: usize = 1024;

/// A disk image, and a script. Each call of the script executes its next step, which changes the image and
/// lists the changes.
struct InUse {
    folder: Folder,
    image: String,
}

impl InUse {
    /// Creates the image and the script. `steps` are lines of shell code. Calls after the last step change
    /// nothing.
    fn new(steps: &[String]) -> Self {
        let folder = Folder::new();
        let image = folder.file("image", &pattern(LEN));
        folder.file("count", b"0");
        let cases = steps.iter().enumerate().map(|(at, step)| format!("{at}) {step} ;;\n"));
        let script = format!(
            "cd {}\necho changed >>log\nn=$(cat count)\necho $((n + 1)) >count\ncase $n in\n{}esac\n",
            folder.path(""),
            cases.collect::<String>()
        );
        folder.file("changed", script.as_bytes());
        Self { folder, image }
    }

    /// Returns the names of the commands that have run, in order.
    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Returns the current data of the image.
    fn now(&self) -> Vec<u8> {
        fs::read(&self.image).unwrap()
    }

    /// Returns the arguments of a copy to this destination. The script runs in a shell that the program starts.
    fn arguments(&self, destination: &str, more: &[&str]) -> Vec<String> {
        let script = format!(". {}", self.folder.path("changed"));
        let first = [&*self.image, destination, "--ranges-from", &*script];
        first.iter().chain(more).map(|&word| word.to_owned()).collect()
    }

    fn copy(&self, destination: &str, more: &[&str]) -> Output {
        let arguments = self.arguments(destination, more);
        block_copy(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn start(&self, destination: &str, more: &[&str]) -> Child {
        let arguments = self.arguments(destination, more);
        let mut command = program(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Returns a command for --before-last-pass.
    fn freeze(&self) -> String {
        format!("echo freeze >>{}; echo the guest is paused", self.folder.path("log"))
    }
}

/// Returns a step that writes `len` KiB at offset `at` KiB, and lists the range.
fn write(at: usize, len: usize) -> String {
    format!(
        "tr '\\0' \"$n\" </dev/zero | dd of=image bs=1024 iflag=fullblock seek={at} count={len} \
         conv=notrunc status=none; echo {} {}",
        at * KIB,
        len * KIB
    )
}

fn steps(of: &[(usize, usize)]) -> Vec<String> {
    of.iter().map(|(at, len)| write(*at, *len)).collect()
}

/// Options that allow no downtime: passes are repeated until nothing is written to the source any more.
const NO_DOWNTIME: [&str; 2] = ["--downtime", "0"];

#[tokio::test(flavor = "multi_thread")]
async fn pass_by_pass_until_the_last_which_nobody_disturbs() {
    let rig = Rig::start(512, LEN as u64).await;
    let in_use = InUse::new(
        &[steps(&[(64, 64), (100, 16)]), vec![":".to_owned()], steps(&[(3, 4)])].concat(),
    );
    let freeze = in_use.freeze();
    let more = ["--before-last-pass", &freeze, "--verify", "--json"];
    let output = in_use.copy(&rig.url(), &[&more[..], &NO_DOWNTIME].concat());
    let said = succeeds(&output);
    assert!(rig.disk.holds(0, &in_use.now()));
    assert_eq!(in_use.log(), ["changed", "changed", "changed", "freeze", "changed"]);
    let report = object(&output);
    assert_eq!((&report["bytes"], &report["verified"]), (&LEN.into(), &true.into()));
    assert_eq!(report["source_changed"], false, "not since the last pass began");
    let passes = report["passes"].as_array().unwrap();
    let all = |name: &str| passes.iter().map(|pass| pass[name].clone()).collect::<Vec<_>>();
    assert_eq!(all("number"), [1, 2, 3, 4]);
    assert_eq!(all("bytes"), [LEN, 64 * KIB, 16 * KIB, 4 * KIB]);
    assert_eq!(all("last"), [false, false, false, true]);
    assert_eq!(all("bytes_dirtied"), [json!(64 * KIB), json!(16 * KIB), json!(0), Value::Null]);
    assert_eq!(all("verdict"), [json!("again"), json!("again"), json!("last"), Value::Null]);
    assert_eq!(report["bytes_sent"], LEN + 84 * KIB);
    // The output of the command of --before-last-pass is on standard error.
    for part in [
        "the guest is paused",
        "pass 1: 1 MiB, 1 MiB of it sent, in ",
        "; 64 KiB were changed meanwhile, ",
        "pass 4, the last: 4 KiB, ",
        "read back equal, in 4 passes",
    ] {
        assert!(said.contains(part), "{said:?} does not say {part:?}");
    }
    assert!(!said.contains("warning") && !said.contains("no program was kept"), "{said}");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_is_kept_from_writing_that_is_said() {
    let rig = Rig::start(512, LEN as u64).await;
    let in_use = InUse::new(&steps(&[(64, 64)]));
    let output = in_use.copy(&rig.url(), &["--downtime", "1000s", "--json-lines"]);
    let said = succeeds(&output);
    assert!(
        said.contains("no program was kept from writing to the source during the last pass"),
        "{said}"
    );
    assert!(rig.disk.holds(0, &in_use.now()));
    assert_eq!(in_use.log(), ["changed"], "the first forecast was good enough");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended: Vec<_> = lines.iter().filter_map(|line| line.get("pass_ended")).collect();
    assert_eq!(ended.len(), 2);
    assert_eq!((&ended[0]["verdict"], &ended[1]["last"]), (&"last".into(), &true.into()));
    assert_eq!(lines.last().unwrap()["passes"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_does_not_converge_is_finished_or_left_in_use() {
    let rig = Rig::start(512, LEN as u64).await;
    let busy = steps(&[(64, 64), (128, 60), (200, 60), (300, 60)]);
    let in_use = InUse::new(&busy);
    let freeze = in_use.freeze();
    let more = [&["--json", "--before-last-pass", &freeze], &NO_DOWNTIME[..]].concat();
    let output = in_use.copy(&rig.url(), &more);
    let said = succeeds(&output);
    for part in [
        "warning: not converging: the last pass took",
        "written to about as fast",
        "allow a longer --downtime",
    ] {
        assert!(said.contains(part), "{said:?} does not say {part:?}");
    }
    assert_eq!(in_use.log(), ["changed", "changed", "freeze", "changed"]);
    assert!(rig.disk.holds(0, &in_use.now()));
    let passes = &object(&output)["passes"];
    assert_eq!(passes[1]["verdict"], "not converging");
    assert!(passes[1]["why"].as_str().unwrap().contains("is the goal"), "{passes}");

    let in_use = InUse::new(&busy);
    let freeze = in_use.freeze();
    let more = [&["--json", "--before-last-pass", &freeze], &NO_DOWNTIME[..]].concat();
    let stop = [&more[..], &["--when-not-converging", "stop"]].concat();
    let output = in_use.copy(&rig.url(), &stop);
    let report = object(&output);
    assert_eq!((output.status.code(), &report["kind"]), (Some(4), &"caller".into()), "{report}");
    assert!(report["error"].as_str().unwrap().starts_with("not converging: "), "{report}");
    assert_eq!(in_use.log(), ["changed", "changed"], "the guest goes on");
    assert_eq!(report["passes"].as_array().unwrap().len(), 3);
    assert!(rig.disk.holds(0, &in_use.now()), "what was told is copied");
    // A copy of no ranges, which freezes the source: its command lists the changes since the stopped copy, and
    // the last pass copies them.
    let nothing = in_use.folder.file("nothing", b"");
    let more = [&["--ranges", &nothing, "--before-last-pass", &in_use.freeze()], &NO_DOWNTIME[..]];
    succeeds(&in_use.copy(&rig.url(), &more.concat()));
    assert!(rig.disk.holds(0, &in_use.now()));
    assert_eq!(in_use.log().last().unwrap(), "changed");

    let in_use = InUse::new(&busy);
    let output =
        in_use.copy(&rig.url(), &[&["--max-passes", "1", "--json"], &NO_DOWNTIME[..]].concat());
    assert!(succeeds(&output).contains("no further pass may follow on number 1"));
    assert_eq!(object(&output)["passes"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_or_prints_nonsense_ends_the_copy() {
    let rig = Rig::start(512, LEN as u64).await;
    let quiet = ["--progress", "none"];
    for (step, part) in [
        (
            "echo 0 512; exit 3",
            "--ranges-from: the command ended with status 3; 1 MiB of 1 MiB were written and",
        ),
        ("echo some words", "--ranges-from: line 1: write the first byte and the length"),
        ("echo 1048576 1", "--ranges-from: line 1: it ends at byte 1048577"),
        ("echo '[{]'", "--ranges-from: it is not JSON"),
        (
            "echo nbd://127.0.0.1:1/x b0",
            "--ranges-from: line 1: it names no dirty bitmap; write the URI of an export",
        ),
        (
            "echo 'nbd+unix:///x?socket=/missing qemu:dirty-bitmap:b0'",
            "--ranges-from: no NBD server listens at /missing: there is no such socket; check the address",
        ),
        ("kill -9 $$", "--ranges-from: the command was ended by a signal: 9"),
    ] {
        let in_use = InUse::new(&[step.to_owned()]);
        fails(
            &in_use.copy(&rig.url(), &quiet),
            1,
            &[part, "flushed, the destination is incomplete"],
        );
        // The list of changes that the command should have printed is lost, so everything must be copied again.
        let in_use = InUse::new(&[step.to_owned()]);
        let map = in_use.folder.path("map");
        let output = in_use.copy(&rig.url(), &[&quiet[..], &["--checkpoint", &map]].concat());
        fails(&output, 1, &[part, "so the same command with --resume copies all again"]);
        assert!(!is_done(&map));
    }
    let in_use = InUse::new(&[]);
    let map = in_use.folder.path("map");
    let more = [&quiet[..], &["--before-last-pass", "exit 5", "--checkpoint", &map]].concat();
    let parts = ["--before-last-pass: the command ended with status 5", "with --resume goes on"];
    fails(&in_use.copy(&rig.url(), &more), 1, &parts);
    assert!(is_done(&map));
}

/// Returns whether a checkpoint records any range as done.
fn is_done(map: &str) -> bool {
    fs::read_to_string(map).unwrap().lines().any(|line| line.ends_with('+'))
}

/// Returns whether a process has ended, even if its parent has not waited for it.
fn is_gone(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z') || stat.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_the_command_and_what_it_has_started() {
    let rig = Rig::start(512, LEN as u64).await;
    let step = "trap '' TERM; sleep 1000 & echo $$ $! >ids.new; mv ids.new ids; wait";
    let in_use = InUse::new(&[step.to_owned()]);
    let ids = in_use.folder.path("ids");
    let mut child = in_use.start(&rig.url(), &["--progress", "none"]);
    until(&mut child, || Path::new(&ids).exists()).await;
    signal(&child, "-TERM");
    let output = ends(child).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("block-copy: interrupted; 1 MiB of 1 MiB were written and flushed"),
        "{said}"
    );
    let ids = fs::read_to_string(&ids).unwrap();
    for id in ids.split_whitespace() {
        for _ in 0..10_000 {
            if is_gone(id) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(is_gone(id), "{id} is still there");
    }
}

/// The command has printed changes, and the program is killed before it receives them. The next run copies
/// everything, with these changes.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_command_runs_nothing_old_stays() {
    let rig = Rig::start(512, LEN as u64).await;
    // Writes zeros over bytes that the first pass has copied.
    let zeros = "dd if=/dev/zero of=image bs=64K seek=1 count=1 conv=notrunc status=none";
    let killing = format!("{zeros}; echo 65536 65536; kill -9 $PPID");
    let in_use = InUse::new(&[killing, write(300, 4)]);
    let (freeze, map) = (in_use.freeze(), in_use.folder.path("map"));
    let more = ["--before-last-pass", &freeze, "--checkpoint", &map, "--progress", "none"];
    let output = in_use.copy(&rig.url(), &more);
    assert_eq!(output.status.code(), None);
    assert!(!rig.disk.holds(0, &in_use.now()) && !is_done(&map));
    let resume = ["--resume", "--verify", "--json", "--destination-is-zero"];
    let output = in_use.copy(&rig.url(), &[&more[..], &resume].concat());
    succeeds(&output);
    assert!(rig.disk.holds(0, &in_use.now()));
    assert_eq!(
        (&object(&output)["bytes_resumed"], &object(&output)["verified"]),
        (&0.into(), &true.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_a_later_pass_only_the_rest_is_copied_again() {
    // With this delay the second pass is long enough that it can be killed midway.
    let rig = Rig::start_far(512, LEN as u64, Duration::from_millis(100)).await;
    let in_use = InUse::new(&[write(256, 512), write(300, 4)]);
    let (freeze, map) = (in_use.freeze(), in_use.folder.path("map"));
    let slow =
        ["--io-size", "16k", "--queue-depth", "2", "--sessions", "1", "--flush-bytes", "64K"];
    let more = ["--before-last-pass", &freeze, "--checkpoint", &map, "--progress", "none"];
    let more = [&more[..], &slow].concat();
    let mut child = in_use.start(&rig.url(), &more);
    until(&mut child, || rig.written() >= (LEN + 128 * KIB) as u64).await;
    signal(&child, "-KILL");
    assert_eq!(ends(child).await.status.code(), None);
    assert_eq!(in_use.log(), ["changed"]);
    assert!(is_done(&map));
    // The checkpoint of a copy of a source in use does not match a copy of a source that is not in use.
    let plain =
        [&*in_use.image, &rig.url(), "--checkpoint", &map, "--resume", "--progress", "none"];
    fails(&block_copy(&plain), 2, &["it is of the source", "in use, 1048576 bytes"]);

    let output =
        in_use.copy(&rig.url(), &[&more[..], &["--resume", "--verify", "--json"]].concat());
    succeeds(&output);
    assert!(rig.disk.holds(0, &in_use.now()));
    let report = object(&output);
    let resumed = report["bytes_resumed"].as_u64().unwrap() as usize;
    assert!((LEN - 512 * KIB..LEN).contains(&resumed), "{resumed}");
    assert_eq!((&report["bytes"], &report["verified"]), (&LEN.into(), &true.into()));
}

#[test]
fn what_cannot_be_had_of_a_source_in_use_is_refused() {
    let in_use = InUse::new(&[]);
    let copy = in_use.folder.path("copy");
    fails(&in_use.copy(&copy, &["--verify", "--progress", "none"]), 2, &["add --before-last-pass"]);
    fails(&in_use.copy("-", &["--progress", "none"]), 2, &["a stream is copied once"]);
    let stream = ["-", &copy, "--ranges-from", "true", "--progress", "none"];
    fails(&block_copy_with_input(&stream, b"x"), 2, &["a stream is copied once"]);
    let output = in_use.copy(&copy, &["--ranges", "/missing", "--progress", "none"]);
    fails(&output, 1, &["ranges /missing"]);
    assert!(in_use.log().is_empty());
}

/// The destination may be a file. The digests describe the data after the last pass.
#[test]
fn to_a_file_with_digests() {
    let in_use = InUse::new(&steps(&[(64, 64), (100, 16)]));
    let (copy, digests) = (in_use.folder.path("copy"), in_use.folder.path("digests"));
    let more = ["--digests", &digests, "--verify=digests", "--progress", "none", "--json"];
    let output = in_use.copy(&copy, &[&more[..], &NO_DOWNTIME].concat());
    assert_eq!(succeeds(&output), "");
    assert!(fs::read(&copy).unwrap() == in_use.now());
    assert_eq!(object(&output)["verified"], true);
    // The digests cover all blocks, so another copy of the same source sends nothing.
    let again = [&in_use.image, &copy, "--digests", &digests, "--progress", "none", "--json"];
    assert_eq!(object(&block_copy(&again))["bytes_sent"], 0);
}
