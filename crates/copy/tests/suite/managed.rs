//! The example `managed`, as its user runs it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{Folder, pattern};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LEN: usize = 4 << 20;

/// Beside the folder of the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/managed");
    assert!(program.exists(), "build it: cargo build -p iscsi-copy --example managed");
    program
}

fn start(folder: &Folder, rate: &[&str]) -> Child {
    let ends = ["image", "copy", "map"].map(|name| folder.path(name));
    let mut command = Command::new(program());
    command.args(ends).args(rate).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn it_is_stopped_in_order_and_goes_on_at_another_rate() {
    let folder = Folder::new();
    fs::write(folder.path("image"), pattern(LEN)).unwrap();
    let mut child = start(&folder, &["1000000"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().unwrap(), "0 bytes were copied before");
    let has_come_further =
        |line: &String| line.ends_with(&format!(" of {LEN} bytes")) && !line.starts_with("0 ");
    lines.find(has_come_further).unwrap();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let last = lines.last().unwrap();
    assert!(child.wait().unwrap().success(), "{last}");
    let stopped = last.strip_prefix("stopped after ").and_then(|rest| rest.split_once(' '));
    let stopped: usize = stopped.unwrap().0.parse().unwrap();
    assert!(stopped > 0 && stopped < LEN, "{stopped}");

    // One byte a second would take weeks; the user lifts the limit.
    let mut child = start(&folder, &["1"]);
    child.stdin.take().unwrap().write_all(b"fast\n0\n").unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(text.starts_with(&format!("{stopped} bytes were copied before\n")), "{text}");
    assert!(text.contains("\"fast\" is not a number"), "{text}");
    assert!(text.ends_with(&format!("copied {LEN} bytes, flushed\n")), "{text}");
    assert!(fs::read(folder.path("copy")).unwrap() == pattern(LEN));
}
