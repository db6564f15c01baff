//! Target port groups: the ports of an array, and the access state of each group (SPC-4 §5.11, §6.37, §6.45).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::asymmetric::{AccessState, REPORT_TARGET_PORT_GROUPS, SET_TARGET_PORT_GROUPS};
use super::sense::Sense;
use super::work::{Sink, Work, answer};
use crate::convert::{be, be32, len32};

/// The target port groups of an array. Clones are handles of the same array: each
/// [`Target`](crate::target::Target) is one of its ports, and a change through one handle applies to all.
#[derive(Clone, Debug)]
pub struct PortGroups(Arc<Mutex<Groups>>);

/// A group of ports, which share one state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub id: u16,
    /// Relative target port identifiers of the ports in the group.
    pub ports: Vec<u16>,
    /// The access state of the ports.
    pub state: AccessState,
    /// PREF.
    pub preferred: bool,
    /// STATUS CODE: 1 after SET TARGET PORT GROUPS, 2 after a change by the array itself.
    status: u8,
}

/// One port of an array.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetPort {
    /// The array.
    pub groups: PortGroups,
    /// The relative target port identifier of the port.
    pub port: u16,
}

#[derive(Debug)]
struct Groups {
    groups: Vec<PortGroup>,
    /// TPGS of INQUIRY data.
    support: u8,
    implicit_transition_time: u8,
    knows_extended_header: bool,
    /// Whether REPORT TARGET PORT GROUPS is refused, whatever TPGS is.
    is_silent: bool,
    /// Number of changes that sessions must be informed about.
    changes: u64,
}

impl PortGroup {
    /// Creates a group in the state active/optimized that is not preferred.
    #[must_use]
    pub fn new(id: u16, ports: impl Into<Vec<u16>>) -> Self {
        let (ports, state) = (ports.into(), AccessState::ActiveOptimized);
        Self { id, ports, state, preferred: false, status: 0 }
    }

    /// Sets the state of the group.
    #[must_use]
    pub const fn with_state(mut self, state: AccessState) -> Self {
        self.state = state;
        self
    }

    /// Makes the group preferred.
    #[must_use]
    pub const fn preferred(mut self) -> Self {
        self.preferred = true;
        self
    }
}

impl TargetPort {
    /// Creates the port with this relative target port identifier.
    #[must_use]
    pub const fn new(groups: PortGroups, port: u16) -> Self {
        Self { groups, port }
    }

    /// Returns the access state of the port: that of its group, or active/optimized if it is in no group.
    pub(crate) fn state(&self) -> AccessState {
        self.groups
            .lock()
            .group_of(self.port)
            .map_or_else(AccessState::default, |group| group.state)
    }

    /// Returns the designators of port and group (SPC-4 §7.8.6.7, §7.8.6.8), for VPD page 83h.
    pub(super) fn designators(&self) -> Vec<u8> {
        let [high, low] = self.port.to_be_bytes();
        let mut body = vec![0x51, 0x94, 0, 4, 0, 0, high, low];
        if let Some(group) = self.groups.lock().group_of(self.port) {
            let [high, low] = group.id.to_be_bytes();
            body.extend([0x51, 0x95, 0, 4, 0, 0, high, low]);
        }
        body
    }
}

impl PortGroups {
    /// Creates an array with these groups. Both the array and SET TARGET PORT GROUPS may change the states of
    /// the groups (TPGS 11b).
    #[must_use]
    pub fn new(groups: impl Into<Vec<PortGroup>>) -> Self {
        Self(Arc::new(Mutex::new(Groups {
            groups: groups.into(),
            support: 3,
            implicit_transition_time: 0,
            knows_extended_header: true,
            is_silent: false,
            changes: 0,
        })))
    }

    /// Sets TPGS: 0 none, 1 implicit, 2 explicit, 3 both. Without explicit support, SET TARGET PORT GROUPS is
    /// refused; without any support, REPORT TARGET PORT GROUPS is refused too.
    pub fn set_support(&self, support: u8) {
        self.lock().support = support & 3;
    }

    /// Sets the time in seconds that a transition may take; 0 reports no time.
    pub fn set_implicit_transition_time(&self, seconds: u8) {
        self.lock().implicit_transition_time = seconds;
    }

    /// Refuses the extended header of REPORT TARGET PORT GROUPS, as arrays before SPC-4 do.
    pub fn refuse_extended_header(&self) {
        self.lock().knows_extended_header = false;
    }

    /// Refuses REPORT TARGET PORT GROUPS, whatever TPGS of INQUIRY says.
    pub fn refuse_reports(&self) {
        self.lock().is_silent = true;
    }

    /// Changes the state of a group, as the array itself does. Each session, through any port, receives the unit
    /// attention ASYMMETRIC ACCESS STATE CHANGED, except for a change to [`AccessState::Transitioning`].
    pub fn set_state(&self, id: u16, state: AccessState) {
        let mut groups = self.lock();
        let Some(group) = groups.groups.iter_mut().find(|group| group.id == id) else { return };
        if std::mem::replace(&mut group.state, state) == state {
            return;
        }
        group.status = 2;
        if state != AccessState::Transitioning {
            groups.changes += 1;
        }
    }

