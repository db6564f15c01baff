//! Exit statuses. By them a Job, a unit of systemd or a script decides whether to run the program again.
//!
//! Numbers from 64 on have the meanings that sysexits(3) gives them.

use std::io;

use iscsi_initiator::device::{DeviceError, DeviceErrorKind};
use iscsi_initiator::{Error, ErrorKind, Fault};

/// An error of this host that stays until a person acts, such as a missing file, and errors of other kinds.
pub const ERROR: u8 = 1;

/// The command line is wrong, or does not suit what it names: the same command fails again.
pub const USAGE: u8 = 2;

/// Data differ from what was written, or could not be compared (`EX_DATAERR`).
pub const DATA: u8 = 65;

/// The target or the server refuses, has no such unit or export, or is defective (`EX_UNAVAILABLE`).
pub const REFUSED: u8 = 69;

/// The network, the target or this host fails at present: the same command may succeed later (`EX_TEMPFAIL`).
pub const AGAIN: u8 = 75;

/// One side could not prove its identity, or the target does not admit this initiator (`EX_NOPERM`).
pub const DENIED: u8 = 77;

/// A signal ended the program (128 and the number of SIGINT).
pub const INTERRUPTED: u8 = 130;

/// The statuses that mean the same in each program, for the manuals.
pub mod meaning {
    /// [`DATA`](super::DATA).
    pub const DATA: (&str, &str) =
        ("65", "Data differ from what was written, or could not be compared.");
    /// [`REFUSED`](super::REFUSED).
    pub const REFUSED: (&str, &str) =
        ("69", "The target or server refuses, has no such unit or export, or is defective.");
    /// [`AGAIN`](super::AGAIN).
    pub const AGAIN: (&str, &str) = (
        "75",
        "Temporary: the network, the target or this host. The same command may succeed later.",
    );
    /// [`DENIED`](super::DENIED).
    pub const DENIED: (&str, &str) =
        ("77", "A password, a name or a certificate was not accepted, by this side or the other.");
}

/// Returns the exit status for the error of a unit or of its target.
#[must_use]
pub fn of_unit(error: &Error) -> u8 {
    const LATER: [ErrorKind; 3] =
        [ErrorKind::UnflushedWritesLost, ErrorKind::Unsettled, ErrorKind::StillRegistered];
    const OF_COMMAND_LINE: [ErrorKind; 3] =
        [ErrorKind::InvalidInput, ErrorKind::Unsupported, ErrorKind::Other];
    let (kind, fault) = (error.kind(), error.fault());
    if kind == ErrorKind::Authentication {
        DENIED
    } else if kind.is_transient() || LATER.contains(&kind) {
        AGAIN
    } else if kind == ErrorKind::NotFound && fault == Fault::Network {
        // A name that no name service knows may be that of a host which starts later.
        AGAIN
    } else if [ErrorKind::Closed, ErrorKind::Aborted].contains(&kind) {
        ERROR
    } else if fault == Fault::Caller && OF_COMMAND_LINE.contains(&kind) {
        USAGE
    } else {
        REFUSED
    }
}

/// Returns the exit status for the error of a file, a stream or a device of another kind.
#[must_use]
pub fn of_device(error: &DeviceError) -> u8 {
    if let Some(unit) = error.source_as() {
        return of_unit(unit);
    }
    const LATER: [DeviceErrorKind; 5] = [
        DeviceErrorKind::OutOfMemory,
        DeviceErrorKind::Unreachable,
        DeviceErrorKind::TimedOut,
        DeviceErrorKind::LostWrites,
        DeviceErrorKind::InDoubt,
    ];
    if LATER.contains(&error.kind()) { AGAIN } else { ERROR }
}

/// Returns the exit status for an error of the operating system.
#[must_use]
pub fn of_system(error: &io::Error) -> u8 {
    use io::ErrorKind::{AddrInUse, Interrupted, OutOfMemory, TimedOut, WouldBlock};
    let kind = error.kind();
    // The reader of standard output took nothing, and a signal ended the wait for it.
    if kind == Interrupted {
        return INTERRUPTED;
    }
    if [AddrInUse, OutOfMemory, TimedOut, WouldBlock].contains(&kind) { AGAIN } else { ERROR }
}

/// Returns the exit status for the error of a volume: of the unit that failed, or [`USAGE`] if the named units form no
/// volume.
#[must_use]
pub fn of_volume(error: &iscsi_volume::Error) -> u8 {
    if let iscsi_volume::Error::Unit { cause, .. } = error { of_device(cause) } else { USAGE }
}

/// Returns the exit status for several pieces of work, by the status of each: that of an interrupt, or else [`AGAIN`] if
/// one of them may succeed later, or else the highest.
#[must_use]
pub fn of_all(statuses: impl Iterator<Item = u8>) -> u8 {
    let rank = |status: &u8| (*status == INTERRUPTED, *status == AGAIN, *status);
    statuses.max_by_key(rank).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::{UrlError, samples};

    use super::*;

    #[test]
    fn what_passes_and_what_stays_have_other_statuses() {
        for (error, expected) in [
            (samples::refused(), AGAIN),
            (samples::refused_login(3, 1), AGAIN),
            (samples::unflushed_writes_lost(), AGAIN),
            (samples::refused_login(2, 1), DENIED),
            (samples::refused_login(2, 2), DENIED),
            (samples::refused_login(2, 3), REFUSED),
            (samples::no_such_unit(), REFUSED),
            (UrlError::NoHost.into(), USAGE),
            (samples::closed(), ERROR),
        ] {
            assert_eq!(of_unit(&error), expected, "{error}");
        }
    }

    #[test]
    fn of_several_the_one_that_may_succeed_later_decides() {
        for (statuses, expected) in [
            (&[][..], 0),
            (&[0, 0], 0),
            (&[0, REFUSED, ERROR], REFUSED),
            (&[DENIED, 0, AGAIN, USAGE], AGAIN),
            (&[AGAIN, INTERRUPTED, DENIED], INTERRUPTED),
        ] {
            assert_eq!(of_all(statuses.iter().copied()), expected, "{statuses:?}");
        }
    }

    #[test]
    fn a_device_has_the_status_of_its_unit_or_of_the_system() {
        let unit = Error::from(UrlError::NoHost);
        assert_eq!(of_device(&unit.into()), USAGE);
        let of = |kind: io::ErrorKind| of_device(&io::Error::from(kind).into());
        use io::ErrorKind::{BrokenPipe, NotFound, ResourceBusy, StorageFull};
        for kind in [BrokenPipe, NotFound, ResourceBusy, StorageFull] {
            assert_eq!(of(kind), ERROR, "{kind}");
        }
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::OutOfMemory] {
            assert_eq!(of(kind), AGAIN, "{kind}");
        }
    }
}
