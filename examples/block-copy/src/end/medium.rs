//! What an end is under all its names.

use std::sync::Arc;

use iscsi_initiator::IscsiName;
use iscsi_initiator::scsi::Lun;

/// What an end is under all its names; another one is not equal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Medium {
    /// A regular file or a block device.
    File(FileId),
    /// A unit of a target, and its serial number.
    Unit(Option<IscsiName>, Option<Lun>, Option<String>),
    /// An export of an NBD server, by its URI: it may have others.
    Export(Arc<str>),
}

/// What makes a file the same under another name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileId {
    /// File system and number of a regular file.
    Inode(u64, u64),
    /// Number of a block device.
    Device(u64),
}
