//! How a send buffer, Nagle's algorithm and the length of sends decide over a long link: writes to
//! LIO in the lab, by round-trip time. See `benches/README.md`.
//!
//! ```text
//! launch:  finds an environment for the lab, and goes there with what the result file begins with
//! agent:   the lab's own part, which this program carries, makes link and target ...
//! work:    ... and starts this program with LAB_URL: for each point a stream of writes, and samples
//! ```
#![allow(missing_docs, clippy::print_stdout, clippy::cast_precision_loss, reason = "a bench")]

mod grid;
mod launch;
mod meter;
mod stream;
mod system;
mod trouble;
mod variables;
mod work;

use std::env;
use std::process::ExitCode;

use trouble::Trouble;

fn main() -> ExitCode {
    match start() {
        Ok(status) => ExitCode::from(status),
        Err(trouble) => {
            eprintln!("wan: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<u8, Trouble> {
    let words: Vec<_> = env::args().skip(1).collect();
    if let [word, job] = words.as_slice()
        && word == "agent"
    {
        return launch::runtime()?
            .block_on(iscsi_lab::agent::carry_out(job))
            .map_err(Trouble::from);
    }
    let grid = grid::Grid::from_variables(|name| env::var(name).ok())?;
    match env::var("LAB_URL") {
        Ok(url) => work::measure(&url, &grid),
        Err(_) => launch::go(&grid, &words),
    }
}
