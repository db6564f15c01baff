//! Page B1: properties of the medium (SBC-3 §6.5).

use super::page::page;
use crate::scsi::FormatError;

/// The rotation rate of the medium (SBC-3 §6.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MediumRotationRate {
    /// The device does not report the rotation rate.
    NotReported,
    /// The medium does not rotate: flash, memory.
    NonRotating,
    /// Revolutions per minute, 1025 to 65534.
    PerMinute(u16),
    /// A reserved code.
    Reserved(u16),
}

impl MediumRotationRate {
    const fn from_code(code: u16) -> Self {
        match code {
            0x0000 => Self::NotReported,
            0x0001 => Self::NonRotating,
            0x0401..=0xfffe => Self::PerMinute(code),
            0x0002..=0x0400 | 0xffff => Self::Reserved(code),
        }
    }
}

/// Block Device Characteristics (SBC-3 §6.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BlockDeviceCharacteristics {
    /// The rotation rate of the medium.
    pub medium_rotation_rate: MediumRotationRate,
    /// NOMINAL FORM FACTOR, 0 to 15; 0 if not reported.
    pub nominal_form_factor: u8,
    /// FUAB: the device handles FUA and SYNCHRONIZE CACHE as in SBC-2: data are written to the medium itself,
    /// and not only to a cache that survives a loss of power.
    pub fuab: bool,
    /// ZONED: 0 not reported, 1 host aware, 2 device managed.
    pub zoned: u8,
}

impl BlockDeviceCharacteristics {
    /// The code of the page.
    pub const PAGE: u8 = 0xb1;

    /// Reads the page.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes, [`FormatError::Field`] for another page.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let page = page(data, Self::PAGE, "block device characteristics page")?;
        Ok(Self {
            medium_rotation_rate: MediumRotationRate::from_code(page.u16(4)),
            nominal_form_factor: page.u8(7) & 0x0f,
            fuab: page.bit(8, 0x02),
            zoned: (page.u8(8) >> 4) & 0x03,
        })
    }
}
