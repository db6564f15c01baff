//! Logical Unit Number: eight bytes in a special format (SAM-5 §4.7).

use std::fmt;

/// Logical Unit Number: the logical unit of a target that a command is for (SAM-5 §4.7).
///
/// A LUN is sent as eight bytes of up to four levels, not as a 64-bit integer: unit 1 is `00 01 00 00 00 00
/// 00 00`. Two numbers are equal when their bytes are equal. So if a target reports a unit in another
/// addressing method, the unit must be addressed in that method.
///
/// ```
/// use iscsi_pdu::scsi::Lun;
///
/// let lun = Lun::new(300).ok_or("no such unit")?;
/// assert_eq!(lun.to_bytes(), [0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
/// assert_eq!(lun.number(), Some(300));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lun([u8; 8]);

impl Lun {
    /// Unit 0, which every target has.
    pub const ZERO: Self = Self([0; 8]);

    /// The REPORT LUNS well known logical unit (SPC-4).
    pub const REPORT_LUNS: Self = Self([0xc1, 0x01, 0, 0, 0, 0, 0, 0]);

    /// The greatest number that [`Lun::new`] accepts.
    pub const MAX_NUMBER: u16 = 0x3fff;

    /// Returns the single-level LUN of a number: peripheral device addressing for 0 to 255, flat space
    /// addressing for 256 to 16383, `None` above (SAM-5 §4.7).
    pub const fn new(number: u16) -> Option<Self> {
        let [high, low] = number.to_be_bytes();
        match high {
            0 => Some(Self([0, low, 0, 0, 0, 0, 0, 0])),
            1..=0x3f => Some(Self([FLAT | high, low, 0, 0, 0, 0, 0, 0])),
            _ => None,
        }
    }

    /// Returns the LUN of a number in peripheral device addressing with its high bits as the bus; `None`
    /// above 16383. SAM requires flat space addressing above 255, but some targets report and accept this
    /// form instead.
    pub const fn on_bus(number: u16) -> Option<Self> {
        let [bus, low] = number.to_be_bytes();
        match bus {
            0..=0x3f => Some(Self([bus, low, 0, 0, 0, 0, 0, 0])),
            _ => None,
        }
    }

    /// Creates a LUN from the eight bytes as they were received; every value is legal.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// Returns the eight bytes as they are sent.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// Returns the usual number of the unit: 0 to 16383 for a single-level LUN on bus 0 in peripheral or flat
    /// space addressing, `None` for every other form.
    pub const fn number(self) -> Option<u16> {
        match self.0 {
            [0, low, 0, 0, 0, 0, 0, 0] => Some(low as u16),
            [high, low, 0, 0, 0, 0, 0, 0] if high & METHOD == FLAT => {
                Some(u16::from_be_bytes([high & !METHOD, low]))
            }
            _ => None,
        }
    }
}

/// The two bits of byte 0 that determine the addressing method.
const METHOD: u8 = 0xc0;
/// Flat space addressing: fourteen bits of the number.
const FLAT: u8 = 0x40;

impl From<u8> for Lun {
    fn from(number: u8) -> Self {
        Self([0, number, 0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for Lun {
    /// Writes the number if the LUN has one, otherwise all eight bytes in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => number.fmt(f),
            None => write!(f, "{:#018x}", u64::from_be_bytes(self.0)),
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lun({self})")
    }
}
