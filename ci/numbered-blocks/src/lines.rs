//! Lines for people and scripts.

use std::io::{self, Write};

/// Prints a line, whole: others may print at the same time.
pub(crate) fn say(line: &str) {
    // Nobody who could be told is left when there is no standard output.
    drop(io::stdout().write_all(format!("{line}\n").as_bytes()));
}

/// The same on standard error.
pub(crate) fn complain(line: &str) {
    drop(io::stderr().write_all(format!("{line}\n").as_bytes()));
}
