//! Tables and plots of result files.
//!
//! Each result file becomes a Markdown page and its charts, as SVG files beside it. The result file and the
//! goals, if there are any, fully determine a page: the same input gives the same page, byte by byte.
//!
//! - Figures with the parameters `variant` and `send_buffer` (a number of bytes, or `auto`) form a grid. Each
//!   round-trip time has a table and a chart by send buffer. Before them, the page shows what the best static
//!   buffer gains over autotuning. With the send buffer `tuned`, the program's own tuner chose everything: this
//!   is a level to compare with.
//! - Figures with the parameter `fault` are copies through a fault: one row each, with how the copy ended.
//! - Figures with a name in the parameter `flows` are flows with a limited rate. Each has a chart over time,
//!   and the rate of each flow between scripted changes beside the expected rate.
//! - Figures with the parameter `mirror` are disks in use that QEMU mirrored: a table and a chart over time for
//!   each link and load.
//! - Figures with the parameter `failover` are of a unit with two paths: a table and bars for each load, with a
//!   row for each event.
//! - Figures with the parameter `links` are of units joined to one device: a table and a chart by the number
//!   of links, for each link and direction.
//! - Figures with the parameter `short_link` are of two initiators without a simulated link: the cost of the
//!   same requests for each, and the ratios as bars.
//! - All other figures are compared by round-trip time, for each direction, rate and loss. If they have a
//!   single round-trip time, they are compared by loss.
//! - Figures that differ only by their parameter `repetition` count once, with their median.
//! - Goals come first: a row for each link and each series of figures that has a goal, with the value that it
//!   reached. A figure is judged by its rounded value, as it is printed.
//! - A figure without a `direction` is a write.
//! - A figure's `detail` may have `limit_seconds`. It is shown where nothing arrived in time.

mod axis;
mod bars;
mod buffers;
mod cell;
mod chart;
mod failover;
mod faults;
mod flows;
mod frame;
mod goals;
mod group;
mod mirror;
mod names;
mod page;
mod part;
mod render;
#[cfg(test)]
mod sample;
mod section;
mod short_link;
mod spread;
mod stripe;
mod style;
mod svg;
mod table;
mod text;

use std::path::{Path, PathBuf};

use crate::error::Error;

pub use page::Page;

/// Draws each result file into the folder `out`: `NAME.md` and its charts `NAME-....svg`. Makes the folder if
/// it is missing, and replaces files of these names. Returns the paths that were written, each page before its
/// charts.
///
/// # Errors
/// [`Error::Usage`] if two pages have the same name, before anything is written. [`Error::File`] if the folder
/// or a file cannot be written.
pub fn draw(pages: &[Page], out: &Path) -> Result<Vec<PathBuf>, Error> {
    let names: Vec<_> = pages.iter().map(|page| page.name.as_str()).collect();
    let twice = group::group(&names, |name| name).into_iter().find(|(_, same)| same.len() > 1);
    if let Some((name, _)) = twice {
        return Err(Error::Usage(format!("two result files are called {name}")));
    }
    std::fs::create_dir_all(out).map_err(|cause| file_error(out, cause))?;
    let files = pages.iter().flat_map(page::files);
    files.map(|(name, text)| write(&out.join(name), &text)).collect()
}

fn write(path: &Path, text: &str) -> Result<PathBuf, Error> {
    std::fs::write(path, text).map_err(|cause| file_error(path, cause))?;
    Ok(path.to_owned())
}

fn file_error(path: &Path, cause: std::io::Error) -> Error {
    Error::File { path: path.to_owned(), cause }
}
