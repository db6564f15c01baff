//! Identities of the ends of a copy, by which a later run recognizes them.

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

/// The identity of an end of a copy, by which a later run recognizes it: its name, and the bytes that it
/// holds. An address is no part of it, because addresses change.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    bytes: u64,
    /// The device, if copies write to it as a whole and it has a name for its content.
    written: Option<Written>,
}

/// A device that copies write to, such as a regular file.
#[derive(Clone, Debug)]
struct Written {
    device: Arc<dyn Device>,
    /// Whether the name alone identifies the device. The number of a file alone does not.
    is_unique: bool,
}

/// Reasons why a file may differ from what the last copy has left.
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
    /// Creates the identity of an end of any kind. The name may be any text; line ends become spaces.
    pub fn new(name: &str, bytes: u64) -> Self {
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { name, bytes, written: None }
    }

    /// Identifies a device by its [name](Device::name); `None` if it has none. The name of a logical unit is
    /// that of VPD page 83, or its serial number (VPD page 80).
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

    /// Identifies a device that is read: by the name of its content, or else by its own name.
    pub(crate) fn of_read(device: &Arc<dyn Device>) -> DeviceResult<Option<Self>> {
        match device.content_name()? {
            Some(content) => Ok(Some(Self::holding(content))),
            None => Self::of_device(device),
        }
    }

    /// Identifies a device that is written to by its own name, and keeps the device to look at its content
    /// later.
    pub(crate) fn of_written(device: &Arc<dyn Device>) -> DeviceResult<Option<Self>> {
        let Some(name) = device.name()? else { return Ok(None) };
        let is_unique = name.is_unique;
        let has_content = device.content_name()?.is_some();
        let written = has_content.then(|| Written { device: Arc::clone(device), is_unique });
        Ok(Some(Self { written, ..Self::named(name) }))
    }

    /// Identifies a file that is read, by its length and the time of its last change: under another name, or
    /// on another file system, it has the same identity as long as it is not written to. A block device is
    /// identified as by [`of_destination`](Self::of_destination).
    ///
    /// # Errors
    /// The errors of the system.
    pub fn of_source(file: &FileDevice) -> io::Result<Self> {
        Self::of_read(&shared(file))?.ok_or_else(nameless)
    }

    /// Identifies a file that is written to, by its inode number and its birth time: the number of a removed
    /// file goes to the next one. Without a birth time, a checkpoint or digests of a copy to the file are
    /// valid only if that copy has ended. They record the file's length and the time of its last change, so
    /// that writes of other programs are detected.
    ///
    /// A block device is identified by the name of the disk, a loop device by its file and the part of it
    /// that it shows. Other devices are identified by their number, until this host restarts or they are
    /// attached again.
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

    /// Returns the identity of the same end while other programs write to it. A checkpoint of the one is not
    /// valid for the other: a copy of an end in use is as old as its last [pass](crate::Passes).
    #[must_use]
    pub fn in_use(mut self) -> Self {
        self.name += ", in use";
        self
    }

    /// Returns the identity of these bytes alone; an end of `u64::MAX` stands for all bytes from the start
    /// on.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let mut name = format!("{} from byte {}", self.name, range.start);
        if range.end < u64::MAX {
            name += &format!(" to {}", range.end);
        }
        // Other programs may write to the rest, so that the content has no name.
        Self { name, bytes: self.bytes, written: None }
    }

    /// Waits until a later write would change the name of the content, and returns the state in which a copy
    /// leaves the destination. Call it after the flush. `None` for a destination without a name for its
    /// content.
    pub(crate) fn left(&self) -> io::Result<Option<Self>> {
        let Some(written) = &self.written else { return Ok(None) };
        if let Some(content) = written.device.content_name()? {
            sleep(content.settles_in);
        }
        self.now()
    }

    /// Returns the present state of a destination that copies write to; `None` if it has no name for its
    /// content.
    pub(crate) fn now(&self) -> io::Result<Option<Self>> {
        let Some(written) = &self.written else { return Ok(None) };
        Ok(written.device.content_name()?.map(Self::holding))
    }

    /// Checks that records of earlier copies are valid; `left` is the state that the last one has recorded,
    /// if it got that far.
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

    /// Returns the bytes that it holds; 0 if they do not identify it.
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
        // A write that changes no byte still changes the modification time.
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
