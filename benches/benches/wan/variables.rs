//! Environment variables by which the two halves of the bench speak to each other.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use iscsi_lab::provenance;

/// The variable that holds the result file before its first figure.
pub(crate) const RESULT: &str = "WAN_RESULT";

/// Names another result file. Where it lies is no part of what was measured.
pub(crate) const OUT: &str = "WAN_OUT";

/// Where the figures go.
pub(crate) fn result_path() -> PathBuf {
    let chosen = env::var_os(OUT).filter(|path| !path.is_empty());
    chosen.map_or_else(
        || provenance::workspace().join("target/lab/wan.json"),
        |path| called_from(&path),
    )
}

/// A path as the caller means it: cargo starts a bench in its package's folder, but leaves the
/// shell's own word for where it was called.
fn called_from(path: &OsStr) -> PathBuf {
    let folder = env::var_os("PWD").map(PathBuf::from).or_else(|| env::current_dir().ok());
    folder.unwrap_or_default().join(path)
}
