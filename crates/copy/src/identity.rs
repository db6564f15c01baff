//! What makes an end of a copy the same one the next day.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use iscsi_initiator::Disk;

use crate::block_device;
use crate::file::FileDevice;
use crate::regular_file::{made, place};

/// What makes an end of a copy the same one later: what it is, and how much it holds. An address is no
/// part of it, because addresses change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    name: String,
    bytes: u64,
}

impl Identity {
    /// An end of a kind of the caller's own. The name may be anything but several lines; line ends become
    /// spaces.
    pub fn new(name: &str, bytes: u64) -> Self {
        Self { name: name.split_whitespace().collect::<Vec<_>>().join(" "), bytes }
    }

    /// A logical unit, by its name (VPD page 83), or its serial number (VPD page 80); `None` for one that has
    /// neither.
    pub fn of_disk(disk: &Disk) -> Option<Self> {
        let profile = disk.profile();
        let name = match (&profile.designator, &profile.serial_number) {
            (Some(designator), _) => designator.to_string(),
            (None, Some(serial)) => format!("serial number {serial}"),
            (None, None) => return None,
        };
        Some(Self::new(&format!("logical unit {name}"), profile.capacity.bytes()))
    }

    /// A file that is read, by its length and the time of its last change: under another name, or on
    /// another file system, it is the same as long as nobody writes to it. A block device as a
    /// [destination](Self::of_destination).
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_source(file: &FileDevice) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if file.is_block_device() {
            return Self::of_destination(file);
        }
        let changed = format!("file changed {}.{:09}", metadata.mtime(), metadata.mtime_nsec());
        Ok(Self::new(&changed, metadata.len()))
    }

    /// A file that is written to, by its number in its file system and by when it was made: the number of a
    /// file that is removed goes to the next one. A block device by the name of the disk, a loop device by its file and
    /// the part of it that it shows, or else by its number until this host is started again or it is attached anew.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_destination(file: &FileDevice) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if file.is_block_device() {
            let capacity = iscsi_initiator::device::Device::capacity(file);
            return Ok(Self::new(&block_device::name(metadata.rdev()), capacity));
        }
        let mut name = place(&metadata);
        if let Some(made) = made(&metadata) {
            name += &format!(" {made}");
        }
        // Its length changes while it is copied to.
        Ok(Self::new(&name, 0))
    }

    /// A file that is read while others write to it, by its number in its file system, by when it was made, and by its
    /// length. A block device as a [destination](Self::of_destination).
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_source_in_use(file: &FileDevice) -> io::Result<Self> {
        let Self { name, .. } = Self::of_destination(file)?;
        Ok(Self { name, bytes: iscsi_initiator::device::Device::capacity(file) }.in_use())
    }

    /// The same end while others write to it. What is known of the one says nothing of the other: a copy of it
    /// is as old as its last [pass](crate::Passes).
    #[must_use]
    pub fn in_use(mut self) -> Self {
        self.name += ", in use";
        self
    }

    /// These bytes of it and no others; an end of `u64::MAX` stands for all there are.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let mut name = format!("{} from byte {}", self.name, range.start);
        if range.end < u64::MAX {
            name += &format!(" to {}", range.end);
        }
        Self { name, bytes: self.bytes }
    }

    /// Bytes it holds; 0 where that says nothing.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, bytes) = text.strip_suffix(" bytes")?.rsplit_once(", ")?;
        Some(Self { name: name.to_owned(), bytes: bytes.parse().ok()? })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} bytes", self.name, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let identity = Identity::new("a  unit,\nwith a comma", 7 << 40);
        assert_eq!(identity.to_string(), "a unit, with a comma, 7696581394432 bytes");
        assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
        assert_eq!(Identity::parse("something"), None);
        assert_eq!(Identity::parse("something, many bytes"), None);
    }
}
