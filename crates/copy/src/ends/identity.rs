//! Identities of the source and the destination, by which a later run recognizes them.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::thread::sleep;

use iscsi_block_device::{ContentName, Device, DeviceName, DeviceResult};
use thiserror::Error as ThisError;

use super::file::FileDevice;

const NO_BIRTH_TIME: &str = "its file system does not say when a file was made, so that a later run could not recognize it; \
                             copy it without a checkpoint, or keep it on another file system";

/// The identity of a source or a destination, by which a later run recognizes it: its name, and its number of
/// bytes. The address is not part of it, because addresses change.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    bytes: u64,
    /// The device, if copies write to all of it and it reports the state of its data.
    written: Option<Written>,
}

/// A device that copies write to, such as a regular file.
#[derive(Clone, Debug)]
struct Written {
    device: Arc<dyn Device>,
    /// Whether the name alone identifies the device. An inode number alone does not, because it is reused.
    is_unique: bool,
}

/// Reasons why the state in which the last copy has left a file may no longer hold.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
pub(crate) enum Doubt {
    /// The file is not as the last copy has left it.
    #[error(
        "the destination was left as {was}, and is {is} now: another program has written to it"
    )]
    Changed {
        /// State of the file at the end of the last copy.
        was: Box<Identity>,
        /// State of the file.
        is: Box<Identity>,
    },
    /// The file may be another one: the file system does not record when a file was created, and the last
    /// copy ended before it recorded how it left the file.
    #[error(
        "the file system does not say when a file was made, and the copy before did not come to say how it leaves the \
         destination, which may be another file now"
    )]
    Unproven,
}

impl Identity {
    /// Creates an identity from any name. Line ends in the name become spaces.
    pub fn new(name: &str, bytes: u64) -> Self {
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { name, bytes, written: None }
    }

    /// Identifies a device by its [name](Device::name); `None` if it has none. A logical unit is named by VPD
    /// page 83, or else by its serial number (VPD page 80).
    ///
    /// # Errors
    /// The errors of the device.
    pub fn of_device(device: &(impl Device + ?Sized)) -> DeviceResult<Option<Self>> {
        Ok(device.name()?.map(Self::named))
    }

    fn named(DeviceName { text, bytes, .. }: DeviceName) -> Self {
        Self::new(&text, bytes)
    }

    fn holding(ContentName { text, bytes, .. }: ContentName) -> Self {
        Self::new(&text, bytes)
    }

    /// Identifies a source device: by the name of its data ([`Device::content_name`]), or else by its own
    /// name.
    pub(crate) fn of_read(device: &Arc<dyn Device>) -> DeviceResult<Option<Self>> {
        match device.content_name()? {
            Some(content) => Ok(Some(Self::holding(content))),
            None => Self::of_device(device),
        }
    }

    /// Identifies a destination device by its own name, and keeps the device to check the state of its data
    /// later.
    pub(crate) fn of_written(device: &Arc<dyn Device>) -> DeviceResult<Option<Self>> {
        let Some(name) = device.name()? else { return Ok(None) };
        let is_unique = name.is_unique;
        let has_content = device.content_name()?.is_some();
        let written = has_content.then(|| Written { device: Arc::clone(device), is_unique });
        Ok(Some(Self { written, ..Self::named(name) }))
    }

    /// Identifies a source file by its length and the time of its last change: the identity stays the same
    /// under another name or on another file system, as long as the file is not written to. A block device is
    /// identified as by [`of_destination`](Self::of_destination).
    ///
    /// # Errors
    /// The errors of the system.
    pub fn of_source(file: &FileDevice) -> io::Result<Self> {
        Self::of_read(&shared(file))?.ok_or_else(nameless)
    }

