//! Converts NBD errors to device errors.

use iscsi_block_device::{DeviceError, DeviceErrorKind};

use super::NbdError;
use super::advice::NbdAdvice;

impl From<NbdError> for DeviceError {
    /// Keeps the NBD error as the [source](std::error::Error::source), and takes over its advice.
    fn from(error: NbdError) -> Self {
        let kind = match &error {
            NbdError::Uri(_) | NbdError::BitmapForm | NbdError::TlsOptions(_) => {
                DeviceErrorKind::InvalidInput
            }
            NbdError::NotTrusted { .. } | NbdError::TlsEnded { .. } => DeviceErrorKind::Denied,
            NbdError::Tls => DeviceErrorKind::Unsupported,
            NbdError::Connect { .. } => DeviceErrorKind::Unreachable,
            NbdError::Silent(_) => DeviceErrorKind::TimedOut,
            NbdError::Handshake { .. } | NbdError::NoBitmap(_) => DeviceErrorKind::NotFound,
            NbdError::Bitmap { .. } => DeviceErrorKind::Other,
            NbdError::TooLarge { .. } | NbdError::Protocol(_) => DeviceErrorKind::Protocol,
            NbdError::Lost | NbdError::Away { .. } => DeviceErrorKind::ConnectionLost,
            NbdError::Changed(_) => DeviceErrorKind::AnotherDevice,
            NbdError::UnflushedWritesLost => DeviceErrorKind::LostWrites,
        };
        let advice = error.advice().map(NbdAdvice::text);
        Self::new(kind, error).with_advice(advice)
    }
}
