//! Recognises standard output under its other names.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::makedev;

/// Returns whether standard output is this file, and keeps or passes on what is written. If a program writes
/// its data there, it must not write anything else. Returns false for terminals and other character devices,
/// where mixed output destroys no data.
#[must_use]
pub fn is(file: &Metadata) -> bool {
    let Some(place) = place(file) else { return false };
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.and_then(|output| File::from(output).metadata());
    output.is_ok_and(|output| self::place(&output) == Some(place))
}

/// Returns whether this argument is a name of standard output: `-`, or a path that leads to the same file.
#[must_use]
pub fn is_named_by(argument: &OsStr) -> bool {
    argument == "-" || fs::metadata(argument).is_ok_and(|file| is(&file))
}

/// Returns whether standard output was closed when the program began. In that case Rust's runtime opens
/// `/dev/null` for reading and writing. A shell that discards the output opens it for writing only.
#[must_use]
pub fn is_nowhere() -> bool {
    const NULL: u64 = makedev(1, 3);
    let output = io::stdout();
    let is_null = output.as_fd().try_clone_to_owned().map(File::from);
    let is_null = is_null.and_then(|output| output.metadata());
    let is_null =
        is_null.is_ok_and(|file| file.file_type().is_char_device() && file.rdev() == NULL);
    let flags = fcntl(output.as_fd(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
    is_null && flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
}

/// Returns the identity of a file, the same for all its names: whether it is a block device, and its numbers.
fn place(file: &Metadata) -> Option<(bool, u64, u64)> {
    let kind = file.file_type();
    if kind.is_block_device() {
        return Some((true, file.rdev(), 0));
    }
    (!kind.is_char_device() && !kind.is_dir()).then(|| (false, file.dev(), file.ino()))
}