    /// Identifies a destination file by its inode number and its birth time: the inode number alone is reused
    /// after a file is removed. Without a birth time, a checkpoint or digests of a copy to the file are valid
    /// only if that copy has ended. They record the file's length and the time of its last change, so that
    /// writes of other programs are detected.
    ///
    /// A block device is identified by the name of the disk, a loop device by its file and the part of the
    /// file that it shows. A device without such a name is identified by its device number, until this host
    /// restarts or the device is attached again.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn of_destination(file: &FileDevice) -> io::Result<Self> {
        Self::of_written(&shared(file))?.ok_or_else(nameless)
    }

    /// Identifies a file that is read while other programs write to it, by its inode number, its birth time
    /// and its length. A block device is identified as by [`of_destination`](Self::of_destination).
    ///
    /// # Errors
    /// The errors of the system; [`Unsupported`](ErrorKind::Unsupported) where the file system reports no
    /// birth time.
    pub fn of_source_in_use(file: &FileDevice) -> io::Result<Self> {
        let Self { name, written, .. } = Self::of_destination(file)?;
        if written.is_some_and(|written| !written.is_unique) {
            return Err(io::Error::new(ErrorKind::Unsupported, NO_BIRTH_TIME));
        }
        Ok(Self { name, bytes: file.capacity(), written: None }.in_use())
    }

    /// Returns the identity with another name, by which the caller knows the same source or destination also on another host or at
    /// another address. What other programs write to a destination file is still detected.
    #[must_use]
    pub fn renamed(self, name: &str) -> Self {
        let written = self.written.map(|written| Written { is_unique: true, ..written });
        Self { written, ..Self::new(name, self.bytes) }
    }

    /// Returns the identity for a source or destination that other programs write to. It differs from the
    /// identity of the same source at rest, so that a checkpoint of one is not valid for the other: a copy of
    /// a source in use has the state of its last [pass](crate::Passes).
    #[must_use]
    pub fn in_use(mut self) -> Self {
        self.name += ", in use";
        self
    }

    /// Returns the identity of these bytes alone; a range that ends at `u64::MAX` means all bytes from its
    /// start on.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let mut name = format!("{} from byte {}", self.name, range.start);
        if range.end < u64::MAX {
            name += &format!(" to {}", range.end);
        }
        // Other programs may write to the rest of the device, so that the state of its data does not identify the
        // part.
        Self { name, bytes: self.bytes, written: None }
    }

    /// Returns the state in which a copy leaves the destination; `None` if the destination does not report the
    /// state of its data. First sleeps, so that any later write is certain to change that state. Call it after
    /// the flush.
    pub(crate) fn left(&self) -> io::Result<Option<Self>> {
        let Some(written) = &self.written else { return Ok(None) };
        if let Some(content) = written.device.content_name()? {
            sleep(content.settles_in);
        }
        self.now()
    }

    /// Returns the current state of a destination; `None` if the destination does not report the state of its
    /// data.
    pub(crate) fn now(&self) -> io::Result<Option<Self>> {
        let Some(written) = &self.written else { return Ok(None) };
        Ok(written.device.content_name()?.map(Self::holding))
    }

    /// Checks that records of earlier copies are valid for this destination. `left` is the state that the last
    /// copy has recorded at its end; `None` if that copy did not record a state.
    pub(crate) fn check_left(&self, left: Option<&Self>) -> io::Result<Result<(), Doubt>> {
        let Some(is) = self.now()? else { return Ok(Ok(())) };
        Ok(match left {
            Some(was) if *was != is => {
                Err(Doubt::Changed { was: was.clone().into(), is: is.into() })
            }
            None if self.written.as_ref().is_some_and(|written| !written.is_unique) => {
                Err(Doubt::Unproven)
            }
            Some(_) | None => Ok(()),
        })
    }

    /// Returns the number of bytes of the source or destination; 0 if the number is not part of the identity.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, bytes) = text.strip_suffix(" bytes")?.rsplit_once(", ")?;
        Some(Self { name: name.to_owned(), bytes: bytes.parse().ok()?, written: None })
    }
}

fn shared(file: &FileDevice) -> Arc<dyn Device> {
    Arc::new(file.clone())
}

fn nameless() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, "the file has no name that lasts")
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.bytes) == (&other.name, other.bytes)
    }
}

impl Eq for Identity {}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} bytes", self.name, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_is_what_was_left_until_somebody_writes_to_it() {
        let path = std::env::temp_dir().join(format!("iscsi-copy-left-{}", std::process::id()));
        fs::write(&path, [7; 100]).unwrap();
        let device = FileDevice::create(&path).unwrap();
        let identity = Identity::of_destination(&device).unwrap();
        let left = identity.left().unwrap().unwrap();
        let check = |identity: &Identity, left| identity.check_left(left).unwrap();
        let as_it_was = check(&identity, Some(&left));
        let mut unborn = identity.clone();
        unborn.written.as_mut().unwrap().is_unique = false;
        let unborn = [check(&unborn, Some(&left)), check(&unborn, None)];
        let after_a_kill = check(&identity, None);
        // Simulates a write that changes no byte: only the modification time differs.
        let later =
            fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_nanos(1 << 30);
        fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let written = check(&identity, Some(&left));
        let part = check(&identity.part(0..10), Some(&left));
        fs::remove_file(&path).unwrap();
        assert_eq!((as_it_was, after_a_kill, part), (Ok(()), Ok(()), Ok(())));
        assert_eq!(unborn, [Ok(()), Err(Doubt::Unproven)]);
        assert!(matches!(written, Err(Doubt::Changed { .. })), "{written:?}");
        assert_eq!(Identity::new("a unit", 1).left().unwrap(), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let identity = Identity::new("a  unit,\nwith a comma", 7 << 40);
        assert_eq!(identity.to_string(), "a unit, with a comma, 7696581394432 bytes");
        assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
        assert_eq!(Identity::parse("something"), None);
        assert_eq!(Identity::parse("something, many bytes"), None);
    }
}
