//! Builds the guide as a book of HTML pages, by mdBook. From the project's folder:
//! `cargo run --manifest-path ci/book/Cargo.toml -- docs/guide target/guide`.
//!
//! `ci/guide` checks that links lead somewhere, and that the commands of the pages do what the pages say.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use mdbook_driver::MDBook;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [source, destination] = arguments.as_slice() else {
        anyhow::bail!("usage: book SOURCE DESTINATION");
    };
    let destination = env::current_dir()?.join(destination);
    let pages = build(source, &destination)?;
    println!("{pages} pages: {}", destination.join("index.html").display());
    Ok(())
}

/// Builds the book. Returns the number of pages: each chapter has one.
fn build(source: &Path, destination: &Path) -> anyhow::Result<usize> {
    let mut book = MDBook::load(source).with_context(|| format!("{}", source.display()))?;
    book.config.build.build_dir = destination.to_owned();
    book.build()?;
    let chapters = book.book.chapters().filter_map(|chapter| chapter.path.as_ref());
    let mut pages = 0;
    for chapter in chapters {
        let page = destination.join(chapter.with_extension("html"));
        ensure!(page.is_file(), "{} has no page", chapter.display());
        pages += 1;
    }
    ensure!(pages > 0, "{} has no chapters", source.display());
    Ok(pages)
}
