//! Builds the help of a program, and the parts of its manual page other than the options.

pub mod check;

use std::fmt::Write;

use clap::builder::EnumValueParser;
use clap::{Arg, ArgAction, Command, Parser};
use clap_complete::Shell;

/// Headings of options. Each heading has the same meaning in all programs.
pub mod heading {
    /// Options for the source, the destination, and the part to copy.
    pub const ENDS: &str = "Source and destination";
    /// A source that is written to while it is copied.
    pub const SOURCE_IN_USE: &str = "Source in use";
    /// Sizes and numbers of requests.
    pub const TRANSFER: &str = "Transfer";
    /// Sessions, sockets, and waiting for the target.
    pub const LINK: &str = "Link";
    /// Limits of the rate.
    pub const RATE: &str = "Rate";
    /// Resumption after an interruption, and comparison.
    pub const RESUME_AND_VERIFY: &str = "Resume and verify";
    /// Progress, results and messages.
    pub const OUTPUT: &str = "Output";
    /// Passwords.
    pub const CREDENTIALS: &str = "Credentials";
    /// Options for the export that clients see, and for the clients that are admitted.
    pub const CLIENTS: &str = "Clients";
    /// Memory for reads and writes.
    pub const CACHE: &str = "Cache";
    /// Options for the part of a unit that a command uses.
    pub const RANGE: &str = "Range";
    /// Options for the kind and the duration of a measurement.
    pub const MEASUREMENT: &str = "Measurement";
    /// Persistent reservations.
    pub const RESERVATION: &str = "Reservation";
    /// Several units as one device.
    pub const VOLUME: &str = "Volume";
    /// Consent to destroy data, or to change who may use a unit.
    pub const CONFIRMATION: &str = "Confirmation";
}

/// Texts of the help and of the manual page, except the options.
#[derive(Clone, Copy, Debug)]
pub struct Manual {
    /// Descriptions of examples, each with its command. A long command is broken with a backslash before the
    /// line feed.
    pub examples: &'static [(&'static str, &'static str)],
    /// Exit statuses and their meanings.
    pub exit_status: &'static [(&'static str, &'static str)],
    /// Environment variables, and what they change.
    pub environment: &'static [(&'static str, &'static str)],
    /// Files that the program reads or writes, and what they contain.
    pub files: &'static [(&'static str, &'static str)],
}

/// A command line that has a manual page.
pub trait Documented: Parser {
    /// Texts of the manual page.
    const MANUAL: Manual;
}

/// The environment variables for the initiator's login, which every program reads.
pub const LOGIN_VARIABLE: (&str, &str) = (
    "LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD",
    "User and CHAP password of units whose URL names none. A password file is safer.",
);
/// The environment variables for mutual CHAP.
pub const TARGET_LOGIN_VARIABLE: (&str, &str) = (
    "LIBISCSI_CHAP_TARGET_USERNAME, LIBISCSI_CHAP_TARGET_PASSWORD",
    "User and password that the target must prove (mutual CHAP).",
);
/// The environment variable for the log.
pub const LOG_VARIABLE: (&str, &str) = (
    "RUST_LOG",
    "Which log messages go to standard error, as debug or iscsi_session=trace,warn. The default is warn.",
);
/// The password files.
pub const PASSWORD_FILE: (&str, &str) = (
    "password file",
    "The password is the first line, without its end; at most 4,096 bytes. It may be a pipe. \
     A file that other users may read is used with a warning.",
);

/// Returns the command line of a program, with its help texts.
#[must_use]
pub fn command<A: Documented>() -> Command {
    let manual = &A::MANUAL;
    let examples = examples(manual);
    let mut all = examples.clone();
    for (title, rows) in [
        ("Exit status", manual.exit_status),
        ("Environment", manual.environment),
        ("Files", manual.files),
    ] {
        section(&mut all, title, rows);
    }
    let command = with_negative_numbers(A::command());
    command.args(options()).after_help(examples).after_long_help(all)
}

/// Lets options accept negative numbers as values, so that the error message explains the range of the option.
fn with_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let is_option = arg.get_long().is_some() && arg.get_action().takes_values();
        if is_option { arg.allow_negative_numbers(true) } else { arg }
    });
    command.mut_subcommands(with_negative_numbers)
}

/// Options that every program has. They are allowed only as the single argument.
fn options() -> [Arg; 2] {
    let option = |name: &'static str| {
        Arg::new(name).long(name).exclusive(true).help_heading(heading::OUTPUT)
    };
    [
        option("completions")
            .value_name("SHELL")
            .value_parser(EnumValueParser::<Shell>::new())
            .help("Print the completions for SHELL, without other options"),
        option("man")
            .action(ArgAction::SetTrue)
            .help("Print the manual page, without other options"),
    ]
}

fn examples(manual: &Manual) -> String {
    let mut text = "Examples:".to_owned();
    for (what, line) in manual.examples {
        // Writing to a string cannot fail.
        let line = line.replace('\n', "\n      ");
        _ = write!(text, "\n  {what}:\n    {line}");
    }
    text
}

fn section(text: &mut String, title: &str, rows: &[(&str, &str)]) {
    if !rows.is_empty() {
        _ = write!(text, "\n\n{title}:");
    }
    for (name, meaning) in rows {
        _ = write!(text, "\n  {name}: {meaning}");
    }
}

/// Hides the possible values of options in the short help. The long help explains them.
#[must_use]
pub(crate) fn short(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let takes_values = arg.get_action().takes_values();
        if takes_values { arg.hide_possible_values(true) } else { arg }
    });
    command.mut_subcommands(short)
}
