//! Kinds of errors of a device.

use std::{fmt, io};

/// Defines the kinds with the text and the closest `io::ErrorKind` of each, in one list, so that no kind lacks
/// one of these.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $text:literal, $io:ident;)*) => {
        /// Meaning of a [`DeviceError`](crate::DeviceError) to the user of the device.
        ///
        /// Callers decide by the kind what to do. The text and the [source](std::error::Error::source) of the
        /// error say what exactly failed.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum DeviceErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl DeviceErrorKind {
            /// Lists every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns the text of an error of this kind that has no source.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$kind => $text,)*
                }
            }
        }

        impl From<DeviceErrorKind> for io::ErrorKind {
            fn from(kind: DeviceErrorKind) -> Self {
                match kind {
                    $(DeviceErrorKind::$kind => Self::$io,)*
                }
            }
        }
    };
}

kinds! {
    /// Writes that have completed and were not flushed may be lost: write them again, then flush. Only a flush
    /// returns this error, and each handle of a device reports each loss once.
    #[doc(alias = "lost write")]
    LostWrites => "writes that were not flushed may be lost", Other;
    /// The device is not the one that was opened, or this cannot be confirmed. Do not continue.
    AnotherDevice => "it is another device than the one that was opened", StaleNetworkFileHandle;
    /// The request is not possible: for example, its range is not on the device.
    InvalidInput => "the request is not valid", InvalidInput;
    /// The device ended before the range of a read did: it has become shorter.
    UnexpectedEnd => "the device ended before the range did", UnexpectedEof;
    /// The device refuses every write.
    ReadOnly => "it refuses writes", ReadOnlyFilesystem;
    /// The device has no space left for the data.
    OutOfSpace => "no space is left", StorageFull;
    /// The host or the server of the device has no memory left for the request.
    OutOfMemory => "no memory is left", OutOfMemory;
    /// The request is not permitted: by the rights of a file, or by a reservation of another host.
    Denied => "the request is not permitted", PermissionDenied;
    /// Another host has fenced this host off, and uses the device.
    #[doc(alias = "preempted")]
    Fenced => "another host has taken the device over", PermissionDenied;
    /// The device, or the file or export that holds it, does not exist.
    NotFound => "there is no such device", NotFound;
    /// No network path leads to the device.
    Unreachable => "the device cannot be reached", HostUnreachable;
    /// The connection to the device was lost. The request may have been executed or not.
    ConnectionLost => "the connection to the device is lost", ConnectionReset;
    /// The device did not answer within the time limit. The request may have been executed or not.
    #[doc(alias = "timeout")]
    TimedOut => "the device did not answer in time", TimedOut;
    /// The device cannot take the request now: retry later.
    Busy => "the device is busy", ResourceBusy;
    /// The result of an earlier write is unknown, and that write may still be executed. Write nothing to its
    /// range until it is certain that the write will not be executed.
    InDoubt => "an earlier write may still be carried out", ResourceBusy;
    /// The medium cannot return the bytes of this read; other bytes may be readable.
    #[doc(alias = "bad block")]
    Medium => "the medium cannot be read", Other;
    /// The device is defective.
    Defective => "the device is defective", Other;
    /// The device was closed before the request.
    Closed => "the device is closed", NotConnected;
    /// The request was cancelled on purpose. It may have been executed or not.
    Aborted => "the request was cancelled", ConnectionAborted;
    /// The server of the device violated its protocol, or its responses contradict each other.
    Protocol => "the answer makes no sense", InvalidData;
    /// The device does not support the request.
    Unsupported => "the device does not support the request", Unsupported;
    /// Anything else; the text describes it.
    Other => "the device failed", Other;
}

/// Error numbers by which Linux reports that a medium cannot be read: EIO, ENODATA, EILSEQ and EREMOTEIO. On
/// MIPS and SPARC the last three have other values, so only EIO is listed there. For other systems the list is
/// empty, because their numbers differ or have other meanings.
const MEDIUM: &[i32] = if cfg!(not(target_os = "linux")) {
    &[]
} else if cfg!(any(target_arch = "mips", target_arch = "mips64", target_arch = "sparc64")) {
    &[5]
} else {
    &[5, 61, 84, 121]
};

impl DeviceErrorKind {
    /// Returns the kind of an error of the system.
    pub(crate) fn of_system(error: &io::Error) -> Self {
        if error.raw_os_error().is_some_and(|number| MEDIUM.contains(&number)) {
            return Self::Medium;
        }
        error.kind().into()
    }
}

impl From<io::ErrorKind> for DeviceErrorKind {
    fn from(kind: io::ErrorKind) -> Self {
        use io::ErrorKind as System;
        const KINDS: [(System, DeviceErrorKind); 21] = [
            (System::StaleNetworkFileHandle, DeviceErrorKind::AnotherDevice),
            (System::InvalidInput, DeviceErrorKind::InvalidInput),
            (System::UnexpectedEof, DeviceErrorKind::UnexpectedEnd),
            (System::ReadOnlyFilesystem, DeviceErrorKind::ReadOnly),
            (System::StorageFull, DeviceErrorKind::OutOfSpace),
            (System::QuotaExceeded, DeviceErrorKind::OutOfSpace),
            (System::OutOfMemory, DeviceErrorKind::OutOfMemory),
            (System::PermissionDenied, DeviceErrorKind::Denied),
            (System::NotFound, DeviceErrorKind::NotFound),
            (System::ConnectionRefused, DeviceErrorKind::Unreachable),
            (System::HostUnreachable, DeviceErrorKind::Unreachable),
            (System::NetworkUnreachable, DeviceErrorKind::Unreachable),
            (System::NetworkDown, DeviceErrorKind::Unreachable),
            (System::ConnectionReset, DeviceErrorKind::ConnectionLost),
            (System::BrokenPipe, DeviceErrorKind::ConnectionLost),
            (System::TimedOut, DeviceErrorKind::TimedOut),
            (System::ResourceBusy, DeviceErrorKind::Busy),
            (System::NotConnected, DeviceErrorKind::Closed),
            (System::ConnectionAborted, DeviceErrorKind::Aborted),
            (System::InvalidData, DeviceErrorKind::Protocol),
            (System::Unsupported, DeviceErrorKind::Unsupported),
        ];
        let known = KINDS.iter().find(|(known, _)| *known == kind);
        known.map_or(Self::Other, |(_, kind)| *kind)
    }
}

impl fmt::Display for DeviceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kind stays the same when it is converted to a kind of the system and back, except for the kinds that
    /// the system lacks.
    #[test]
    fn the_kinds_of_the_system_and_of_a_device_agree() {
        const LESS: [(DeviceErrorKind, DeviceErrorKind); 5] = [
            (DeviceErrorKind::LostWrites, DeviceErrorKind::Other),
            (DeviceErrorKind::Medium, DeviceErrorKind::Other),
            (DeviceErrorKind::Defective, DeviceErrorKind::Other),
            (DeviceErrorKind::Fenced, DeviceErrorKind::Denied),
            (DeviceErrorKind::InDoubt, DeviceErrorKind::Busy),
        ];
        for kind in DeviceErrorKind::ALL {
            let back = DeviceErrorKind::from(io::ErrorKind::from(*kind));
            let less = LESS.iter().find(|(of, _)| of == kind);
            let expected = less.map_or(*kind, |(_, less)| *less);
            assert_eq!(back, expected, "{kind:?}");
        }
    }
}
