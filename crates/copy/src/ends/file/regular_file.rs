//! The parts of a regular file's name that stay the same when its path changes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::UNIX_EPOCH;

/// Returns the number of a file in its file system, and the number of that.
pub(crate) fn place(metadata: &Metadata) -> String {
    format!("file {:#x} of device {:#x}", metadata.ino(), metadata.dev())
}

/// Returns the birth time of a file; not every file system has one.
pub(crate) fn made(metadata: &Metadata) -> Option<String> {
    let made = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("made {}.{:09}", made.as_secs(), made.subsec_nanos()))
}
