//! Page 83: worldwide names of unit, port and target (SPC-4 §7.8).

use super::page::{HEADER_LEN, page};
use crate::scsi::FormatError;
use crate::scsi::fields::{text_of, utf8_of};
use std::fmt;

/// Device Identification: all names of the unit, and of its port and target (SPC-4 §7.8).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceIdentification {
    /// The names in the order of the page.
    pub designators: Vec<Designator>,
}

/// One name (SPC-4 §7.8, designation descriptor).
///
/// Its text has the form that administrators use: `naa.6001405...`, `eui.0025...`, `t10.LIO-ORG ...`, a SCSI
/// name string as it is, and a keyword with a number for other types.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Designator {
    /// The thing that is named.
    pub association: Association,
    /// The format of the name, and the authority that makes it unique.
    pub designator_type: DesignatorType,
    /// The encoding of the bytes.
    pub code_set: CodeSet,
    /// The name itself.
    pub bytes: Vec<u8>,
}

/// Things that a designator may name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Association {
    /// The logical unit, the same through every port.
    LogicalUnit,
    /// The target port through which the page was read.
    TargetPort,
    /// The target device with all its ports.
    TargetDevice,
    /// The reserved code 3.
    Reserved,
}

/// Encodings of the bytes of a designator.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CodeSet {
    /// Binary values.
    Binary,
    /// Printable ASCII.
    Ascii,
    /// UTF-8.
    Utf8,
    /// A reserved code, 0 or 4 to 15.
    Reserved(u8),
}

/// The format of a designator, and the authority that makes it unique.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DesignatorType {
    /// Vendor specific; two devices may have the same name.
    VendorSpecific,
    /// The vendor, unique by the list of T10, and a name that the vendor assigns.
    T10VendorId,
    /// EUI-64 in 8, 12 or 16 bytes.
    Eui64,
    /// NAA in 8 or 16 bytes.
    Naa,
    /// The number of a port, relative to the target.
    RelativeTargetPort,
    /// The number of a target port group.
    TargetPortGroup,
    /// The number of a group of logical units.
    LogicalUnitGroup,
    /// A hash, for units without a better name.
    Md5LogicalUnit,
    /// A text such as an iSCSI name.
    ScsiNameString,
    /// A name that the transport protocol defines.
    ProtocolSpecificPort,
    /// A UUID (SPC-5).
    Uuid,
    /// A reserved code, 11 to 15.
    Reserved(u8),
}

impl DeviceIdentification {
    /// The code of the page.
    pub const PAGE: u8 = 0x83;

    /// Reads the page; a truncated designator is omitted.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes, [`FormatError::Field`] for another page.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let page = page(data, Self::PAGE, "device identification page")?;
        let mut designators = Vec::new();
        let mut rest = page.tail(HEADER_LEN);
        while let Some((designator, next)) = Designator::decode(rest) {
            designators.push(designator);
            rest = next;
        }
        Ok(Self { designators })
    }

    /// Returns the best name of the logical unit. Compare this name to recognise that two paths lead to the
    /// same unit, or that the unit is the same after a reconnect.
    ///
    /// Names that are unique worldwide come first (NAA, EUI-64, UUID, SCSI name string, T10 vendor
    /// identification), then locally assigned NAA and vendor specific names. Of several names of the same
    /// rank, the longest is chosen, then the first.
    pub fn logical_unit_name(&self) -> Option<&Designator> {
        let names = self.designators.iter().filter_map(|name| Some((name.rank()?, name)));
        let best = names.min_by_key(|(rank, name)| (*rank, usize::MAX - name.bytes.len()));
        best.map(|(_, name)| name)
    }

    /// Returns whether the unit has a registered NAA name, which is preferred to all others. If the start of
    /// a long page has such a name, the rest of the page is not needed.
    pub fn has_registered_name(&self) -> bool {
        self.designators.iter().any(|name| name.rank() == Some(REGISTERED))
    }

    /// Returns the relative target port identifier of the port through which the page was read, as in REPORT
    /// TARGET PORT GROUPS (SPC-4 §7.8.6.7).
    pub fn relative_target_port(&self) -> Option<u16> {
        self.number_of_port(DesignatorType::RelativeTargetPort)
    }

    /// Returns the number of the target port group of the port through which the page was read (SPC-4
    /// §7.8.6.8).
    pub fn target_port_group(&self) -> Option<u16> {
        self.number_of_port(DesignatorType::TargetPortGroup)
    }

    /// Returns the number in the first complete designator of this type that names the port.
    fn number_of_port(&self, designator_type: DesignatorType) -> Option<u16> {
        let of_port = |name: &&Designator| {
            name.association == Association::TargetPort
                && name.designator_type == designator_type
                && name.bytes.len() == NUMBER_LEN
        };
        self.designators.iter().find(of_port).map(Designator::number)
    }
}

