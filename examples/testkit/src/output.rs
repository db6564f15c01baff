//! Reads and checks the output of a program.

use std::process::Output;

use iscsi_examples_common::named_units;
use serde_json::Value;

/// Returns standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the JSON object that is alone on standard output. Checks that the name of each number has its unit.
pub fn object(output: &Output) -> Value {
    let text = stdout(output);
    assert_eq!(text.lines().count(), 1, "{text}{}", stderr(output));
    let object = serde_json::from_str(&text).unwrap();
    assert_eq!(named_units::missing(&object), [""; 0], "{object}");
    object
}

/// Checks that a message contains all of `parts`, and neither a panic nor the password of the tests.
pub fn assert_message(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert!(!message.contains("panicked") && !message.contains("hunter"), "{message}");
}

/// Checks that the program ended with this exit status, and printed nothing but a single message, on standard
/// error, that begins with the name of the program and contains all of `parts`.
#[track_caller]
pub fn assert_single_message(program: &str, output: &Output, status: i32, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert_eq!(stdout(output), "", "something was printed on standard output");
    let message = text
        .strip_prefix(program)
        .and_then(|text| text.strip_prefix(": "))
        .unwrap_or_else(|| panic!("{text:?}"));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_message(message, parts);
}
