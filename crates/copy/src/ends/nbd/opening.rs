//! Waits, while an export is opened, for a server that has not started yet: [`NbdUri::open_timeout`].

use std::io::ErrorKind;

use iscsi_block_device::RangeSet;
use iscsi_nbd::client::HandshakeError;
use iscsi_nbd::{Export, OptionError};
use tokio::time::{Instant, sleep};

use super::NbdError;
use super::connections::Connections;
use super::dirty_bitmap::DirtyBitmap;
use super::reopening::{FIRST_PAUSE, MAX_PAUSE};
use super::uri::NbdUri;

impl NbdError {
    /// Returns whether the error may disappear while a server starts: for example, no process listens yet, or
    /// the export does not exist yet.
    fn may_pass(&self) -> bool {
        match self {
            Self::Connect { cause, .. } => {
                !matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput)
            }
            Self::Silent(_) | Self::Lost => true,
            Self::Handshake { cause: HandshakeError::Refused { error, .. }, .. } => {
                matches!(error, OptionError::Unknown | OptionError::Shutdown)
            }
            Self::Handshake { .. }
            | Self::Uri(_)
            | Self::BitmapForm
            | Self::Tls
            | Self::TlsOptions(_)
            | Self::NotTrusted { .. }
            | Self::TlsEnded { .. }
            | Self::TooLarge { .. }
            | Self::NoBitmap(_)
            | Self::Bitmap { .. }
            | Self::Protocol(_)
            | Self::Away { .. }
            | Self::Changed(_)
            | Self::UnflushedWritesLost => false,
        }
    }
}

/// Opens an export, and retries after errors that may disappear, until [`NbdUri::open_timeout`] has passed.
/// The last attempt begins at that time.
///
/// # Errors
/// The error of the last attempt.
pub(super) async fn open(
    uri: &NbdUri,
    bitmap: Option<&DirtyBitmap>,
) -> Result<(Connections, Export, Option<RangeSet>), NbdError> {
    let (patience, begun) = (uri.open_timeout(), Instant::now());
    let mut pause = FIRST_PAUSE;
    let mut is_waiting = false;
    loop {
        let error = match Connections::open(uri, bitmap).await {
            Err(error) if error.may_pass() => error,
            result => return result,
        };
        let left = patience.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(error);
        }
        if is_waiting {
            tracing::info!(%error, "{}: the server is not there yet", uri.name());
        } else {
            let seconds = patience.as_secs();
            tracing::warn!(%error, "{}: the server is not there yet; trying again for {seconds} s", uri.name());
        }
        is_waiting = true;
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_what_a_server_that_starts_may_answer_is_waited_for() {
        let connect =
            |kind: ErrorKind| NbdError::Connect { place: String::new(), cause: kind.into() };
        let refused = |error| {
            let cause = HandshakeError::Refused { error, message: String::new() };
            NbdError::Handshake { place: String::new(), export: String::new(), cause }
        };
        for error in [
            connect(ErrorKind::ConnectionRefused),
            connect(ErrorKind::NotFound),
            connect(ErrorKind::HostUnreachable),
            NbdError::Silent(String::new()),
            NbdError::Connect { place: String::new(), cause: io::Error::other("no such host") },
            refused(OptionError::Unknown),
            refused(OptionError::Shutdown),
        ] {
            assert!(error.may_pass(), "{error}");
        }
        for error in [
            connect(ErrorKind::PermissionDenied),
            refused(OptionError::TlsRequired),
            refused(OptionError::Policy),
            NbdError::TooLarge { place: String::new(), size: u64::MAX },
        ] {
            assert!(!error.may_pass(), "{error}");
        }
    }
}
