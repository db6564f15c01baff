//! Checks that each rule of `docs/rules.txt` has a test that names it, or a reason for having none. Checks that
//! `docs/conformance.md` is the table of the rules and their tests, and that the tests that
//! `docs/copy-tools.md` names exist.
//!
//! A test names a rule in its doc comment or in a string, for example in the violation that it expects from the
//! checker.
//!
//! `--write` writes the table.

mod copy_tools;
mod list;
mod named;
mod page;
mod source;

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use proc_macro2::TokenStream;

use crate::copy_tools::Tests;
use crate::list::List;
use crate::page::Page;

/// Folders with tests.
const FOLDERS: [&str; 3] = ["crates", "examples", "lab"];
const LIST: &str = "docs/rules.txt";
const PAGE: &str = "docs/conformance.md";
const COPY_TOOLS: &str = "docs/copy-tools.md";

fn main() -> ExitCode {
    let write = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [word] if word == "--write" => true,
        _ => {
            let _ = writeln!(io::stderr(), "usage: rules [--write]");
            return ExitCode::from(2);
        }
    };
    match check(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").as_path(), write) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "rules: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks the rules, the tests and the table of the project. Returns whether there is no complaint.
fn check(project: &Path, write: bool) -> Result<bool, Box<dyn Error>> {
    let text = fs::read_to_string(project.join(LIST))?;
    let list = List::read(&text).map_err(|error| format!("{LIST}: {error}"))?;
    let (mut page, mut tests) = (Page::new(&list), Tests::new());
    for folder in FOLDERS {
        for file in sources(project, folder)? {
            let text = fs::read_to_string(project.join(&file))?;
            let tokens: TokenStream =
                text.parse().map_err(|error| format!("{}: {error}", file.display()))?;
            let (file, found) = (file.to_string_lossy().into_owned(), source::tests(tokens));
            page.add(&file, &found);
            tests.extend(found.into_iter().map(|test| (file.clone(), test.name)));
        }
    }
    let (mut complaints, markdown) = (page.complaints(), page.markdown());
    let tools = copy_tools::complaints(&fs::read_to_string(project.join(COPY_TOOLS))?, &tests);
    complaints.extend(tools.into_iter().map(|complaint| format!("{COPY_TOOLS}: {complaint}")));
    if write {
        fs::write(project.join(PAGE), markdown)?;
    } else if fs::read_to_string(project.join(PAGE)).unwrap_or_default() != markdown {
        complaints.push(format!("{PAGE} is not what `cargo run -p rules -- --write` writes"));
    }
    let mut out = io::stdout().lock();
    for complaint in &complaints {
        writeln!(out, "{complaint}")?;
    }
    Ok(complaints.is_empty())
}

/// Returns the Rust files below a folder of the project, as paths within the project.
fn sources(project: &Path, folder: &str) -> io::Result<Vec<PathBuf>> {
    let mut sources = vec![];
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(project.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(path);
            }
        }
    }
    Ok(sources)
}
