//! Exit statuses that only this program has, and those of NBD exports.

use std::io;

use iscsi_copy::NbdError;
use iscsi_examples_common::exit_status::{self, AGAIN, DENIED, ERROR, REFUSED, USAGE};
use iscsi_initiator::Error;
use iscsi_initiator::device::{DeviceError, DeviceErrorKind};

/// Everything was copied except what the source could not read.
pub(super) const UNREADABLE: u8 = 3;

/// The source changed too fast for a short last pass.
pub(super) const NOT_CONVERGING: u8 = 4;

/// Returns the exit status for a failed source or destination.
pub(super) fn status_of_device(cause: &DeviceError) -> u8 {
    const REFUSALS: [DeviceErrorKind; 6] = [
        DeviceErrorKind::ReadOnly,
        DeviceErrorKind::OutOfSpace,
        DeviceErrorKind::Denied,
        DeviceErrorKind::Medium,
        DeviceErrorKind::Defective,
        DeviceErrorKind::Protocol,
    ];
    if let Some(export) = cause.source_as() {
        return status_of_export(export);
    }
    // An error without an `io::Error` comes from the reply of a server, and not from this host.
    let is_answer =
        cause.source_as::<io::Error>().is_none() && cause.source_as::<Error>().is_none();
    if is_answer && REFUSALS.contains(&cause.kind()) {
        REFUSED
    } else {
        exit_status::of_device(cause)
    }
}

/// Returns the exit status for the error of an export.
pub(super) fn status_of_export(cause: &NbdError) -> u8 {
    match cause {
        NbdError::Uri(_) | NbdError::BitmapForm | NbdError::Tls | NbdError::TlsOptions(_) => USAGE,
        NbdError::NotTrusted { .. } | NbdError::TlsEnded { .. } => DENIED,
        NbdError::Connect { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => ERROR,
        NbdError::Bitmap { cause, .. } => status_of_device(cause),
        NbdError::Connect { .. }
        | NbdError::Silent(_)
        | NbdError::Lost
        | NbdError::Away { .. }
        | NbdError::UnflushedWritesLost => AGAIN,
        NbdError::Handshake { .. }
        | NbdError::TooLarge { .. }
        | NbdError::NoBitmap(_)
        | NbdError::Protocol(_)
        | NbdError::Changed(_)
        | _ => REFUSED,
    }
}
