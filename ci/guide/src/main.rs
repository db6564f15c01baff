//! Writes the page of the guide that is made from the source code.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    if env::args().skip(1).ne(["--write-messages".to_owned()]) {
        let _ = writeln!(io::stderr(), "usage: guide --write-messages");
        return ExitCode::from(2);
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(guide::messages::PATH);
    match fs::write(&page, guide::messages::page()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "guide: {}: {error}", page.display());
            ExitCode::FAILURE
        }
    }
}
