//! The manual page of a program, and what shells need to complete its command line.

use std::ffi::OsString;

use clap::builder::{EnumValueParser, Resettable};
use clap::{Arg, ArgAction, Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

const COMPLETIONS: &str = "--completions";
const MAN: &str = "--man";

/// The options that print them, each of which stands alone.
pub(crate) fn options() -> [Arg; 2] {
    // They belong to none of the groups that a program has.
    let option = |name: &'static str| {
        Arg::new(name).long(name).exclusive(true).help_heading(Resettable::Reset)
    };
    [
        option("completions")
            .value_name("SHELL")
            .value_parser(EnumValueParser::<Shell>::new())
            .help("Prints what SHELL needs to complete the command line; stands alone"),
        option("man").action(ArgAction::SetTrue).help("Prints the manual page; stands alone"),
    ]
}

/// What is to be printed in the place of any work, if one of the options stands alone.
pub(crate) fn printed(command: &Command, arguments: &[OsString]) -> Option<Vec<u8>> {
    let arguments: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
    match arguments?.as_slice() {
        [MAN] => manual(command),
        [COMPLETIONS, shell] => completions(command, shell),
        [one] => completions(command, one.strip_prefix(COMPLETIONS)?.strip_prefix('=')?),
        _ => None,
    }
}

fn manual(command: &Command) -> Option<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).ok()?;
    Some(page)
}

fn completions(command: &Command, shell: &str) -> Option<Vec<u8>> {
    let shell = Shell::from_str(shell, false).ok()?;
    let (mut command, mut script) = (command.clone(), Vec::new());
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    Some(script)
}
