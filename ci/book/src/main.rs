//! Builds the guide as a book of HTML pages, by mdBook: `cargo run --manifest-path ci/book/Cargo.toml -- docs/guide target/guide`.
//!
//! That links lead somewhere, and that the commands of the pages do what they say, is the work of `ci/guide`.

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

/// Builds the book, and counts its pages: each chapter has one.
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
