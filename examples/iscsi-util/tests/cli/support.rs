//! Runs a target on loopback, and the program.

use std::process::{Command, Output, Stdio};

use iscsi_examples_common::named_units;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use serde_json::Value;

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";
pub(crate) const BLOCK: u32 = 512;
pub(crate) const MIB: u64 = 1 << 20;

/// A running target with one empty unit.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) disk: RamDisk,
}

impl Rig {
    pub(crate) async fn start(bytes: u64) -> Self {
        Self::start_with(bytes, |_| {}).await
    }

    pub(crate) async fn start_with(bytes: u64, change: impl FnOnce(&mut TargetConfig)) -> Self {
        let disk = RamDisk::new(BLOCK, bytes / u64::from(BLOCK));
        let mut config = TargetConfig::new(TARGET, disk.clone());
        change(&mut config);
        Self { server: Server::start(Target::new(config)).await.unwrap(), disk }
    }

    /// Returns the URL of the unit.
    pub(crate) fn url(&self) -> String {
        self.at(&format!("/{TARGET}/0"))
    }

    /// Returns the URL of a path at the portal.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("iscsi://{}{path}", self.server.address())
    }

    /// Checks that the initiator has not violated the protocol, and has logged out.
    pub(crate) fn assert_clean(&self) {
        let violations = self.server.with(|target| target.violations().to_vec());
        assert!(violations.is_empty(), "{violations:#?}");
        assert_eq!(self.server.with(|target| target.sessions()), 0);
    }

    /// Returns the number of commands with this operation code that the target has received.
    pub(crate) fn seen(&self, code: u8) -> usize {
        self.server.with(|target| {
            target.commands().iter().filter(|command| command.cdb[0] == code).count()
        })
    }
}

/// Returns the command of the program, without environment variables that affect it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iscsi-util"));
    for variable in ["USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"] {
        command.env_remove(format!("LIBISCSI_CHAP_{variable}"));
    }
    command.env_remove("RUST_LOG");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn iscsi_util(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// Runs the program, and checks that it succeeds. Returns its standard output.
pub(crate) fn text_of(arguments: &[&str]) -> String {
    let output = iscsi_util(arguments);
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
    stdout(&output)
}

/// Runs the program with `--json`, and checks that it succeeds. Returns its JSON object.
pub(crate) fn json_of(arguments: &[&str]) -> Value {
    let output = iscsi_util(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
    let object = object(&output);
    assert_eq!((&object["command"], &object["complete"]), (&arguments[0].into(), &true.into()));
    assert_eq!((&object["error"], &object["kind"]), (&Value::Null, &Value::Null));
    object
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the JSON object that the program printed.
pub(crate) fn object(output: &Output) -> Value {
    let text = stdout(output);
    assert_eq!(text.lines().count(), 1, "{text}{}", stderr(output));
    let object = serde_json::from_str(&text).unwrap();
    assert_eq!(named_units::missing(&object), [""; 0], "{object}");
    object
}

/// Runs the program with these arguments, and again with `--json`. Checks that both runs fail with this status
/// and with a single message that contains all of `parts`.
pub(crate) fn refuses(arguments: &[&str], status: i32, kind: &str, parts: &[&str]) {
    let output = iscsi_util(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let message = said.strip_prefix("iscsi-util: ").unwrap_or_else(|| panic!("{said}"));
    assert_eq!(message.lines().count(), 1, "{said}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {message:?} does not say {part:?}");
    }
    assert!(!said.contains("panicked") && !said.contains("hunter"), "{said}");

    let output = iscsi_util(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    let failure = object(&output);
    assert_eq!(failure["command"], arguments[0]);
    assert_eq!((&failure["complete"], &failure["kind"]), (&false.into(), &kind.into()));
    let error = failure["error"].as_str().unwrap();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}