/// The best rank: that of NAA names that are not assigned locally.
const REGISTERED: u8 = 0;
/// The last rank of names that are unique worldwide.
const UNIQUE: u8 = 3;
/// The length of a port or group designator: two reserved bytes, then the number.
const NUMBER_LEN: usize = 4;
/// Length of the vendor at the start of a T10 vendor identification, bytes.
const VENDOR_LEN: usize = 8;

impl Designator {
    /// Returns the first designator of a list, and the rest of the list.
    fn decode(list: &[u8]) -> Option<(Self, &[u8])> {
        let (&[code_set, kind, _, len], rest) = list.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(len))?;
        let designator = Self {
            association: Association::from_code(kind >> 4),
            designator_type: DesignatorType::from_code(kind),
            code_set: CodeSet::from_code(code_set),
            bytes: bytes.to_vec(),
        };
        Some((designator, rest))
    }

    /// Returns the rank of a name of the logical unit; a lower rank is preferred. `None` for a name of a
    /// port or target, and for a name that does not distinguish units.
    fn rank(&self) -> Option<u8> {
        if self.association != Association::LogicalUnit || self.is_empty() {
            return None;
        }
        match self.designator_type {
            DesignatorType::Naa if self.is_locally_assigned_naa() => Some(6),
            DesignatorType::Naa => Some(REGISTERED),
            DesignatorType::Eui64 => Some(1),
            DesignatorType::Uuid => Some(2),
            DesignatorType::ScsiNameString => Some(3),
            DesignatorType::T10VendorId => Some(4),
            DesignatorType::Md5LogicalUnit => Some(5),
            DesignatorType::VendorSpecific => Some(7),
            DesignatorType::RelativeTargetPort
            | DesignatorType::TargetPortGroup
            | DesignatorType::LogicalUnitGroup
            | DesignatorType::ProtocolSpecificPort
            | DesignatorType::Reserved(_) => None,
        }
    }

    /// Returns whether no other unit worldwide has this name: NAA, EUI-64, UUID or SCSI name string of the
    /// unit. A locally assigned NAA, or a vendor specific name, may be used twice. A name of company 0,
    /// which is assigned to no vendor, may be used twice too: every tgt uses company 0, and numbers its
    /// units from 1.
    pub fn is_unique(&self) -> bool {
        self.rank().is_some_and(|rank| rank <= UNIQUE) && self.has_company()
    }

    /// Returns whether the company number in the name, if it has one, is not 0.
    fn has_company(&self) -> bool {
        let company = match (self.designator_type, self.bytes.as_slice()) {
            // The company number is not aligned to bytes (SPC-4 §7.8.6.6.3, §7.8.6.6.5).
            (DesignatorType::Naa, [first, second, third, fourth, ..]) if first >> 4 != 2 => {
                &[first & 0xf, *second, *third, fourth & 0xf0][..]
            }
            (DesignatorType::Naa, [_, _, company @ ..]) => company.get(..3).unwrap_or_default(),
            // In the longest form an extension precedes the company number (SPC-4 §7.8.6.5.4).
            (DesignatorType::Eui64, [_, _, _, _, _, _, _, _, company @ .., _, _, _, _, _])
                if company.len() == 3 =>
            {
                company
            }
            (DesignatorType::Eui64, bytes) => bytes.get(..3).unwrap_or_default(),
            _ => return true,
        };
        company.iter().any(|byte| *byte != 0)
    }

    /// Returns whether the name contains nothing that could distinguish units: only padding, or only the
    /// vendor, as LIO reports it for a unit without a serial number.
    fn is_empty(&self) -> bool {
        let is_t10 = self.designator_type == DesignatorType::T10VendorId;
        let own = self.bytes.get(if is_t10 { VENDOR_LEN } else { 0 }..).unwrap_or_default();
        own.iter().all(|byte| matches!(byte, 0 | b' '))
    }

    /// Returns whether the name is a locally assigned NAA (NAA 3h), which is unique only within one
    /// administration.
    fn is_locally_assigned_naa(&self) -> bool {
        self.bytes.first().is_some_and(|first| first >> 4 == 3)
    }

    fn is_text(&self) -> bool {
        matches!(self.code_set, CodeSet::Ascii | CodeSet::Utf8)
    }

    /// Returns the bytes as text if they are text, otherwise in hexadecimal.
    fn value(&self) -> String {
        match self.code_set {
            CodeSet::Ascii => text_of(&self.bytes),
            CodeSet::Utf8 => utf8_of(&self.bytes),
            CodeSet::Binary | CodeSet::Reserved(_) => {
                self.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    }

    /// Returns the number at the end of the four bytes of a port or group designator.
    fn number(&self) -> u16 {
        match self.bytes.as_slice() {
            [.., high, low] => u16::from_be_bytes([*high, *low]),
            [..] => 0,
        }
    }

    /// Writes the 16 bytes of the UUID, after the two header bytes, in groups (SPC-5, RFC 9562).
    fn write_uuid(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("uuid.")?;
        let uuid = self.bytes.get(2..).unwrap_or_default();
        for (at, byte) in uuid.iter().enumerate() {
            let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Designator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.designator_type {
            DesignatorType::Naa => write!(f, "naa.{}", self.value()),
            DesignatorType::Eui64 => write!(f, "eui.{}", self.value()),
            DesignatorType::T10VendorId => write!(f, "t10.{}", self.value()),
            DesignatorType::ScsiNameString if self.is_text() => f.write_str(&self.value()),
            DesignatorType::ScsiNameString => write!(f, "name.{}", self.value()),
            DesignatorType::Uuid => self.write_uuid(f),
            DesignatorType::VendorSpecific => write!(f, "vendor.{}", self.value()),
            DesignatorType::Md5LogicalUnit => write!(f, "md5.{}", self.value()),
            DesignatorType::RelativeTargetPort => write!(f, "port {}", self.number()),
            DesignatorType::TargetPortGroup => write!(f, "port group {}", self.number()),
            DesignatorType::LogicalUnitGroup => write!(f, "unit group {}", self.number()),
            DesignatorType::ProtocolSpecificPort => write!(f, "port {}", self.value()),
            DesignatorType::Reserved(code) => write!(f, "type {code}: {}", self.value()),
        }
    }
}

impl Association {
    const fn from_code(code: u8) -> Self {
        match code & 0x03 {
            0 => Self::LogicalUnit,
            1 => Self::TargetPort,
            2 => Self::TargetDevice,
            _ => Self::Reserved,
        }
    }
}

impl CodeSet {
    const fn from_code(code: u8) -> Self {
        match code & 0x0f {
            1 => Self::Binary,
            2 => Self::Ascii,
            3 => Self::Utf8,
            other => Self::Reserved(other),
        }
    }
}

impl DesignatorType {
    const fn from_code(code: u8) -> Self {
        match code & 0x0f {
            0x0 => Self::VendorSpecific,
            0x1 => Self::T10VendorId,
            0x2 => Self::Eui64,
            0x3 => Self::Naa,
            0x4 => Self::RelativeTargetPort,
            0x5 => Self::TargetPortGroup,
            0x6 => Self::LogicalUnitGroup,
            0x7 => Self::Md5LogicalUnit,
            0x8 => Self::ScsiNameString,
            0x9 => Self::ProtocolSpecificPort,
            0xa => Self::Uuid,
            other => Self::Reserved(other),
        }
    }
}
