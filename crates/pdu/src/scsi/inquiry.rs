//! Standard INQUIRY data: the kind of device and its features (SPC-4).

use super::{FormatError, fields::Fields};
use std::fmt;

/// The type of a logical unit, 0 to 31 (SPC-4, PERIPHERAL DEVICE TYPE).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DeviceType(pub u8);

impl DeviceType {
    /// A disk.
    pub const DIRECT_ACCESS_BLOCK: Self = Self(0x00);
    /// A tape.
    pub const SEQUENTIAL_ACCESS: Self = Self(0x01);
    /// A CD or DVD drive.
    pub const CD_DVD: Self = Self(0x05);
    /// A medium changer.
    pub const MEDIA_CHANGER: Self = Self(0x08);
    /// A storage controller, such as unit 0 of an array.
    pub const STORAGE_ARRAY_CONTROLLER: Self = Self(0x0c);
    /// A disk that supports only a part of the commands.
    pub const SIMPLIFIED_DIRECT_ACCESS: Self = Self(0x0e);
    /// A zoned disk.
    pub const HOST_MANAGED_ZONED_BLOCK: Self = Self(0x14);
    /// A unit that exists only for certain commands, such as REPORT LUNS.
    pub const WELL_KNOWN_LOGICAL_UNIT: Self = Self(0x1e);
    /// No device, or a device of unknown type.
    pub const UNKNOWN: Self = Self(0x1f);

    /// Returns the name of the type, `None` for a reserved or rare one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::DIRECT_ACCESS_BLOCK => "disk",
            Self::SEQUENTIAL_ACCESS => "tape",
            Self::CD_DVD => "CD/DVD",
            Self::MEDIA_CHANGER => "medium changer",
            Self::STORAGE_ARRAY_CONTROLLER => "storage array controller",
            Self::SIMPLIFIED_DIRECT_ACCESS => "simplified disk",
            Self::HOST_MANAGED_ZONED_BLOCK => "host managed zoned disk",
            Self::WELL_KNOWN_LOGICAL_UNIT => "well known logical unit",
            Self::UNKNOWN => "no device",
            _ => return None,
        })
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "device type {:#04x}", self.0),
        }
    }
}

/// The side that changes the asymmetric access states of a device's ports (SPC-4 §5.11, TPGS).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum TargetPortGroupSupport {
    /// 00b: the ports have no access states, or the device does not report the states.
    #[default]
    None,
    /// 01b: only the device changes the states.
    Implicit,
    /// 10b: only SET TARGET PORT GROUPS changes the states.
    Explicit,
    /// 11b: the device and SET TARGET PORT GROUPS change the states.
    Both,
}

impl TargetPortGroupSupport {
    const fn from_code(code: u8) -> Self {
        match code & 0x03 {
            0 => Self::None,
            1 => Self::Implicit,
            2 => Self::Explicit,
            _ => Self::Both,
        }
    }

    /// Returns whether the device supports REPORT TARGET PORT GROUPS.
    pub const fn is_supported(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns whether the device changes the access states of its ports by itself.
    pub const fn is_implicit(self) -> bool {
        matches!(self, Self::Implicit | Self::Both)
    }

    /// Returns whether SET TARGET PORT GROUPS changes the access states of the ports.
    pub const fn is_explicit(self) -> bool {
        matches!(self, Self::Explicit | Self::Both)
    }
}

impl fmt::Display for TargetPortGroupSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Implicit => "implicit",
            Self::Explicit => "explicit",
            Self::Both => "implicit and explicit",
        })
    }
}

/// Standard INQUIRY data (SPC-4).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct StandardInquiry {
    /// PERIPHERAL QUALIFIER: 0 if a device is connected, 1 if one can be, 3 if none can be.
    pub qualifier: u8,
    /// The type of the device.
    pub device_type: DeviceType,
    /// RMB: the medium is removable.
    pub removable: bool,
    /// VERSION: the SPC version that the device claims; 5 is SPC-3, 6 SPC-4, 7 SPC-5.
    pub version: u8,
    /// TPGS: whether the ports of the device have access states, and what may change these states.
    pub target_port_group_support: TargetPortGroupSupport,
    /// 3PC: the device supports third-party copies.
    pub third_party_copy: bool,
    /// PROTECT: the device supports protection information.
    pub protect: bool,
    /// CMDQUE: the device accepts several commands concurrently.
    pub command_queuing: bool,
    /// T10 VENDOR IDENTIFICATION, up to 8 characters.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, up to 16 characters.
    pub product: String,
    /// PRODUCT REVISION LEVEL, up to 4 characters.
    pub revision: String,
}

impl StandardInquiry {
    /// The allocation length for all fields of this type, bytes.
    pub const LEN: u16 = 36;

    /// Reads the data, which may be truncated after the first five bytes.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below five bytes.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "standard INQUIRY data", 5)?;
        let fields = fields.cut(5 + usize::from(fields.u8(4)));
        Ok(Self {
            qualifier: fields.u8(0) >> 5,
            device_type: DeviceType(fields.u8(0) & 0x1f),
            removable: fields.bit(1, 0x80),
            version: fields.u8(2),
            target_port_group_support: TargetPortGroupSupport::from_code(fields.u8(5) >> 4),
            third_party_copy: fields.bit(5, 0x08),
            protect: fields.bit(5, 0x01),
            command_queuing: fields.bit(7, 0x02),
            vendor: fields.text(8, 8),
            product: fields.text(16, 16),
            revision: fields.text(32, 4),
        })
    }

    /// Returns whether the logical unit exists; targets return INQUIRY data even for units that they do not
    /// have.
    pub const fn is_present(&self) -> bool {
        self.qualifier == 0 && self.device_type.0 != DeviceType::UNKNOWN.0
    }
}
