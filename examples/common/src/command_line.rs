//! What the command line says.

use std::env;
use std::io::{self, Write};

use clap::Parser;
use serde_json::Value;

use crate::failure::{self, Kind};

/// Reads the command line. A wrong one ends the process with status 2 and tells why on standard
/// error; where it asks for `--json`, also as an object on standard output, with what is `known`.
#[must_use]
pub fn parse<A: Parser>(known: Value) -> A {
    A::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && env::args_os().any(|argument| argument == "--json") {
            let object = failure::object(known, &sentence(&error.to_string()), Kind::Caller);
            // The status tells it as well.
            drop(writeln!(io::stdout(), "{object}"));
        }
        error.exit()
    })
}

/// The first paragraph of a complaint, which says all, as one line.
fn sentence(complaint: &str) -> String {
    let first = complaint.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.trim_start_matches("error:").split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_becomes_a_sentence() {
        let complaint =
            "error: these arguments are missing:\n  <A>\n  <B>\n\nUsage: copy <A> <B>\n";
        assert_eq!(sentence(complaint), "these arguments are missing: <A> <B>");
    }
}
