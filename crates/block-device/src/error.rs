//! The error of a device.

use std::error::Error;
use std::sync::Arc;
use std::{fmt, io};

use thiserror::Error as ThisError;

use crate::error_kind::DeviceErrorKind;

/// Reason why a request to a [`Device`](crate::Device) failed.
///
/// A caller decides by the [`kind`](Self::kind) what to do. The [`source`](Error::source) is the error of the
/// unit, the export or the system, and gives the text; [`advice`](Self::advice) says what the user can do. If
/// the device is a part of a larger one, the text begins with the name of the part.
///
/// ```
/// use std::io;
///
/// use iscsi_block_device::{DeviceError, DeviceErrorKind};
///
/// let error = DeviceError::from(io::Error::from(io::ErrorKind::StorageFull)).of_member("disk 1");
/// assert_eq!(error.kind(), DeviceErrorKind::OutOfSpace);
/// assert_eq!(error.to_string(), "disk 1: no storage space");
/// assert!(error.source_as::<io::Error>().is_some());
/// ```
///
/// An error is one pointer wide, which keeps the results of successful requests small. Clones share the same
/// error.
#[derive(Clone)]
pub struct DeviceError(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: DeviceErrorKind,
    /// The kind of the `io::Error` that this error was made from; `None` if it was made from another error.
    system: Option<io::ErrorKind>,
    member: Option<String>,
    advice: Option<&'static str>,
    cause: Cause,
}

#[derive(Clone, Debug)]
enum Cause {
    /// No source; the text of the kind is used.
    None,
    /// An error of the system that contains no other error.
    System(Arc<io::Error>),
    Other(Arc<dyn Error + Send + Sync>),
}

/// The error of a range that does not lie on the device.
#[derive(Debug, ThisError)]
#[error("{len} bytes at offset {offset} do not fit a disk of {capacity} bytes")]
struct OutOfRange {
    offset: u64,
    len: u64,
    capacity: u64,
}

/// The error of a request that the device does not support.
#[derive(Debug, ThisError)]
#[error("the device does not support {0}")]
struct Unsupported(&'static str);

impl DeviceError {
    /// Creates an error with a source, whose text it shows.
    pub fn new(kind: DeviceErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(kind, Cause::Other(source.into().into()))
    }

    /// Creates the error of a range that does not lie on a device of `capacity` bytes.
    pub fn out_of_range(offset: u64, len: u64, capacity: u64) -> Self {
        Self::new(DeviceErrorKind::InvalidInput, OutOfRange { offset, len, capacity })
    }

    /// Creates the error of a device that does not support `what`, such as `"discarding"`.
    pub fn unsupported(what: &'static str) -> Self {
        Self::new(DeviceErrorKind::Unsupported, Unsupported(what))
    }

    fn of(kind: DeviceErrorKind, cause: Cause) -> Self {
        Self(Arc::new(Inner { kind, system: None, member: None, advice: None, cause }))
    }

    /// Names the part of a larger device that failed: the text begins with `name`.
    #[must_use]
    pub fn of_member(self, name: &str) -> Self {
        self.with(|inner| {
            inner.member = Some(match &inner.member {
                Some(part) => format!("{name}: {part}"),
                None => name.to_owned(),
            });
        })
    }

    /// Sets the kind. [`io_kind`](Self::io_kind) does not change if the error was made from an error of the
    /// system.
    #[must_use]
    pub fn with_kind(self, kind: DeviceErrorKind) -> Self {
        self.with(|inner| inner.kind = kind)
    }

    /// Sets the advice to the user, as a part of a sentence.
    #[must_use]
    pub fn with_advice(self, advice: Option<&'static str>) -> Self {
        self.with(|inner| inner.advice = advice)
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Returns what the error means to the user of the device.
    pub fn kind(&self) -> DeviceErrorKind {
        self.0.kind
    }

    /// Returns the name of the part of a larger device that failed; `None` if no part is named. If parts are
    /// nested, this is one text with the names of all of them.
    pub fn member(&self) -> Option<&str> {
        self.0.member.as_deref()
    }

    /// Returns the advice to the user, as a part of a sentence; `None` if nothing is known beyond the text.
    pub fn advice(&self) -> Option<&'static str> {
        self.0.advice
    }

    /// Returns the [source](Error::source) if it has the type `E`, such as the error of a unit, of an export,
    /// or of the system.
    pub fn source_as<E: Error + 'static>(&self) -> Option<&E> {
        self.source()?.downcast_ref()
    }

    /// Returns the kind as an `io::ErrorKind`: the kind of the `io::Error` that this error was made from, or
    /// else the closest one.
    pub fn io_kind(&self) -> io::ErrorKind {
        self.0.system.unwrap_or_else(|| self.0.kind.into())
    }
}

impl From<DeviceErrorKind> for DeviceError {
    fn from(kind: DeviceErrorKind) -> Self {
        Self::of(kind, Cause::None)
    }
}

impl From<io::ErrorKind> for DeviceError {
    fn from(kind: io::ErrorKind) -> Self {
        io::Error::from(kind).into()
    }
}

