//! What makes an end of a copy the same one the next day.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::Duration;

use iscsi_initiator::Disk;
use thiserror::Error as ThisError;

use crate::block_device;
use crate::file::FileDevice;
use crate::regular_file::{made, place};

/// File systems know the time of a change no finer than this, and those that know no fractions of a second (ext3, FAT) no
/// finer than the other.
const TICK: Duration = Duration::from_millis(20);
const COARSE_TICK: Duration = Duration::from_secs(2);
const NO_BIRTH_TIME: &str = "its file system does not say when a file was made, so that a later run could not recognize it; \
                             copy it without a checkpoint, or keep it on another file system";

/// The identity of an end of a copy, by which a later run recognizes it: what it is, and how much it holds. An address is
/// no part of it, because addresses change.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    bytes: u64,
    /// A regular file that copies write to as a whole.
    file: Option<WrittenFile>,
}

/// A regular file that copies write to.
#[derive(Clone, Debug)]
struct WrittenFile {
    device: FileDevice,
    /// Its number alone does not make it the same one.
    has_birth_time: bool,
}

/// Why a file that was written to may not be what a copy has left.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
pub(crate) enum Doubt {
    /// It is not as it was left.
    #[error(
        "the destination was left as {was}, and is {is} now: another program has written to it"
    )]
    Changed {
        /// As a copy has left it.
        was: Box<Identity>,
        /// As it is.
        is: Box<Identity>,
    },
    /// Nothing tells it from a file that was made later.
    #[error(
        "the file system does not say when a file was made, and the copy before did not come to say how it leaves the \
         destination, which may be another file now"
    )]
    Unproven,
}

impl Identity {
    /// Names an end of any kind. The name may be anything but several lines; line ends become
    /// spaces.
    pub fn new(name: &str, bytes: u64) -> Self {
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { name, bytes, file: None }
    }

    /// Identifies a logical unit by its name (VPD page 83), or its serial number (VPD page 80); `None` for one that has
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

    /// Identifies a file that is read, by its length and the time of its last change: under another name, or on
    /// another file system, it is the same as long as it is not written to. A block device as a
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

    /// Identifies a file that is written to, by its number in its file system and by when it was made: the number of a file
    /// that is removed goes to the next one. If the file system does not say when it was made, a checkpoint or digests of a
    /// copy to it hold only if that copy came to its end. They note its length and the time of its last change, so that writes
    /// of other programs are found.
    ///
    /// A block device is identified by the name of the disk, a loop device by its file and the part of it that it shows.
    /// Others are identified by their number, until this host restarts or they are attached again.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_destination(file: &FileDevice) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if file.is_block_device() {
            let capacity = iscsi_initiator::device::Device::capacity(file);
            return Ok(Self::new(&block_device::name(metadata.rdev()), capacity));
        }
        let (mut name, made) = (place(&metadata), made(&metadata));
        let file = WrittenFile { device: file.clone(), has_birth_time: made.is_some() };
        if let Some(made) = made {
            name += &format!(" {made}");
        }
        // Its length changes while it is copied to.
        Ok(Self { file: Some(file), ..Self::new(&name, 0) })
    }

    /// Identifies a file that is read while others write to it, by its number in its file system, by when it was made, and by its
    /// length. A block device as a [destination](Self::of_destination).
    ///
    /// # Errors
    /// Those of the system; [`Unsupported`](ErrorKind::Unsupported) where it does not say when a file was made.
    pub fn of_source_in_use(file: &FileDevice) -> io::Result<Self> {
        let Self { name, file: written, .. } = Self::of_destination(file)?;
        if written.is_some_and(|written| !written.has_birth_time) {
            return Err(io::Error::new(ErrorKind::Unsupported, NO_BIRTH_TIME));
        }
        let bytes = iscsi_initiator::device::Device::capacity(file);
        Ok(Self { name, bytes, file: None }.in_use())
    }

    /// Returns the identity of the same end while others write to it. What is known of the one says nothing of the other: a copy of it
    /// is as old as its last [pass](crate::Passes).
    #[must_use]
    pub fn in_use(mut self) -> Self {
        self.name += ", in use";
        self
    }

    /// Returns the identity of these bytes of it and no others; an end of `u64::MAX` stands for all there are.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let mut name = format!("{} from byte {}", self.name, range.start);
        if range.end < u64::MAX {
            name += &format!(" to {}", range.end);
        }
        // Others may write to the rest.
        Self { name, bytes: self.bytes, file: None }
    }

    /// How a copy leaves a file that it has written to, once all is flushed; `None` for what is no file. Whoever writes
    /// to it afterwards does so at another time.
    pub(crate) fn left(&self) -> io::Result<Option<Self>> {
        let Some(file) = &self.file else { return Ok(None) };
        let metadata = file.device.metadata()?;
        let tick = if metadata.mtime_nsec() == 0 { COARSE_TICK } else { TICK };
        // It was later already where the clock of the file system is ahead.
        if let Ok(ago) = metadata.modified()?.elapsed() {
            sleep(tick.saturating_sub(ago));
        }
        self.now()
    }

    /// How a file is now that copies write to.
    pub(crate) fn now(&self) -> io::Result<Option<Self>> {
        self.file.as_ref().map(|file| Self::of_source(&file.device)).transpose()
    }

    /// Makes sure that what was kept of copies holds, of which the last has noted `left`, or has not come to that.
    pub(crate) fn check_left(&self, left: Option<&Self>) -> io::Result<Result<(), Doubt>> {
        let Some(is) = self.now()? else { return Ok(Ok(())) };
        Ok(match left {
            Some(was) if *was != is => {
                Err(Doubt::Changed { was: was.clone().into(), is: is.into() })
            }
            None if self.file.as_ref().is_some_and(|file| !file.has_birth_time) => {
                Err(Doubt::Unproven)
            }
            Some(_) | None => Ok(()),
        })
    }

    /// Returns the bytes that it holds; 0 if that says nothing.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, bytes) = text.strip_suffix(" bytes")?.rsplit_once(", ")?;
        Some(Self { name: name.to_owned(), bytes: bytes.parse().ok()?, file: None })
    }
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
        unborn.file.as_mut().unwrap().has_birth_time = false;
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