    /// Sets whether the array prefers this group. Each session receives the unit attention ASYMMETRIC ACCESS
    /// STATE CHANGED if this is a change.
    pub fn set_preferred(&self, id: u16, preferred: bool) {
        let mut groups = self.lock();
        let Some(group) = groups.groups.iter_mut().find(|group| group.id == id) else { return };
        if std::mem::replace(&mut group.preferred, preferred) != preferred {
            groups.changes += 1;
        }
    }

    /// Returns the state of a group; `None` if there is no group with this number.
    #[must_use]
    pub fn state(&self, id: u16) -> Option<AccessState> {
        self.lock().groups.iter().find(|group| group.id == id).map(|group| group.state)
    }

    /// Returns the number of changes that sessions must be informed about.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Returns TPGS, as in byte 5 of INQUIRY data.
    pub(super) fn support_bits(&self) -> u8 {
        self.lock().support << 4
    }

    /// Serves MAINTENANCE IN: REPORT TARGET PORT GROUPS.
    pub(super) fn maintenance_in(&self, cdb: [u8; 16]) -> Result<Work, Sense> {
        let groups = self.lock();
        if groups.support == 0 || groups.is_silent {
            return Err(Sense::INVALID_OPCODE);
        }
        let is_extended = match cdb[1] >> 5 {
            0 => false,
            1 if groups.knows_extended_header => true,
            _ => return Err(Sense::INVALID_FIELD),
        };
        if cdb[1] & 0x1f != REPORT_TARGET_PORT_GROUPS {
            return Err(Sense::INVALID_FIELD);
        }
        Ok(answer(groups.report(is_extended), be(&cdb[6..], 4)))
    }

    /// Starts MAINTENANCE OUT: SET TARGET PORT GROUPS, whose parameter list follows.
    pub(super) fn maintenance_out(&self, cdb: [u8; 16]) -> Result<Work, Sense> {
        if self.lock().support & 2 == 0 {
            return Err(Sense::INVALID_OPCODE);
        }
        if cdb[1] & 0x1f != SET_TARGET_PORT_GROUPS {
            return Err(Sense::INVALID_FIELD);
        }
        match be32(&cdb[6..]) {
            0 => Ok(Work::Done),
            length => Ok(Work::Take(Sink::Parameters(Vec::new()), length.into())),
        }
    }

    /// Executes SET TARGET PORT GROUPS, and returns the number of changes that other sessions must be
    /// informed about.
    pub(crate) fn set(&self, parameters: &[u8]) -> Result<u64, Sense> {
        let mut groups = self.lock();
        let Some(descriptors) = parameters.get(4..).filter(|rest| rest.len().is_multiple_of(4))
        else {
            return Err(Sense::PARAMETER_LENGTH);
        };
        let mut states = Vec::new();
        for descriptor in descriptors.chunks_exact(4) {
            let state = AccessState::primary(descriptor[0]).ok_or(Sense::INVALID_PARAMETER)?;
            let id = u16::from_be_bytes([descriptor[2], descriptor[3]]);
            let at = groups.groups.iter().position(|group| group.id == id);
            states.push((at.ok_or(Sense::INVALID_PARAMETER)?, state));
        }
        let before = groups.changes;
        for (at, state) in states {
            let group = &mut groups.groups[at];
            group.status = 1;
            if std::mem::replace(&mut group.state, state) != state {
                groups.changes += 1;
            }
        }
        Ok(groups.changes - before)
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Groups {
    fn group_of(&self, port: u16) -> Option<&PortGroup> {
        self.groups.iter().find(|group| group.ports.contains(&port))
    }

    /// Returns the parameter data of REPORT TARGET PORT GROUPS.
    fn report(&self, is_extended: bool) -> Vec<u8> {
        let header: &[u8] =
            if is_extended { &[0x10, self.implicit_transition_time, 0, 0] } else { &[] };
        let descriptors = self.groups.iter().flat_map(PortGroup::descriptor);
        let body: Vec<u8> = header.iter().copied().chain(descriptors).collect();
        let mut data = len32(body.len()).to_be_bytes().to_vec();
        data.extend(body);
        data
    }
}

/// T_SUP, O_SUP, U_SUP, S_SUP, AN_SUP and AO_SUP: all states but logical block dependent.
const SUPPORTED: u8 = 0xcf;

impl PortGroup {
    fn descriptor(&self) -> Vec<u8> {
        let preferred = if self.preferred { 0x80 } else { 0 };
        let [high, low] = self.id.to_be_bytes();
        let count = u8::try_from(self.ports.len()).unwrap_or(u8::MAX);
        let first = preferred | self.state.code();
        let mut bytes = vec![first, SUPPORTED, high, low, 0, self.status, 0, count];
        for port in self.ports.iter().take(count.into()) {
            bytes.extend([0, 0]);
            bytes.extend(port.to_be_bytes());
        }
        bytes
    }
}
