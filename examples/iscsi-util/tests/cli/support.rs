//! Runs the program, and checks what it prints.

use std::process::{Command, Output};

use iscsi_examples_testkit as testkit;
use serde_json::Value;

pub(crate) use iscsi_examples_testkit::{Rig, TARGET, object, signal, stderr, stdout, until};

pub(crate) const BLOCK: u32 = 512;
pub(crate) const MIB: u64 = 1 << 20;

/// Returns the command of the program, without environment variables that affect it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    testkit::command(env!("CARGO_BIN_EXE_iscsi-util"), arguments)
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

/// Runs the program with these arguments, and again with `--json`. Checks that both runs fail with this status
/// and with a single message that contains all of `parts`.
#[track_caller]
pub(crate) fn refuses(arguments: &[&str], status: i32, kind: &str, parts: &[&str]) {
    testkit::assert_single_message("iscsi-util", &iscsi_util(arguments), status, parts);

    let output = iscsi_util(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    let failure = object(&output);
    assert_eq!(failure["command"], arguments[0]);
    assert_eq!((&failure["complete"], &failure["kind"]), (&false.into(), &kind.into()));
    let error = failure["error"].as_str().unwrap();
    testkit::assert_message(error, parts);
}
