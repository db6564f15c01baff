//! Where the programs of a mirror meet.

use std::path::PathBuf;

/// A Unix socket in the lab's own folder.
pub(super) fn socket(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/lab-{name}.sock"))
}
