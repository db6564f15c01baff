//! Generates the manual page of a program, and completions for shells.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::help::Manual;

const COMPLETIONS: &str = "--completions";
const MAN: &str = "--man";

/// Returns the text to print instead of the normal work, if the only option is `--man` or `--completions`.
pub(crate) fn printed(
    command: &Command,
    texts: &Manual,
    arguments: &[OsString],
) -> Option<Vec<u8>> {
    let arguments: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
    match arguments?.as_slice() {
        [MAN] => page(command, texts).ok(),
        [COMPLETIONS, shell] => completions(command, shell),
        [one] => completions(command, one.strip_prefix(COMPLETIONS)?.strip_prefix('=')?),
        _ => None,
    }
}

/// Returns the manual page. Subcommands have no separate pages: each is a section of this page.
fn page(command: &Command, texts: &Manual) -> io::Result<Vec<u8>> {
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for subcommand in command.get_subcommands() {
        section_of_subcommand(command.get_name(), subcommand, &mut page)?;
    }
    for (title, rows) in [
        ("EXIT STATUS", texts.exit_status),
        ("ENVIRONMENT", texts.environment),
        ("FILES", texts.files),
    ] {
        rows_section(title, rows, &mut page)?;
    }
    examples(texts, &mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

fn section_of_subcommand(above: &str, command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let name = format!("{above} {}", command.get_name());
    let man = Man::new(command.clone().bin_name(&name));
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
    // The headings of a subcommand become subsections of its section.
    for line in text.lines() {
        match line.strip_prefix(".SH ") {
            Some(title) => writeln!(page, ".SS {title}")?,
            None => writeln!(page, "{line}")?,
        }
    }
    for subcommand in command.get_subcommands() {
        section_of_subcommand(&name, subcommand, page)?;
    }
    Ok(())
}

fn rows_section(title: &str, rows: &[(&str, &str)], page: &mut Vec<u8>) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, meaning) in rows {
        roff.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
    }
    roff.to_writer(page)
}

fn examples(texts: &Manual, page: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    for (what, line) in texts.examples {
        roff.control("PP", []).text([roman(format!("{what}:"))]);
        roff.control("RS", ["4"]).control("EX", []);
        for line in line.lines() {
            roff.text([bold(line)]);
        }
        roff.control("EE", []).control("RE", []);
    }
    roff.to_writer(page)
}

fn completions(command: &Command, shell: &str) -> Option<Vec<u8>> {
    let shell = Shell::from_str(shell, false).ok()?;
    let (mut command, mut script) = (command.clone(), Vec::new());
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    Some(script)
}
