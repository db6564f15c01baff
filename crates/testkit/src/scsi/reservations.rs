//! Persistent reservations of a unit: registrations, the holder, and the commands that each nexus may send (SPC-4
//! §5.13).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::operation;
use super::sense::Sense;

/// The registrations of a unit. Clones are handles of the same unit, shared by the
/// [`Target`](crate::target::Target)s that are its ports.
#[derive(Clone, Debug, Default)]
pub struct Reservations(Arc<Mutex<State>>);

/// An I_T nexus: the initiator port and the target port of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registrant {
    /// The initiator's name.
    pub initiator: String,
    /// The ISID of its session, 48 bits.
    pub isid: u64,
    /// The relative target port identifier.
    pub target_port: u16,
}

/// The registration of a nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registration {
    /// The registered nexus.
    pub registrant: Registrant,
    /// The reservation key, not 0.
    pub key: u64,
    /// Whether the registration applies to all ports of the target (ALL_TG_PT).
    pub all_ports: bool,
}

/// The reservation of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The registration that holds the reservation, or one of them if all registrants hold it.
    pub(super) registration: Registration,
    pub(super) kind: Kind,
}

/// The type of a reservation (SPC-4 §6.15.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WriteExclusive,
    ExclusiveAccess,
    WriteExclusiveRegistrantsOnly,
    ExclusiveAccessRegistrantsOnly,
    WriteExclusiveAllRegistrants,
    ExclusiveAccessAllRegistrants,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) generation: u32,
    pub(super) registrations: Vec<Registration>,
    pub(super) held: Option<Held>,
    /// Whether registrations and the reservation survive a loss of power (APTPL).
    pub(super) persists: bool,
    /// Unit attentions that wait for the next command of their nexus.
    attentions: Vec<Attention>,
}

/// A unit attention about a change to a registration.
#[derive(Debug)]
struct Attention {
    registration: Registration,
    sense: Sense,
    /// Target ports at which the unit attention was reported or dropped. A registration for all ports stands
    /// for several nexuses, one per port.
    reported_to: Vec<u16>,
}

impl Attention {
    fn waits_for(&self, nexus: &Registrant) -> bool {
        self.registration.is_of(nexus) && !self.reported_to.contains(&nexus.target_port)
    }
}

impl Kind {
    pub(super) const fn from_code(code: u8) -> Option<Self> {
        match code & 0x0f {
            1 => Some(Self::WriteExclusive),
            3 => Some(Self::ExclusiveAccess),
            5 => Some(Self::WriteExclusiveRegistrantsOnly),
            6 => Some(Self::ExclusiveAccessRegistrantsOnly),
            7 => Some(Self::WriteExclusiveAllRegistrants),
            8 => Some(Self::ExclusiveAccessAllRegistrants),
            _ => None,
        }
    }

    pub(super) const fn code(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 3,
            Self::WriteExclusiveRegistrantsOnly => 5,
            Self::ExclusiveAccessRegistrantsOnly => 6,
            Self::WriteExclusiveAllRegistrants => 7,
            Self::ExclusiveAccessAllRegistrants => 8,
        }
    }

    pub(super) const fn is_of_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Returns whether every registrant may do what the holder may do.
    pub(super) const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    const fn is_write_exclusive(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive
                | Self::WriteExclusiveRegistrantsOnly
                | Self::WriteExclusiveAllRegistrants
        )
    }
}

impl Registration {
    /// Returns whether the registration belongs to the nexus.
    pub(crate) fn is_of(&self, nexus: &Registrant) -> bool {
        let same = (&self.registrant.initiator, self.registrant.isid);
        let port = self.all_ports || self.registrant.target_port == nexus.target_port;
        same == (&nexus.initiator, nexus.isid) && port
    }
}

