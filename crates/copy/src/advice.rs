//! Advice on errors of a copy.

use std::fmt;

use iscsi_block_device::DeviceError;

use crate::error::CopyError;

/// Advice on the failure of a copy. Its text is a part of a sentence.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CopyAdvice {
    /// Advice on the error of a device.
    Device(&'static str),
    /// The source changed while it was copied.
    CopyAgain,
    /// The destination does not accept writes.
    MakeWritable,
    /// The destination is too small for the source.
    LargerDestination,
}

impl CopyAdvice {
    /// Returns the advice on the error of a device; `None` where the text of the error says all that is
    /// known, and for an error of the system.
    pub fn on(error: &DeviceError) -> Option<Self> {
        error.advice().map(Self::Device)
    }
}

impl fmt::Display for CopyAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device(advice) => advice,
            Self::CopyAgain => "copy again when nothing changes it",
            Self::MakeWritable => "make it writable, or choose another one",
            Self::LargerDestination => "choose a larger one",
        })
    }
}

impl CopyError {
    /// Returns what to do about the error; `None` where the text of the error says all that is known.
    pub fn advice(&self) -> Option<CopyAdvice> {
        match self {
            Self::Source(cause) | Self::Destination(cause) | Self::Flush(cause) => {
                CopyAdvice::on(cause)
            }
            Self::Shrunk => Some(CopyAdvice::CopyAgain),
            Self::ReadOnly => Some(CopyAdvice::MakeWritable),
            Self::TooSmall { .. } | Self::Overflow { .. } => Some(CopyAdvice::LargerDestination),
            // The text of a checkpoint error already says what to do.
            Self::Digests(_)
            | Self::Checkpoint { .. }
            | Self::Cancelled
            | Self::Abandoned { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use iscsi_initiator::UrlError;

    use super::*;
    use crate::ends::nbd::{NbdAdvice, NbdError};

    #[test]
    fn the_advice_of_a_device_is_that_of_its_unit_or_export() {
        let unit = DeviceError::from(iscsi_initiator::Error::from(UrlError::NoHost));
        let advice = CopyError::Flush(unit).advice();
        let words = iscsi_initiator::Advice::WriteUrl.text();
        assert_eq!(advice, Some(CopyAdvice::Device(words)));
        let advice = CopyError::Source(NbdError::Lost.into()).advice();
        assert_eq!(advice, Some(CopyAdvice::Device(NbdAdvice::SetRetryTimeout.text())));
        assert_eq!(CopyError::Source(io::ErrorKind::NotFound.into()).advice(), None);
    }
}
