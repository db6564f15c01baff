//! Advice on errors of a copy.

use std::{fmt, io};

use iscsi_initiator::Advice;

use crate::error::{CopyError, iscsi_error};
use crate::nbd::{NbdAdvice, NbdError};

/// What can be done about the failure of a copy. The text is a part of a sentence.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CopyAdvice {
    /// What can be done about the error of a unit.
    Unit(Advice),
    /// What can be done about the error of an NBD export.
    Nbd(NbdAdvice),
    /// The source changed while it was copied.
    CopyAgain,
    /// The destination takes no writes.
    MakeWritable,
    /// The destination does not hold the source.
    LargerDestination,
}

impl CopyAdvice {
    /// What can be done about the error of a device; `None` where its text says all that is known, and for an error of
    /// the system.
    pub fn on(error: &io::Error) -> Option<Self> {
        if let Some(error) = iscsi_error(error) {
            return error.advice().map(Self::Unit);
        }
        let error: &NbdError = error.get_ref()?.downcast_ref()?;
        error.advice().map(Self::Nbd)
    }
}

impl fmt::Display for CopyAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(advice) => advice.fmt(f),
            Self::Nbd(advice) => advice.fmt(f),
            Self::CopyAgain => f.write_str("copy again when nothing changes it"),
            Self::MakeWritable => f.write_str("make it writable, or choose another one"),
            Self::LargerDestination => f.write_str("choose a larger one"),
        }
    }
}

impl CopyError {
    /// What can be done about it; `None` where the text says all that is known.
    pub fn advice(&self) -> Option<CopyAdvice> {
        match self {
            Self::Source(cause)
            | Self::Destination(cause)
            | Self::Flush(cause)
            | Self::Digests(cause) => CopyAdvice::on(cause),
            Self::Shrunk => Some(CopyAdvice::CopyAgain),
            Self::ReadOnly => Some(CopyAdvice::MakeWritable),
            Self::TooSmall { .. } | Self::Overflow { .. } => Some(CopyAdvice::LargerDestination),
            // The text of a checkpoint that does not hold says what to do with it.
            Self::Checkpoint { .. } | Self::Cancelled | Self::Abandoned { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_of_a_device_comes_through_the_error_of_the_system() {
        let unit = io::Error::from(iscsi_initiator::Error::UnflushedWritesLost);
        let advice = CopyError::Flush(unit).advice();
        assert_eq!(advice, Some(CopyAdvice::Unit(Advice::WriteAgain)));
        let export = io::Error::other(NbdError::Lost);
        let advice = CopyError::Source(export).advice();
        assert_eq!(advice, Some(CopyAdvice::Nbd(NbdAdvice::SetRetryTimeout)));
        assert_eq!(CopyError::Source(io::ErrorKind::NotFound.into()).advice(), None);
    }
}
