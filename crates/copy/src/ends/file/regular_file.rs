//! What makes a regular file the same one, whatever its path is by now.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::UNIX_EPOCH;

/// The number of a file in its file system.
pub(crate) fn place(metadata: &Metadata) -> String {
    format!("file {:#x} of device {:#x}", metadata.ino(), metadata.dev())
}

/// When a file was made; not every file system knows.
pub(crate) fn made(metadata: &Metadata) -> Option<String> {
    let made = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("made {}.{:09}", made.as_secs(), made.subsec_nanos()))
}
