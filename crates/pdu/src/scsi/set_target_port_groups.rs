//! SET TARGET PORT GROUPS parameter list: the requested states of groups of ports (SPC-4 §6.45).

use super::{AccessState, FormatError};
use bytes::{BufMut, Bytes, BytesMut};

/// The parameter list of SET TARGET PORT GROUPS: the requested states (SPC-4 §6.45).
///
/// ```
/// use iscsi_pdu::scsi::{AccessState, Cdb, SetTargetPortGroups};
///
/// let mut list = SetTargetPortGroups::new();
/// list.set_group(1, AccessState::ActiveOptimized)?;
/// let cdb = Cdb::set_target_port_groups(list.parameter_list_length());
/// assert_eq!(list.encode()[..], [0, 0, 0, 0, 0, 0, 0, 1]);
/// # assert_eq!(cdb.as_bytes()[9], 8);
/// # Ok::<(), iscsi_pdu::scsi::FormatError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetTargetPortGroups {
    /// Invariant: at most [`Self::MAX_DESCRIPTORS`]; a primary state is for a group, and offline is for a
    /// port.
    descriptors: Vec<(AccessState, u16)>,
}

impl SetTargetPortGroups {
    /// The most descriptors that are accepted: one for each group and each port that a 16-bit number can
    /// identify.
    pub const MAX_DESCRIPTORS: usize = 2 << 16;

    const HEADER_LEN: u32 = 4;
    const DESCRIPTOR_LEN: u32 = 4;

    /// Creates an empty list, which changes nothing.
    pub const fn new() -> Self {
        Self { descriptors: Vec::new() }
    }

    /// Requests a state for all ports of the group with the number `group`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Field`] for a state that the command cannot request for a group. It can request
    /// active/optimized, active/non-optimized, standby and unavailable. [`FormatError::TooLong`] if the list
    /// is full.
    pub fn set_group(&mut self, group: u16, state: AccessState) -> Result<(), FormatError> {
        match state {
            AccessState::ActiveOptimized
            | AccessState::ActiveNonOptimized
            | AccessState::Standby
            | AccessState::Unavailable => self.push(state, group),
            AccessState::LogicalBlockDependent
            | AccessState::Offline
            | AccessState::Transitioning
            | AccessState::Reserved(_) => Err(FormatError::Field {
                format: FORMAT,
                field: "ASYMMETRIC ACCESS STATE",
                value: state.code().into(),
            }),
        }
    }

    /// Requests the state offline for the port with the relative target port identifier `port`.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooLong`] if the list is full.
    pub fn set_port_offline(&mut self, port: u16) -> Result<(), FormatError> {
        self.push(AccessState::Offline, port)
    }

    fn push(&mut self, state: AccessState, number: u16) -> Result<(), FormatError> {
        if self.descriptors.len() >= Self::MAX_DESCRIPTORS {
            let len = self.descriptors.len() + 1;
            return Err(FormatError::TooLong { format: FORMAT, len, limit: Self::MAX_DESCRIPTORS });
        }
        self.descriptors.push((state, number));
        Ok(())
    }

    /// Returns the length of the encoded list, bytes, for
    /// [`Cdb::set_target_port_groups`](super::Cdb::set_target_port_groups).
    pub fn parameter_list_length(&self) -> u32 {
        let count = u32::try_from(self.descriptors.len()).unwrap_or_default();
        Self::HEADER_LEN + count * Self::DESCRIPTOR_LEN
    }

    /// Returns the list as it is sent.
    pub fn encode(&self) -> Bytes {
        let mut list = BytesMut::new();
        list.put_u32(0);
        for (state, number) in &self.descriptors {
            list.put_u8(state.code());
            list.put_u8(0);
            list.put_u16(*number);
        }
        list.freeze()
    }
}

/// The format's name in the standard.
const FORMAT: &str = "SET TARGET PORT GROUPS parameter list";
