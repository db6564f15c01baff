//! Reads the pages from the guide's folder.

use std::fs;
use std::path::{Path, PathBuf};

use guide::page::Page;

/// The table of contents, which is not a page.
pub(crate) const SUMMARY: &str = "SUMMARY";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src")
}

/// Returns the text of a page, by its name without `.md`.
pub(crate) fn source(name: &str) -> String {
    let path = folder().join(format!("{name}.md"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a page, by its name without `.md`.
pub(crate) fn page(name: &str) -> Page {
    Page::parse(&source(name)).unwrap_or_else(|error| panic!("{name}.md: {error}"))
}

/// Returns the names of all pages, without `.md`, in alphabetical order.
pub(crate) fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let mut names: Vec<_> =
        pages.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.retain(|name| name != SUMMARY);
    names.sort_unstable();
    names
}
