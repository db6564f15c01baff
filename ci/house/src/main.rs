//! Checks that there is no circle between the files of a crate, and that no arrow leads up between crates or layers.
//!
//! There is an arrow from a file to another file if it uses a name that the other file defines, by `use` or
//! by a path in the code. The arrow leads through re-exports to the file with the definition. A re-export
//! from below is an arrow only if the file itself uses the name. A parent that calls its child, by
//! `child::name` or by an import, uses it like any other file. Method calls have no paths, so they make no
//! arrow: only the import of their type does. Code that is compiled for tests only does not count.
//!
//! Types stay small: the methods of a type are in at most three files, and a struct has at most 12 fields,
//! except those that `exceptions.rs` lists with a reason. Implementations of traits from outside the workspace
//! do not count.
//!
//! `--large` prints the types above a limit. `--draw` prints each crate as floors: each file is one floor
//! above the highest file that it uses.

mod check;
mod exceptions;
mod graph;
mod items;
mod modules;
mod rules;
mod sizes;
mod source;
mod tokens;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use crate::check::Crate;
use crate::exceptions::EXCEPTIONS;
use crate::modules::{Modules, Texts};
use crate::sizes::Large;

fn main() -> ExitCode {
    let shows = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => Shows::Complaints,
        [word] if word == "--draw" => Shows::Floors,
        [word] if word == "--large" => Shows::Large,
        _ => {
            let _ = writeln!(io::stderr(), "usage: house [--draw | --large]");
            return ExitCode::from(2);
        }
    };
    match check(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").as_path(), shows) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "house: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Selects the output besides the complaints.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shows {
    Complaints,
    Floors,
    Large,
}

/// Checks every crate below the project's folder. Returns whether there is no complaint.
fn check(project: &Path, shows: Shows) -> Result<bool, Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    let mut well = true;
    for folder in members(&fs::read_to_string(project.join("Cargo.toml"))?) {
        let texts = texts(&project.join(&folder))?;
        let mut types = BTreeMap::new();
        for root in roots(&texts) {
            let modules =
                Modules::read(&texts, &root).map_err(|error| format!("{folder}: {error}"))?;
            types.extend(modules.types());
            let house = Crate::new(&folder, &root, &modules);
            if shows == Shows::Floors {
                house.draw(&texts, &mut out)?;
            }
            for complaint in house.complaints() {
                well = false;
                writeln!(out, "{complaint}")?;
            }
        }
        let large = sizes::large(&types);
        if shows == Shows::Large {
            print_large(&folder, &large, &mut out)?;
        }
        for complaint in sizes::complaints(&folder, &large, EXCEPTIONS) {
            well = false;
            writeln!(out, "{complaint}")?;
        }
    }
    Ok(well)
}

/// Prints the types of a crate that exceed a limit, with the reasons from the exceptions.
fn print_large(folder: &str, large: &[Large], out: &mut impl Write) -> io::Result<()> {
    for of in large {
        let Large { file, name, what, count } = of;
        let reason = sizes::entry(folder, of, EXCEPTIONS).map_or("", |(_, reason)| reason);
        writeln!(out, "{count:>3} {what:?} {name} {folder}/{file} {reason}")?;
    }
    Ok(())
}

/// Returns the folders of the workspace's members.
fn members(manifest: &str) -> Vec<String> {
    let list = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns every Rust file below a crate's folder, by its path from there with slashes.
fn texts(folder: &Path) -> io::Result<Texts> {
    let mut texts = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts
                    .insert(path.to_string_lossy().into_owned(), fs::read_to_string(entry.path())?);
            }
        }
    }
    Ok(texts)
}

/// Returns the files from which the compiler starts: libraries, programs and benches, but neither tests nor
/// examples.
fn roots(texts: &Texts) -> Vec<String> {
    let is_root = |file: &&String| match file.split('/').collect::<Vec<_>>().as_slice() {
        ["lib.rs"] | ["src", "lib.rs" | "main.rs"] | ["benches", _, "main.rs"] => true,
        ["benches", file] => file.ends_with(".rs"),
        _ => false,
    };
    texts.keys().filter(is_root).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_from_the_manifest() {
        assert_eq!(
            members("[workspace]\nmembers = [\n  \"a/b\",\n  \"c\",\n]\nexclude = [\"d\"]"),
            ["a/b", "c"]
        );
    }

    #[test]
    fn roots_are_told_from_modules() {
        let files = [
            "src/lib.rs",
            "src/main.rs",
            "src/disk/lib.rs",
            "tests/cli/main.rs",
            "benches/wan/main.rs",
        ];
        let texts = files.map(|file| (file.to_owned(), String::new())).into();
        assert_eq!(roots(&texts), ["benches/wan/main.rs", "src/lib.rs", "src/main.rs"]);
    }
}
