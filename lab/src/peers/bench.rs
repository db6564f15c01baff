//! What peers find ready.

use std::path::PathBuf;

/// What lies ready for a measurement.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Where the built programs are.
    pub tree: PathBuf,
    /// What is to be written, for those who write a file.
    pub image: PathBuf,
    /// Where to read to.
    pub copy: PathBuf,
    /// Whether the kernel is the lab's own.
    pub in_guest: bool,
}
