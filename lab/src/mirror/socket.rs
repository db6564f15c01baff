//! The sockets of a mirror's programs.

use std::path::PathBuf;

/// Returns the path of a Unix socket in the lab's own folder.
pub(super) fn socket(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/lab-{name}.sock"))
}
