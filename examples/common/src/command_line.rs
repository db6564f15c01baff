//! Reads the command line.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::exit;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error};
use serde_json::Value;

use crate::failure::{self, Kind};
use crate::help::{self, Documented};
use crate::manual;
use crate::output::{eprint_lines, json_line};
use crate::standard_output;

/// Exit status of a wrong command line.
const WRONG: i32 = 2;

/// Parses the command line. If it is wrong, reports the error on standard error and ends the process with
/// status 2. With `--json` it also writes a JSON object to standard output: `known` with the error added. It
/// writes no object if an argument is `-` or another name of standard output, which then may be meant for data.
/// The error message does not repeat URLs, since they may contain a password.
///
/// Every program also has `--man`, which prints its manual page, and `--completions SHELL`. Both end the
/// process.
#[must_use]
pub fn parse<A: Documented>(known: Value) -> A {
    let command = help::command::<A>();
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    if let Some(text) = manual::printed(&command, &A::MANUAL, &arguments) {
        exit(io::stdout().write_all(&text).map_or(1, |()| 0));
    }
    let help = asked_for_help(&command, &arguments);
    let is_short = help.as_ref().is_some_and(|words| words.iter().any(|word| word == "-h"));
    let command = if is_short { help::short(command) } else { command };
    let (again, name) = (command.clone(), command.get_name().to_owned());
    let parsed = command.try_get_matches().and_then(|matches| A::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        let may_have_data = arguments.iter().any(|argument| standard_output::is_named_by(argument));
        let arguments: Vec<_> =
            arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let is_given = |word| arguments.iter().any(|argument| argument == word);
        if !error.use_stderr() {
            error.exit();
        }
        if let Some(help) = help {
            again.get_matches_from(help);
        }
        let complaint = sentence(&without_urls(complete(error).to_string(), &arguments));
        let wants_object = is_given("--json") || is_given("--json-lines");
        if wants_object && !may_have_data {
            let object = failure::object(known, &complaint, Kind::Caller);
            // A failed write is ignored: the exit status reports the error as well.
            drop(io::stdout().write_all(json_line(&object).as_bytes()));
        }
        eprint_lines(&format!("{name}: {complaint}; see {name} --help\n"));
        exit(WRONG)
    })
}

/// Returns the command line reduced to its subcommands and its help flag, if it has a help flag. It is used if
/// the whole command line is wrong. For example, the parser rejects `--jobs --help` because a value is missing,
/// before it reaches the help flag.
fn asked_for_help(command: &Command, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    let flag = words.find(|word| *word == "--help" || *word == "-h")?;
    let (mut help, mut command) = (vec![OsString::from(command.get_name())], command);
    // Subcommands may have subcommands, so descend.
    for word in arguments.iter().take_while(|word| *word != flag) {
        if let Some(subcommand) = command.find_subcommand(word) {
            help.push(word.clone());
            command = subcommand;
        }
    }
    help.push(flag.clone());
    Some(help)
}

/// Replaces all URLs of the arguments in an error message of clap, also those in `--option=URL`.
fn without_urls(complaint: String, arguments: &[String]) -> String {
    let parts = arguments.iter().flat_map(|argument| {
        // clap may repeat the value without its option, so search for the value alone as well.
        let (option, value) = argument.split_once('=').unwrap_or_default();
        [argument, option, value]
    });
    let urls = parts.filter(|part| part.contains("://"));
    urls.fold(complaint, |complaint, url| complaint.replace(url, "iscsi://..."))
}

/// Reverses the suggested commands: clap puts the most similar one last, and the sentence shows it first.
fn complete(mut error: Error) -> Error {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
        let names = names.iter().rev().cloned().collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
    error
}

/// Returns an error message of clap as one line: its first paragraph, which says what is wrong, and its tips.
#[must_use]
pub fn sentence(complaint: &str) -> String {
    let mut paragraphs = complaint.split("\n\n").map(|paragraph| {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    let first = paragraphs.next().unwrap_or_default();
    let first = first.trim_start_matches("error:").trim_start().to_owned();
    let tips = paragraphs.filter(|paragraph| paragraph.starts_with(TIP));
    tips.fold(first, |sentence, tips| {
        tips.split(TIP)
            .map(str::trim)
            .filter(|tip| !tip.is_empty())
            .fold(sentence, |sentence, tip| sentence + "; " + tip)
    })
}

/// Prefix of a tip in error messages of clap.
const TIP: &str = "tip: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_command_is_named_first() {
        let command =
            Command::new("util").subcommands(["discard", "discover", "luns"].map(Command::new));
        let error = command.try_get_matches_from(["util", "discver"]).unwrap_err();
        let told = sentence(&complete(error).to_string());
        let known = "unrecognized subcommand 'discver'; some similar subcommands exist: 'discover', 'discard'";
        assert_eq!(told, known);
    }

    #[test]
    fn help_is_found_where_a_value_lacks_before_it() {
        let copy = Command::new("copy").subcommand(Command::new("all"));
        let command = Command::new("program").subcommand(copy);
        let help = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            asked_for_help(&command, &words)
        };
        assert_eq!(help(&["--jobs", "--help"]).unwrap(), ["program", "--help"]);
        assert_eq!(help(&["copy", "--offset", "-h"]).unwrap(), ["program", "copy", "-h"]);
        let help_of_all = ["program", "copy", "all", "--help"];
        assert_eq!(help(&["--json", "copy", "all", "--offset", "--help"]).unwrap(), help_of_all);
        assert_eq!(help(&["copy", "--offset"]), None);
        assert_eq!(help(&["--", "--help"]), None);
    }

    #[test]
    fn a_complaint_becomes_a_sentence() {
        let complaint =
            "error: these arguments are missing:\n  <A>\n  <B>\n\nUsage: copy <A> <B>\n";
        assert_eq!(sentence(complaint), "these arguments are missing: <A> <B>");
    }
}