impl Reservations {
    /// Returns PRGENERATION.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.lock().generation
    }

    /// Returns the registrations.
    #[must_use]
    pub fn registrations(&self) -> Vec<Registration> {
        self.lock().registrations.clone()
    }

    /// Returns the keys that are registered, one for each registration.
    #[must_use]
    pub fn keys(&self) -> Vec<u64> {
        self.lock().registrations.iter().map(|registration| registration.key).collect()
    }

    /// Returns the type of the reservation, and the key of one of its holders.
    #[must_use]
    pub fn holder(&self) -> Option<(u8, u64)> {
        self.lock().held.as_ref().map(|held| (held.kind.code(), held.registration.key))
    }

    /// Loses power: removes registrations and reservation, unless APTPL is set.
    pub(crate) fn lose_power(&self) {
        let mut state = self.lock();
        if !state.persists {
            *state = State::default();
        }
    }

    /// Drops the waiting unit attentions, so that the unit behaves like a target that does not report the end
    /// of a registration.
    pub fn drop_attentions(&self) {
        self.lock().attentions.clear();
    }

    /// Drops the unit attentions that wait for a nexus, because a new session of the nexus begins: they are
    /// lost with the old session (SAM-5 §5.14.1). The registration is kept (SPC-4 §5.13.1).
    pub(crate) fn forget_attentions(&self, nexus: &Registrant) {
        while self.take_attention(nexus).is_some() {}
    }

    /// Moves the registration of a nexus to an ISID that no session can have. This is for units where each
    /// session is a separate nexus, so that the registration stays without belonging to the new session.
    pub(crate) fn orphan(&self, nexus: &Registrant) {
        const NOBODY: u64 = 1 << 48;
        let mut state = self.lock();
        let rename = |registration: &mut Registration| {
            if registration.is_of(nexus) {
                registration.registrant.isid |= NOBODY;
            }
        };
        state.registrations.iter_mut().for_each(rename);
        if let Some(held) = &mut state.held {
            rename(&mut held.registration);
        }
    }

    /// Removes and returns the next unit attention of the nexus.
    pub(crate) fn take_attention(&self, nexus: &Registrant) -> Option<Sense> {
        let mut state = self.lock();
        let at = state.attentions.iter().position(|it| it.waits_for(nexus))?;
        let attention = &mut state.attentions[at];
        if attention.registration.all_ports {
            attention.reported_to.push(nexus.target_port);
            return Some(attention.sense);
        }
        Some(state.attentions.remove(at).sense)
    }

    /// Returns whether the nexus has the initiator name of the reservation's holder, but another random part
    /// of the ISID.
    pub(crate) fn is_hidden(&self, nexus: &Registrant) -> bool {
        let state = self.lock();
        let holder = state.held.as_ref().map(|held| &held.registration.registrant);
        // The last two bytes of an ISID are a counter within a process, so they are not compared.
        holder.is_some_and(|holder| {
            holder.initiator == nexus.initiator && holder.isid >> 16 != nexus.isid >> 16
        })
    }

    /// Returns whether the reservation permits a command of the nexus. If `is_hidden`, a registration of the
    /// nexus is ignored.
    pub(crate) fn admits(&self, nexus: &Registrant, cdb: [u8; 16], is_hidden: bool) -> bool {
        let state = self.lock();
        let Some(held) = &state.held else { return true };
        let is_registered = state.registrations.iter().any(|it| it.is_of(nexus));
        let holds = held.registration.is_of(nexus);
        holds
            || held.kind.admits_registrants() && is_registered && !is_hidden
            || passes(cdb, held.kind.is_write_exclusive())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn registration(&self, nexus: &Registrant) -> Option<&Registration> {
        self.registrations.iter().find(|registration| registration.is_of(nexus))
    }

    /// Returns whether the registration holds the reservation, alone or with others.
    pub(super) fn holds(&self, registration: &Registration) -> bool {
        let Some(held) = &self.held else { return false };
        held.kind.is_of_all() || held.registration == *registration
    }

    pub(super) fn queue_attention(&mut self, registration: &Registration, sense: Sense) {
        let is_same = |it: &Attention| it.registration == *registration && it.sense == sense;
        self.attentions.retain(|it| !is_same(it));
        let registration = registration.clone();
        self.attentions.push(Attention { registration, sense, reported_to: Vec::new() });
    }
}

/// Returns whether every nexus may send the command despite a reservation (SPC-4 table 63, SBC-3 table 13).
fn passes(cdb: [u8; 16], is_write_exclusive: bool) -> bool {
    match cdb[0] {
        operation::TEST_UNIT_READY
        | operation::INQUIRY
        | operation::REQUEST_SENSE
        | operation::REPORT_LUNS
        | operation::READ_CAPACITY_10
        | operation::MAINTENANCE_IN
        | operation::PERSISTENT_RESERVE_IN
        // The service actions of this command have separate rules.
        | operation::PERSISTENT_RESERVE_OUT => true,
        operation::SERVICE_ACTION_IN_16 => cdb[1] & 0x1f == 0x10 || is_write_exclusive,
        operation::MODE_SENSE_6
        | operation::MODE_SENSE_10
        | operation::READ_10
        | operation::READ_16 => is_write_exclusive,
        _ => false,
    }
}
