//! Runs a target on loopback, and the program.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use iscsi_examples_common::named_units;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use serde_json::Value;

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";
const BLOCK: u32 = 512;
pub(crate) const MIB: u64 = 1 << 20;

/// A running target with one unit, which is filled with pseudo-random bytes.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) disk: RamDisk,
}

impl Rig {
    pub(crate) async fn start(bytes: u64) -> Self {
        Self::start_with(bytes, Duration::ZERO, |_| {}).await
    }

    /// Starts a target with a unit of `bytes` bytes. Each of its responses is delayed by `delay`.
    pub(crate) async fn start_with(
        bytes: u64,
        delay: Duration,
        change: impl FnOnce(&mut TargetConfig),
    ) -> Self {
        let disk = RamDisk::new(BLOCK, bytes / u64::from(BLOCK));
        disk.fill(7);
        let mut config = TargetConfig::new(TARGET, disk.clone());
        change(&mut config);
        let target = Target::new(config);
        let server = Server::start_at(("127.0.0.1", 0), target, delay).await.unwrap();
        Self { server, disk }
    }

    /// Returns the URL of the unit.
    pub(crate) fn url(&self) -> String {
        self.at(&format!("/{TARGET}/0"))
    }

    /// Returns the URL of a path at the portal.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("iscsi://{}{path}", self.server.address())
    }

    /// Checks that the initiator has not violated the protocol, has written nothing, and has logged out.
    pub(crate) fn assert_untouched(&self) {
        let violations = self.server.with(|target| target.violations().to_vec());
        assert!(violations.is_empty(), "{violations:#?}");
        let opcodes = self.server.with(|target| {
            target.commands().iter().map(|command| command.cdb[0]).collect::<Vec<_>>()
        });
        let is_write =
            |opcode: &u8| matches!(opcode, 0x0a | 0x2a | 0x41 | 0x42 | 0x8a | 0x93 | 0xaa);
        assert!(!opcodes.iter().any(is_write), "{opcodes:02x?}");
        let untouched = RamDisk::new(BLOCK, self.disk.blocks());
        untouched.fill(7);
        assert_eq!(self.disk.first_difference(&untouched), None);
        assert_eq!(self.server.with(|target| target.sessions()), 0);
    }
}

/// Returns the command of the program, without environment variables that affect it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_link-doctor"));
    for variable in ["USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"] {
        command.env_remove(format!("LIBISCSI_CHAP_{variable}"));
    }
    command.env_remove("RUST_LOG");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn link_doctor(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Checks that the program has succeeded, and returns its standard output.
pub(crate) fn succeeds(output: &Output) -> String {
    let said = stderr(output);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    stdout(output)
}

/// Returns the JSON object that the program printed.
pub(crate) fn object(output: &Output) -> Value {
    let text = stdout(output);
    assert_eq!(text.lines().count(), 1, "{text}{}", stderr(output));
    let object = serde_json::from_str(&text).unwrap();
    assert_eq!(named_units::missing(&object), [""; 0], "{object}");
    object
}

/// Checks that the program ended with this status, and that the last line of standard error is the only error
/// message and contains all of `parts`.
pub(crate) fn complains(output: &Output, status: i32, parts: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    let complaints: Vec<_> =
        said.lines().filter_map(|line| line.strip_prefix("link-doctor: ")).collect();
    let [message] = complaints[..] else { panic!("{said}") };
    assert!(said.trim_end().ends_with(message), "{said}");
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert!(!said.contains("panicked") && !said.contains("hunter"), "{said}");
}
