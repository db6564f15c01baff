//! Messages about errors that only this program has: of NBD exports, and of devices in use.

use iscsi_copy::{NbdAdvice, NbdError};
use iscsi_examples_common::sentence::{Sentence, join};
use iscsi_initiator::device::{DeviceError, DeviceErrorKind};

/// Returns whether the user must write another URI to avoid the error.
pub(crate) const fn is_of_caller(error: &NbdError) -> bool {
    matches!(
        error,
        NbdError::Uri(_)
            | NbdError::BitmapForm
            | NbdError::Tls
            | NbdError::TlsOptions(_)
            | NbdError::Handshake { .. }
    )
}

/// Returns the message about a list of ranges that cannot be read, from a file or from an export. The program
/// does not wait for that export, so the advice must not name `--wait`.
pub(crate) fn of_ranges(cause: &DeviceError) -> String {
    let words = |advice| match advice == NbdAdvice::WaitForServer {
        true => "check the address, and that the server is running",
        false => words(advice),
    };
    match cause.source_as::<NbdError>() {
        Some(export) => join(export, export.advice().map(words)),
        None => cause.sentence(),
    }
}

/// Returns the message about a failed source or destination, with advice.
pub(crate) fn of_device(cause: &DeviceError) -> String {
    if cause.kind() == DeviceErrorKind::Busy {
        let advice =
            "end that use, or write to it all the same with --force, which destroys what is in use";
        return join(cause, Some(advice));
    }
    cause.source_as().map_or_else(|| cause.sentence(), of_export)
}

/// Returns the message about a failed export, with advice.
pub(crate) fn of_export(cause: &NbdError) -> String {
    join(cause, cause.advice().map(words))
}

/// Returns the advice on an error of an export, in the words of this program.
pub const fn words(advice: NbdAdvice) -> &'static str {
    match advice {
        NbdAdvice::WaitForServer => {
            "check the address, and that the server is running, or wait for it (--wait 5min)"
        }
        NbdAdvice::CheckExport => "check what the server exports, and run the command again",
        NbdAdvice::WriteUri
        | NbdAdvice::WriteBitmap
        | NbdAdvice::UseTunnel
        | NbdAdvice::CheckAddress
        | NbdAdvice::CheckPermissions
        | NbdAdvice::CheckServer
        | NbdAdvice::ListExports
        | NbdAdvice::NewerServer
        | NbdAdvice::ReadLog
        | NbdAdvice::ExportBitmap
        | NbdAdvice::SetRetryTimeout
        | NbdAdvice::LongerRetryTimeout
        | NbdAdvice::WriteAgain
        | _ => advice.text(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use iscsi_initiator::UrlError;

    use super::*;

    #[test]
    fn an_export_that_fails_says_what_where_and_what_to_do() {
        let refused = io::ErrorKind::ConnectionRefused.into();
        let error = NbdError::Connect { place: "192.0.2.1:10809".to_owned(), cause: refused };
        let sentence = "no NBD server listens at 192.0.2.1:10809; check the address, and that the server is running, or \
                        wait for it (--wait 5min)";
        assert_eq!(of_export(&error), sentence);
        assert_eq!(of_device(&error.into()), sentence);
        let sentence = "the connection to the NBD server is lost; ?retry_timeout=SECONDS in the URI waits for the server";
        assert_eq!(of_device(&NbdError::Lost.into()), sentence);
    }

    #[test]
    fn other_devices_have_the_advice_of_all_programs() {
        let unit = iscsi_initiator::Error::from(UrlError::NoHost);
        let sentence = "the URL names no host; write iscsi://host/target/lun";
        assert_eq!(of_device(&unit.into()), sentence);
        let busy = io::Error::new(io::ErrorKind::ResourceBusy, "it is mounted");
        assert!(of_device(&busy.into()).starts_with("it is mounted; end that use"));
    }
}
