//! Tables and plots of result files.
//!
//! Each result file becomes a page of Markdown and the charts it shows, SVG files beside it.
//! Everything comes from the file, and from the goals if there are any: the same give the same page,
//! byte by byte.
//!
//! - Figures with the parameters `variant` and `send_buffer` (a number of bytes, or `auto`) form a
//!   grid: for each round-trip time a table and a chart by send buffer, and before them what the
//!   best static buffer gains over autotuning. With the send buffer `tuned`, the program's own tuner
//!   decided about everything: a level to compare with.
//! - Figures with the parameter `fault` are copies that met one: a row each, with how it ended.
//! - Figures with a name in the parameter `flows` are flows that were ruled: a chart over time each, and what each
//!   flow had between the orders, beside what it should.
//! - Figures with the parameter `mirror` are disks in use that QEMU mirrored: a table and a chart over time for each
//!   link and load.
//! - Figures with the parameter `failover` are of a unit with two paths: for each load a table and bars, an event a row.
//! - Figures with the parameter `links` are of units as one: for each link and direction a table and a chart by the number of
//!   links.
//! - Figures with the parameter `short_link` are of two initiators without a link: what the same requests cost each, and the
//!   ratios as bars.
//! - All others are compared by round-trip time, for each direction, rate and loss; by loss where
//!   all have one round-trip time.
//! - Figures that differ only by their parameter `repetition` count once, with their median.
//! - Goals come first: a row for each link and series of figures that has one, with what it reached.
//!   A figure is judged as it is written.
//! - What does not tell its `direction` is a write.
//! - A figure's `detail` may have `limit_seconds`, which is shown where nothing arrived in time.

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

/// Draws each result file into the folder `out`, which is made if it is missing: `NAME.md` and
/// the charts `NAME-....svg` it shows. Files of these names are replaced. Returns what was
/// written, each page before its charts.
///
/// # Errors
/// [`Error::Usage`] if two pages have one name, before anything is written; [`Error::File`] if the
/// folder or a file cannot be written.
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
