//! Names a regular file by properties that stay the same when its path changes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::UNIX_EPOCH;

/// Returns the inode number of a file, and the device number of its file system.
pub(crate) fn place(metadata: &Metadata) -> String {
    format!("file {:#x} of device {:#x}", metadata.ino(), metadata.dev())
}

/// Returns the birth time of a file; `None` where the file system does not record it.
pub(crate) fn made(metadata: &Metadata) -> Option<String> {
    let made = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("made {}.{:09}", made.as_secs(), made.subsec_nanos()))
}
