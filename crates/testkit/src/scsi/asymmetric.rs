//! Asymmetric access: what a group of target ports serves of the units behind it (SPC-4 §5.15).

use super::{Sense, operation};

/// The state of all ports of a portal group towards its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessState {
    /// Every command is served.
    #[default]
    ActiveOptimized,
    /// The same, though other ports may be faster.
    ActiveNonOptimized,
    /// Only what asks which unit it is: NOT READY, 04h/0Bh.
    Standby,
    /// Hardly anything: NOT READY, 04h/0Ch.
    Unavailable,
    /// Hardly anything, until another state is reached: NOT READY, 04h/0Ah.
    Transitioning,
}

impl AccessState {
    /// Why the ports do not serve a command, if they do not (SPC-4 §5.15.2.4).
    pub(crate) const fn check(self, operation: u8) -> Result<(), Sense> {
        let ascq = match self {
            Self::ActiveOptimized | Self::ActiveNonOptimized => return Ok(()),
            Self::Transitioning => 0x0a,
            Self::Standby => 0x0b,
            Self::Unavailable => 0x0c,
        };
        let asks = matches!(
            operation,
            operation::INQUIRY | operation::REPORT_LUNS | operation::REQUEST_SENSE
        );
        let asks_for_mode = matches!(operation, operation::MODE_SENSE_6 | operation::MODE_SENSE_10);
        if asks || asks_for_mode && matches!(self, Self::Standby) {
            return Ok(());
        }
        Err(Sense::new(2, 0x04, ascq))
    }
}
