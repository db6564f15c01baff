//! What an end is under all its names.

use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use iscsi_initiator::Disk;

/// What an end is under all its names; another one is not equal. As a text it is the same in every process of this host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Medium {
    /// A regular file or a block device.
    File(FileId),
    /// The entry of a folder, which another file may take: device and inode of the folder, and its name there.
    Entry(u64, u64, OsString),
    /// A unit, whatever portals it is reached by.
    Unit(String),
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

impl Medium {
    /// A regular file that is there.
    pub(crate) fn file(file: &Metadata) -> Self {
        Self::File(FileId::Inode(file.dev(), file.ino()))
    }

    /// A unit that is open under this target name and LUN. A name that was given it to be unique is enough (VPD page 83);
    /// others are given twice, and count together with where the unit is.
    pub(super) fn unit(disk: &Disk, address: &str) -> Self {
        let profile = disk.profile();
        let name = profile.designator.as_ref();
        if let Some(name) = name.filter(|name| name.is_unique()) {
            return Self::Unit(format!("unit {name}"));
        }
        let name = name.map(ToString::to_string).unwrap_or_default();
        let serial = profile.serial_number.as_deref().unwrap_or_default();
        Self::Unit(format!("unit {address}, {name:?}, serial number {serial:?}"))
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(FileId::Inode(device, number)) => {
                write!(f, "file {number:#x} of device {device:#x}")
            }
            Self::File(FileId::Device(number)) => write!(f, "block device {number:#x}"),
            Self::Entry(device, number, name) => {
                write!(f, "entry {name:?} of folder {number:#x} of device {device:#x}")
            }
            Self::Unit(name) => f.write_str(name),
            Self::Export(uri) => write!(f, "export {uri}"),
        }
    }
}
