//! Prints lines for users and scripts.

use std::io::{self, Write};

/// Prints a line on standard output in one piece, since other threads may print at the same time.
pub(crate) fn print_line(line: &str) {
    // The failure is ignored: if standard output does not work, there is no place to report it.
    drop(io::stdout().write_all(format!("{line}\n").as_bytes()));
}

/// Prints a line on standard error in one piece.
pub(crate) fn complain(line: &str) {
    drop(io::stderr().write_all(format!("{line}\n").as_bytes()));
}
