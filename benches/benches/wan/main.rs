//! Measures the effect of the send buffer, Nagle's algorithm and the length of sends on writes to LIO over a
//! long link, by round-trip time. The link and LIO are in the lab. See `benches/README.md`.
//!
//! ```text
//! launch:  on the host: finds an environment for the lab, and starts this program in it as the agent
//! agent:   in the lab: creates the link and the target, and starts this program again with LAB_URL
//! work:    in the lab: writes a stream for each point, takes samples, and writes the result file
//! ```
#![allow(missing_docs, clippy::print_stdout, clippy::cast_precision_loss, reason = "a bench")]

mod grid;
mod launch;
mod meter;
mod stream;
mod system;
mod variables;
mod work;

use std::env;
use std::process::ExitCode;

use grid::Trouble;

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
