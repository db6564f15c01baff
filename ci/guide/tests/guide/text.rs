//! Tests of the text between commands, and of commands that cannot run here.

use std::path::Path;

use block_copy::JobsArgs;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _};
use guide::invocation::invocations;
use guide::page::Run;
use guide::text::{anchors, links, options};

use crate::folder::{self, SUMMARY};
use crate::shell::PROGRAMS;

/// Returns the arguments that a program takes when it is started with `words`.
fn command(program: &str, words: &[String]) -> Command {
    match program {
        "block-copy" if words.iter().any(|word| word == "--jobs") => JobsArgs::command(),
        "block-copy" => block_copy::Args::command(),
        "block-serve" => block_serve::Args::command(),
        "iscsi-util" => iscsi_util::Args::command(),
        _ => link_doctor::Args::command(),
    }
}

/// Returns the long options of a command and of its subcommands.
fn long_options(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_long());
    let own: Vec<_> = own.map(str::to_owned).collect();
    own.into_iter().chain(command.get_subcommands().flat_map(long_options)).collect()
}

#[test]
fn command_lines_that_do_not_run_are_right() {
    for name in folder::names() {
        let page = folder::page(&name);
        for step in page.steps.iter().filter(|step| matches!(step.run, Run::Ignored(_))) {
            for program in PROGRAMS {
                let line = step.line;
                let found = invocations(&step.command, program)
                    .unwrap_or_else(|| panic!("{name}.md, line {line}: the quotes do not match"));
                for words in found {
                    let parsed = command(program, &words).try_get_matches_from(&words);
                    let error = parsed.err().filter(|error| {
                        !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
                    });
                    assert!(error.is_none(), "{name}.md, line {line}: {}", error.unwrap());
                }
            }
        }
    }
}

#[test]
fn options_that_pages_name_exist() {
    let mut known: Vec<_> =
        PROGRAMS.iter().flat_map(|program| long_options(&command(program, &[]))).collect();
    known.extend(long_options(&JobsArgs::command()));
    known.extend(["help", "man", "completions"].map(str::to_owned));
    for name in folder::names() {
        for option in options(&folder::page(&name).text) {
            assert!(known.iter().any(|known| known == option), "{name}.md names --{option}");
        }
    }
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let summary = folder::source(SUMMARY);
    let mut listed: Vec<_> =
        links(&summary).into_iter().map(|link| link.trim_end_matches(".md").to_owned()).collect();
    listed.sort_unstable();
    assert_eq!(listed, folder::names());
}

#[test]
fn links_lead_somewhere() {
    let names = folder::names();
    for name in &names {
        let text = folder::page(name).text;
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { name.as_str() } else { file.trim_end_matches(".md") };
            let is_page =
                file.is_empty() || Path::new(file).extension().is_some_and(|end| end == "md");
            assert!(is_page && names.iter().any(|name| name == to), "{name}.md: no page {file}");
            let there = anchors(&folder::page(to).text);
            let leads = anchor.is_empty() || there.iter().any(|known| known == anchor);
            assert!(leads, "{name}.md: {to}.md has no heading #{anchor}");
        }
    }
}
