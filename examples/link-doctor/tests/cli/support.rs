//! Runs a target with pseudo-random data, and the program.

use std::process::{Command, Output};
use std::time::Duration;

use iscsi_examples_testkit as testkit;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;

pub(crate) use iscsi_examples_testkit::{Rig, TARGET, ends, object, signal, stderr, stdout};

const BLOCK: u32 = 512;
pub(crate) const MIB: u64 = 1 << 20;

/// Starts a target with a unit of `bytes` bytes.
pub(crate) async fn start(bytes: u64) -> Rig {
    start_with(bytes, Duration::ZERO, |_| {}).await
}

/// Starts a target with a unit of `bytes` bytes. Each of its responses is delayed by `delay`.
pub(crate) async fn start_with(
    bytes: u64,
    delay: Duration,
    change: impl FnOnce(&mut TargetConfig),
) -> Rig {
    let rig = Rig::start_at("127.0.0.1", BLOCK, bytes, delay, change).await;
    rig.disk.fill(7);
    rig
}

/// Checks that the initiator has not violated the protocol, has written nothing, and has logged out.
pub(crate) fn assert_untouched(rig: &Rig) {
    rig.assert_logged_out();
    let codes = rig.operation_codes();
    let is_write = |code: &u8| matches!(code, 0x0a | 0x2a | 0x41 | 0x42 | 0x8a | 0x93 | 0xaa);
    assert!(!codes.iter().any(is_write), "{codes:02x?}");
    let untouched = RamDisk::new(BLOCK, rig.disk.blocks());
    untouched.fill(7);
    assert_eq!(rig.disk.first_difference(&untouched), None);
}

/// Returns the command of the program, without environment variables that affect it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    testkit::command(env!("CARGO_BIN_EXE_link-doctor"), arguments)
}

/// Runs the program to its end.
pub(crate) fn link_doctor(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// Checks that the program has succeeded, and returns its standard output.
pub(crate) fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(output));
    stdout(output)
}

/// Checks that the program ended with this status, and that the last line of standard error is the only error
/// message and contains all of `parts`.
#[track_caller]
pub(crate) fn complains(output: &Output, status: i32, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    let messages: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("link-doctor: ")).collect();
    let [message] = messages[..] else { panic!("{text}") };
    assert!(text.trim_end().ends_with(message), "{text}");
    testkit::assert_message(message, parts);
}
