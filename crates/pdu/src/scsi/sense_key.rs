//! Sense keys: the kind of a condition, in four bits (SPC-4 §4.5.6).

use std::fmt;

/// The kind of condition that sense data reports (SPC-4 §4.5.6).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum SenseKey {
    /// No error; the sense data may contain information.
    NoSense = 0x0,
    /// The command succeeded after a recovery by the device.
    RecoveredError = 0x1,
    /// The logical unit cannot be accessed.
    NotReady = 0x2,
    /// The medium, or the data on it, has an error.
    MediumError = 0x3,
    /// The device has an error and could not recover.
    HardwareError = 0x4,
    /// The command, or its parameter data, is not acceptable.
    IllegalRequest = 0x5,
    /// The state of the unit has changed for another reason than this command; the command was not executed.
    UnitAttention = 0x6,
    /// The blocks are protected.
    DataProtect = 0x7,
    /// A blank block was found instead of a written one, or a written one instead of a blank one.
    BlankCheck = 0x8,
    /// A vendor-specific condition.
    VendorSpecific = 0x9,
    /// A third-party copy did not finish.
    CopyAborted = 0xa,
    /// The device aborted the command; a retry may help.
    AbortedCommand = 0xb,
    /// Reserved; EQUAL in older standards.
    Reserved = 0xc,
    /// Data is left in a buffer of a medium that is full.
    VolumeOverflow = 0xd,
    /// The data did not compare equal.
    Miscompare = 0xe,
    /// The command completed; the sense data is for information.
    Completed = 0xf,
}

impl SenseKey {
    /// Returns the key in the low four bits of `nibble`; the other bits are ignored.
    pub const fn from_nibble(nibble: u8) -> Self {
        match nibble & 0x0f {
            0x0 => Self::NoSense,
            0x1 => Self::RecoveredError,
            0x2 => Self::NotReady,
            0x3 => Self::MediumError,
            0x4 => Self::HardwareError,
            0x5 => Self::IllegalRequest,
            0x6 => Self::UnitAttention,
            0x7 => Self::DataProtect,
            0x8 => Self::BlankCheck,
            0x9 => Self::VendorSpecific,
            0xa => Self::CopyAborted,
            0xb => Self::AbortedCommand,
            0xd => Self::VolumeOverflow,
            0xe => Self::Miscompare,
            0xf => Self::Completed,
            _ => Self::Reserved,
        }
    }

    /// Returns the code of the key, 0 to 15.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the key's name in SPC-4.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSense => "NO SENSE",
            Self::RecoveredError => "RECOVERED ERROR",
            Self::NotReady => "NOT READY",
            Self::MediumError => "MEDIUM ERROR",
            Self::HardwareError => "HARDWARE ERROR",
            Self::IllegalRequest => "ILLEGAL REQUEST",
            Self::UnitAttention => "UNIT ATTENTION",
            Self::DataProtect => "DATA PROTECT",
            Self::BlankCheck => "BLANK CHECK",
            Self::VendorSpecific => "VENDOR SPECIFIC",
            Self::CopyAborted => "COPY ABORTED",
            Self::AbortedCommand => "ABORTED COMMAND",
            Self::Reserved => "RESERVED SENSE KEY",
            Self::VolumeOverflow => "VOLUME OVERFLOW",
            Self::Miscompare => "MISCOMPARE",
            Self::Completed => "COMPLETED",
        }
    }
}

impl fmt::Display for SenseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
