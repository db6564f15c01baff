//! Identifies a source or destination under all its names.

use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use iscsi_initiator::Disk;

/// The identity of a source or destination, under all its names. As text it is the same in every process of
/// this host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Medium {
    /// A regular file or a block device.
    File(FileId),
    /// A directory entry, where another file may be put later: device and inode of the directory, and the name
    /// in the directory.
    Entry(u64, u64, OsString),
    /// A unit. The identity does not depend on the portals that it is reached through.
    Unit(String),
    /// An export of an NBD server, by its URI. The same export may have other URIs, which are not recognised.
    Export(Arc<str>),
}

/// The identity of an existing file, under all its names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileId {
    /// File system and inode number of a regular file.
    Inode(u64, u64),
    /// Number of a block device.
    Device(u64),
}

impl Medium {
    /// Returns the identity of an existing regular file.
    pub(crate) fn file(file: &Metadata) -> Self {
        Self::File(FileId::Inode(file.dev(), file.ino()))
    }

    /// Returns the identity of a unit. `address` is its target name and LUN. A designator of a type that is unique
    /// worldwide (VPD page 83) is the whole identity. Other designators are assigned twice in practice, so the
    /// address and the serial number are then part of the identity.
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
