//! Environment variables that configure the process in the lab, and the path of the result file.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use iscsi_lab::provenance;

/// Variable with the result file as JSON, without figures.
pub(crate) const RESULT: &str = "WAN_RESULT";

/// Variable with the path of another result file. The path is not part of the results.
pub(crate) const OUT: &str = "WAN_OUT";

/// Returns the path of the result file.
pub(crate) fn result_path() -> PathBuf {
    let chosen = env::var_os(OUT).filter(|path| !path.is_empty());
    chosen.map_or_else(
        || provenance::workspace().join("target/lab/wan.json"),
        |path| called_from(&path),
    )
}

/// Resolves a path against the caller's directory. cargo starts a bench in the folder of its package, but the
/// shell's PWD stays.
fn called_from(path: &OsStr) -> PathBuf {
    let folder = env::var_os("PWD").map(PathBuf::from).or_else(|| env::current_dir().ok());
    folder.unwrap_or_default().join(path)
}