impl From<io::Error> for DeviceError {
    /// Converts an error of the system. An error inside it becomes the source; a [`DeviceError`] inside it is
    /// returned unchanged.
    fn from(error: io::Error) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return error,
            Err(error) => error,
        };
        let (kind, system) = (DeviceErrorKind::of_system(&error), error.kind());
        let cause = if error.get_ref().is_none() {
            Cause::System(error.into())
        } else {
            error.into_inner().map_or(Cause::None, |held| Cause::Other(held.into()))
        };
        Self::of(kind, cause).with(|inner| inner.system = Some(system))
    }
}

impl From<DeviceError> for io::Error {
    /// Returns the `io::Error` that this error was made from, if that contains no other error. If this error
    /// names a member, has clones, or was made from any other error, it is wrapped in a new `io::Error`
    /// instead.
    fn from(error: DeviceError) -> Self {
        let kind = error.io_kind();
        if error.0.member.is_some() || !matches!(error.0.cause, Cause::System(_)) {
            return Self::new(kind, error);
        }
        let cause = Arc::try_unwrap(error.0).map_err(DeviceError).map(|inner| inner.cause);
        match cause {
            Ok(Cause::System(cause)) => {
                Arc::try_unwrap(cause).unwrap_or_else(|cause| Self::new(kind, cause))
            }
            Ok(cause) => Self::new(kind, DeviceError::of(kind.into(), cause)),
            Err(shared) => Self::new(kind, shared),
        }
    }
}

impl Error for DeviceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.cause {
            Cause::None => None,
            Cause::System(cause) => Some(&**cause),
            Cause::Other(cause) => Some(&**cause),
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(member) = self.member() {
            write!(f, "{member}: ")?;
        }
        match self.source() {
            None => write!(f, "{}", self.0.kind),
            Some(cause) => write!(f, "{cause}"),
        }
    }
}

impl fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, member, cause, .. } = &*self.0;
        let mut error = f.debug_struct("DeviceError");
        error.field("kind", kind);
        if let Some(member) = member {
            error.field("member", member);
        }
        error.field("cause", cause).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_and_goes_to_any_thread() {
        fn shared<T: Clone + Send + Sync + 'static>() {}
        shared::<DeviceError>();
        assert_eq!(size_of::<DeviceError>(), size_of::<usize>());
        assert_eq!(size_of::<Result<(), DeviceError>>(), size_of::<usize>());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_error_of_the_system_comes_back_as_it_was() {
        let full = DeviceError::from(io::Error::from_raw_os_error(28));
        assert_eq!(full.kind(), DeviceErrorKind::OutOfSpace);
        assert_eq!(io::Error::from(full.clone()).kind(), io::ErrorKind::StorageFull, "of a clone");
        drop(io::Error::from(full.clone()));
        assert_eq!(io::Error::from(full).raw_os_error(), Some(28));
        let unreadable = DeviceError::from(io::Error::from_raw_os_error(5));
        assert_eq!(unreadable.kind(), DeviceErrorKind::Medium);
        // Kinds of the system that have no counterpart among the kinds of a device are kept.
        let long = DeviceError::from(io::ErrorKind::FileTooLarge);
        assert_eq!(long.kind(), DeviceErrorKind::Other);
        assert_eq!(io::Error::from(long).kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn an_error_of_a_device_passes_through_the_system() {
        let lost = DeviceError::new(DeviceErrorKind::LostWrites, "the unit was reset");
        let lost = lost.of_member("member 1").with_advice(Some("write again"));
        let lost = DeviceError::from(io::Error::from(lost)).of_member("volume");
        assert_eq!(lost.kind(), DeviceErrorKind::LostWrites);
        assert_eq!((lost.member(), lost.advice()), (Some("volume: member 1"), Some("write again")));
        assert_eq!(lost.to_string(), "volume: member 1: the unit was reset");
        assert_eq!(lost.source().unwrap().to_string(), "the unit was reset");
    }

    #[test]
    fn what_an_error_of_the_system_holds_is_the_source() {
        let held = io::Error::new(
            io::ErrorKind::InvalidData,
            OutOfRange { offset: 1, len: 2, capacity: 2 },
        );
        let error = DeviceError::from(held);
        assert!(error.source_as::<OutOfRange>().is_some());
        assert_eq!(error.kind(), DeviceErrorKind::Protocol);
        let text = "2 bytes at offset 1 do not fit a disk of 2 bytes";
        assert_eq!(error.to_string(), text);
        assert_eq!(DeviceError::out_of_range(1, 2, 2).to_string(), text);
    }

    #[test]
    fn a_kind_alone_has_a_text() {
        let error = DeviceError::from(DeviceErrorKind::ReadOnly).of_member("disk 0");
        assert_eq!(error.to_string(), "disk 0: it refuses writes");
        assert!(error.source().is_none());
        let error = DeviceError::unsupported("discarding").with_kind(DeviceErrorKind::Other);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Other);
    }
}
