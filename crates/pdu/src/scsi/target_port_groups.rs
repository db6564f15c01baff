//! REPORT TARGET PORT GROUPS parameter data: the ports of a unit and their states (SPC-4 §6.37).

use super::{
    AccessState, FormatError,
    fields::{Fields, to_usize},
};

/// The requested header of the parameter data (SPC-4 §6.37, PARAMETER DATA FORMAT).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PortGroupsHeader {
    /// 000b: only the length; every device with the command supports this header.
    LengthOnly,
    /// 001b: the length, and how long a transition may take. A device older than SPC-4 refuses this header
    /// with INVALID FIELD IN CDB, or sends the length-only header.
    Extended,
}

impl PortGroupsHeader {
    /// Returns the bits of byte 1 of the CDB, above the service action.
    pub(super) const fn bits(self) -> u8 {
        match self {
            Self::LengthOnly => 0b000 << 5,
            Self::Extended => 0b001 << 5,
        }
    }
}

/// Parameter data of REPORT TARGET PORT GROUPS (SPC-4 §6.37).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TargetPortGroups {
    /// The groups in the order of the data. A target may omit groups that have none of its ports.
    pub groups: Vec<TargetPortGroup>,
    /// IMPLICIT TRANSITION TIME: how long to wait for a transition that the device began by itself, 1 to 255
    /// seconds; `None` if the device does not report it.
    pub implicit_transition_time: Option<u8>,
    /// RETURN DATA LENGTH: number of bytes after this field, also those that did not fit.
    pub return_data_length: u32,
    /// Whether groups are missing that RETURN DATA LENGTH counts.
    truncated: bool,
}

/// One group of target ports, which share one access state for the unit (SPC-4 §6.37, target port group
/// descriptor).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TargetPortGroup {
    /// PREF: the device prefers commands through this group.
    pub preferred: bool,
    /// ASYMMETRIC ACCESS STATE.
    pub state: AccessState,
    /// The states that the group can be in.
    pub supported: SupportedStates,
    /// TARGET PORT GROUP: the number of the group.
    pub id: u16,
    /// STATUS CODE: whether a host or the device set the state.
    pub status: StateChange,
    /// A vendor-specific byte.
    pub vendor_specific: u8,
    /// The relative target port identifiers of the group's ports.
    pub ports: Vec<u16>,
}

/// The states that a group of ports can be in (SPC-4 §6.37, the bits that end in `_SUP`).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SupportedStates(pub u8);

/// Origin of the state of a group: a host or the device (SPC-4 §6.37, STATUS CODE).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StateChange {
    /// 00h: the device does not report the origin.
    NotReported,
    /// 01h: SET TARGET PORT GROUPS set the state.
    Explicit,
    /// 02h: the device changed the state by itself.
    Implicit,
    /// A reserved code, 3 to 255.
    Reserved(u8),
}

impl TargetPortGroups {
    /// An allocation length that is enough for most devices, bytes: 8 bytes of header and some dozen groups.
    pub const ALLOCATION_LENGTH: u32 = 1024;

    /// Length of the length-only header, bytes.
    const LENGTH_ONLY_LEN: usize = 4;
    /// Length of the extended header, bytes.
    const EXTENDED_LEN: usize = 8;

    /// Reads the parameter data; a truncated descriptor, and everything after it, is omitted.
    ///
    /// The format type in byte 4 determines the header, because a device may send another header than the
    /// requested one. After a length-only header, a descriptor has reserved bits at this place.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        const FORMAT: &str = "REPORT TARGET PORT GROUPS data";
        let fields = Fields::new(data, FORMAT, Self::LENGTH_ONLY_LEN)?;
        let return_data_length = fields.u32(0);
        let end = to_usize(return_data_length).saturating_add(Self::LENGTH_ONLY_LEN);
        let fields = fields.cut(end);
        let extended = fields.u8(4) & FORMAT_TYPE == EXTENDED;
        let header = if extended { Self::EXTENDED_LEN } else { Self::LENGTH_ONLY_LEN };
        let mut rest = fields.tail(header);
        let mut groups = Vec::new();
        while let Some((group, next)) = TargetPortGroup::decode(rest) {
            groups.push(group);
            rest = next;
        }
        let time = if extended { fields.u8(5) } else { 0 };
        let truncated = data.len() < end || !rest.is_empty();
        let implicit_transition_time = (time != 0).then_some(time);
        Ok(Self { groups, implicit_transition_time, return_data_length, truncated })
    }

    /// Returns whether groups are missing in the data: send the command again with
    /// [`allocation_length`](Self::allocation_length). This may stay true if the device counts wrongly.
    pub const fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the allocation length for the whole data, bytes.
    pub const fn allocation_length(&self) -> u32 {
        self.return_data_length.saturating_add(4)
    }

    /// Returns the group with this number.
    pub fn group(&self, id: u16) -> Option<&TargetPortGroup> {
        self.groups.iter().find(|group| group.id == id)
    }

    /// Returns the group of the port with this relative target port identifier.
    pub fn group_of_port(&self, port: u16) -> Option<&TargetPortGroup> {
        self.groups.iter().find(|group| group.ports.contains(&port))
    }
}

/// Mask of FORMAT TYPE in byte 4 of the extended header.
const FORMAT_TYPE: u8 = 0x70;
/// The format type of the extended header.
const EXTENDED: u8 = 0x10;
/// PREF in byte 0 of a descriptor.
const PREFERRED: u8 = 0x80;

impl TargetPortGroup {
    /// Returns the first group of a list, and the rest of the list.
    fn decode(list: &[u8]) -> Option<(Self, &[u8])> {
        let (&[first, supported, high, low, _, status, vendor_specific, count], rest) =
            list.split_first_chunk()?;
        let (ports, rest) = rest.split_at_checked(usize::from(count) * 4)?;
        let (ports, _) = ports.as_chunks();
        let group = Self {
            preferred: first & PREFERRED != 0,
            state: AccessState::from_code(first),
            supported: SupportedStates(supported),
            id: u16::from_be_bytes([high, low]),
            status: StateChange::from_code(status),
            vendor_specific,
            ports: ports
                .iter()
                .map(|[_, _, high, low]| u16::from_be_bytes([*high, *low]))
                .collect(),
        };
        Some((group, rest))
    }
}

impl SupportedStates {
    /// Returns whether the group can be in the state; `false` for a reserved state.
    pub const fn contains(self, state: AccessState) -> bool {
        let bit = match state {
            AccessState::ActiveOptimized => 0x01,
            AccessState::ActiveNonOptimized => 0x02,
            AccessState::Standby => 0x04,
            AccessState::Unavailable => 0x08,
            AccessState::LogicalBlockDependent => 0x10,
            AccessState::Offline => 0x40,
            AccessState::Transitioning => 0x80,
            AccessState::Reserved(_) => 0,
        };
        self.0 & bit != 0
    }
}

impl StateChange {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::NotReported,
            1 => Self::Explicit,
            2 => Self::Implicit,
            other => Self::Reserved(other),
        }
    }
}
