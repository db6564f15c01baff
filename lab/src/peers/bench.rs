//! Programs and files for a measurement.

use std::path::PathBuf;

/// Programs and files for a measurement.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Folder of the built programs.
    pub tree: PathBuf,
    /// File to write, for programs that write one.
    pub image: PathBuf,
    /// File to read to.
    pub copy: PathBuf,
    /// Whether the lab has a kernel of its own.
    pub in_guest: bool,
}
