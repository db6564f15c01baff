//! Records the known registrations of one disk with its key.

use iscsi_pdu::Isid;
use iscsi_pdu::scsi::reservation::{
    FullStatus, PersistentReserveOut, Registrant, Reservation, ReservationKey, ReservationType,
};

use crate::PathId;

/// Identifies the I_T nexus of a path: the ISID of its session stands for the initiator port, and the portal
/// group for the target port (RFC 7143 §4.4.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PathNexus {
    /// ISID of the session.
    pub isid: Isid,
    /// Target portal group tag, if the target reports it at the login.
    pub portal_group: Option<u16>,
}

/// An I_T nexus whose initiator port and target port are both known. The nexus outlives its sessions, and so
/// does its registration (SPC-4 §5.13.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Nexus {
    isid: Isid,
    portal_group: u16,
}

/// Forms of the command that registers a nexus, in the order in which the forms are tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// REGISTER AND IGNORE EXISTING KEY with APTPL: the unit keeps the registration over a loss of power.
    Persistent,
    /// REGISTER AND IGNORE EXISTING KEY without APTPL.
    Volatile,
    /// REGISTER, for a unit of SPC-2, which does not know REGISTER AND IGNORE EXISTING KEY.
    Spc2,
}

/// Result of READ FULL STATUS for a disk with uncertain registrations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Evidence {
    /// An acknowledged registration of the disk still exists.
    Registered,
    /// No acknowledged registration of the disk exists any more.
    Preempted,
    /// The data of READ FULL STATUS do not show which nexuses are registered.
    None,
}

/// A path of the disk.
#[derive(Clone, Copy, Debug)]
struct Member {
    path: PathId,
    nexus: PathNexus,
    /// Whether the path was registered. Otherwise a unit attention that reports a preemption over the path is
    /// not about a registration of the disk.
    is_registered: bool,
}

/// A nexus whose registration the unit has acknowledged. As far as is known, no other host has ended this
/// registration.
#[derive(Clone, Copy, Debug)]
struct Registered {
    nexus: Nexus,
    /// Whether the command that ends the registration was sent and has no status.
    may_have_ended: bool,
}

#[derive(Debug)]
pub(super) struct Registrations {
    key: ReservationKey,
    form: Form,
    is_preempted: bool,
    paths: Vec<Member>,
    registered: Vec<Registered>,
    /// Nexuses whose registration was sent and has no status. The unit may still execute it.
    uncertain: Vec<PathNexus>,
    /// Nexuses that have reserved the unit, or may have; `None` is a nexus with an unknown portal group. If
    /// the key of the disk holds a reservation, one of them made it, or the reservation is older than the
    /// disk.
    holders: Vec<Option<Nexus>>,
}

impl PathNexus {
    pub(super) fn known(self) -> Option<Nexus> {
        let Self { isid, portal_group } = self;
        portal_group.map(|portal_group| Nexus { isid, portal_group })
    }
}

impl Registrations {
    pub(super) const fn new(key: ReservationKey) -> Self {
        Self {
            key,
            form: Form::Persistent,
            is_preempted: false,
            paths: Vec::new(),
            registered: Vec::new(),
            uncertain: Vec::new(),
            holders: Vec::new(),
        }
    }

    pub(super) const fn key(&self) -> ReservationKey {
        self.key
    }

    pub(super) const fn is_preempted(&self) -> bool {
        self.is_preempted
    }

    pub(super) fn preempt(&mut self) {
        if !std::mem::replace(&mut self.is_preempted, true) {
            tracing::error!(key = %self.key, "the registration of the disk was ended by another host");
        }
    }

    pub(super) const fn form(&self) -> Form {
        self.form
    }

    /// Sets the form of later registrations, because the unit has refused another form, or accepted this one.
    pub(super) const fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// Returns the command that registers a nexus.
    pub(super) fn register(&self, form: Form) -> PersistentReserveOut {
        match form {
            Form::Persistent | Form::Volatile => {
                PersistentReserveOut::RegisterAndIgnoreExistingKey {
                    new_key: self.key,
                    persist_through_power_loss: form == Form::Persistent,
                    all_target_ports: false,
                }
            }
            Form::Spc2 => Self::change(ReservationKey::NONE, self.key, false),
        }
    }

    /// Returns a REGISTER of the key by a nexus that has this key already. The command changes nothing, and
    /// the unit refuses it with RESERVATION CONFLICT if the registration was ended.
    pub(super) fn proof(&self) -> PersistentReserveOut {
        Self::change(self.key, self.key, self.form == Form::Persistent)
    }

    /// Returns the command that ends the registration of a nexus.
    pub(super) fn unregister(&self) -> PersistentReserveOut {
        Self::change(self.key, ReservationKey::NONE, self.form == Form::Persistent)
    }

    const fn change(
        key: ReservationKey,
        new_key: ReservationKey,
        persist: bool,
    ) -> PersistentReserveOut {
        PersistentReserveOut::Register {
            key,
            new_key,
            persist_through_power_loss: persist,
            all_target_ports: false,
        }
    }

    pub(super) fn attach(&mut self, path: PathId, nexus: PathNexus) {
        debug_assert!(self.nexus_of(path).is_none(), "path {path} is attached already");
        self.paths.push(Member { path, nexus, is_registered: false });
    }

    pub(super) fn detach(&mut self, path: PathId) {
        self.paths.retain(|member| member.path != path);
    }

    pub(super) fn nexus_of(&self, path: PathId) -> Option<PathNexus> {
        self.paths.iter().find(|member| member.path == path).map(|member| member.nexus)
    }

    pub(super) fn is_registered(&self, path: PathId) -> bool {
        self.paths.iter().any(|member| member.path == path && member.is_registered)
    }

    pub(super) fn set_registered(&mut self, path: PathId, is_registered: bool) {
        if let Some(member) = self.paths.iter_mut().find(|member| member.path == path) {
            member.is_registered = is_registered;
        }
    }

    /// Returns whether the unit has acknowledged the registration of the nexus.
    pub(super) fn knows(&self, nexus: PathNexus) -> bool {
        self.registered.iter().any(|other| Some(other.nexus) == nexus.known())
    }

    /// Returns whether a registration of exactly this nexus was sent and has no status.
    pub(super) fn is_uncertain(&self, nexus: PathNexus) -> bool {
        nexus.portal_group.is_some() && self.uncertain.contains(&nexus)
    }

    /// Returns the number of registrations without a status, which the unit may have made or may still make.
    pub(super) const fn uncertain(&self) -> usize {
        self.uncertain.len()
    }

    /// Notes that the registration of a nexus is sent.
    pub(super) fn sent(&mut self, nexus: PathNexus) {
        self.uncertain.push(nexus);
    }

    /// Notes that the registration has a status: the nexus is registered or not.
    pub(super) fn answered(&mut self, nexus: PathNexus, is_registered: bool) {
        if let Some(at) = self.uncertain.iter().position(|other| *other == nexus) {
            self.uncertain.remove(at);
        }
        if is_registered {
            self.keep(nexus, false);
        }
    }

    /// Notes that the registration of the nexus was ended. Commands that its sessions sent before the last
    /// login have ended as well, so no late registration follows.
    pub(super) fn ended(&mut self, nexus: PathNexus) {
        self.answered(nexus, false);
        if nexus.portal_group.is_some() {
            self.uncertain.retain(|other| *other != nexus);
        }
    }

    /// Notes that the registration of a nexus has ended, or that its end is being sent.
    pub(super) fn forget(&mut self, nexus: PathNexus) {
        self.registered.retain(|other| Some(other.nexus) != nexus.known());
    }

    /// Notes that the nexus is registered; with `may_have_ended`, the end of the registration was not
    /// acknowledged.
    pub(super) fn keep(&mut self, nexus: PathNexus, may_have_ended: bool) {
        self.forget(nexus);
        self.registered.extend(nexus.known().map(|nexus| Registered { nexus, may_have_ended }));
    }

    /// Notes that the nexus is about to reserve the unit. Returns whether this nexus could not hold a
    /// reservation before.
    pub(super) fn may_hold(&mut self, nexus: Option<Nexus>) -> bool {
        let is_new = !self.holders.contains(&nexus);
        self.holders.extend(is_new.then_some(nexus));
        is_new
    }

    /// Notes that the nexus has reserved the unit, so that no other nexus holds the reservation.
    pub(super) fn holds(&mut self, nexus: Option<Nexus>) {
        self.holders.retain(|other| *other == nexus);
    }

    /// Notes that the unit has refused a reservation to the nexus.
    pub(super) fn does_not_hold(&mut self, nexus: Option<Nexus>) {
        self.holders.retain(|other| *other != nexus);
    }

    /// Returns whether the reservation of the unit outlives the registration of the nexus (SPC-4 §5.13.11.2):
    /// the nexus is neither the holder nor, if all registrants hold the reservation, the last registrant.
    /// Returns `false` if this is not certain.
    pub(super) fn is_outlived_by(&self, held: &Reservation, nexus: PathNexus) -> bool {
        let Some(nexus) = nexus.known() else { return false };
        let is_held_by_all = matches!(
            held.reservation_type,
            ReservationType::WriteExclusiveAllRegistrants
                | ReservationType::ExclusiveAccessAllRegistrants
        );
        if is_held_by_all {
            let mut others = self.registered.iter().filter(|other| other.nexus != nexus);
            return others.any(|other| !other.may_have_ended);
        }
        // If `holders` is empty, a reservation with this key is older than the disk, so its holder is unknown.
        let may_hold = |other: &Option<Nexus>| other.is_none_or(|other| other == nexus);
        let is_of_other = !self.holders.is_empty() && !self.holders.iter().any(may_hold);
        held.key != self.key || is_of_other
    }

    /// Returns whether the unit may have a registration with the key by a nexus of the disk.
    pub(super) fn may_be_left(&self) -> bool {
        let has_any = !self.registered.is_empty() || !self.uncertain.is_empty();
        has_any && !self.is_preempted
    }

    /// Evaluates the registrations by the ISIDs of their nexuses. If more registrations of an ISID are
    /// reported than are uncertain, one of them was acknowledged. Two nexuses with the same ISID at two
    /// target ports cannot be distinguished.
    pub(super) fn evidence(&self, status: &FullStatus) -> Evidence {
        let of_disk = status.registrants.iter().filter(|it| it.key == self.key);
        let isids = of_disk.filter_map(|it| it.initiator_port.isid());
        let mut is_ambiguous = !is_complete(status, self.key);
        for isid in isids {
            if reported_by(status, self.key, isid) > self.late_by(isid, None) {
                return Evidence::Registered;
            }
            is_ambiguous |= self.registered.iter().any(|it| it.nexus.isid == isid);
        }
        if is_ambiguous { Evidence::None } else { Evidence::Preempted }
    }

    /// Returns whether the unit has made a change of the registration of the nexus, by READ FULL STATUS: the
    /// nexus has the key `wanted`, or no key for [`NONE`](ReservationKey::NONE). Returns `None` if that is
    /// not certain. Unless `is_sole_change`, another host may have ended the registrations of the other
    /// nexuses.
    ///
    /// A session with the same ISID at another target port is another nexus. Its entry in the status looks
    /// the same as the entry of this nexus, and may still appear late, or be gone.
    pub(super) fn is_made(
        &self,
        status: &FullStatus,
        wanted: ReservationKey,
        nexus: PathNexus,
        is_sole_change: bool,
    ) -> Option<bool> {
        let by = if wanted.is_none() { self.key } else { wanted };
        let reported = reported_by(status, by, nexus.isid);
        let is_other = |other: &&Registered| {
            Some(other.nexus) != nexus.known() && other.nexus.isid == nexus.isid
        };
        let others = self.registered.iter().filter(is_other);
        let most = others.clone().count() + self.late_by(nexus.isid, Some(nexus));
        let least = others.filter(|other| is_sole_change && !other.may_have_ended).count();
        if reported > most {
            Some(!wanted.is_none())
        } else if !is_complete(status, by) {
            None
        } else if wanted.is_none() {
            (reported <= least).then_some(true)
        } else {
            (reported == 0).then_some(false)
        }
    }

    /// Returns the number of uncertain registrations from one initiator port, except the registration of
    /// `nexus`.
    fn late_by(&self, isid: Isid, nexus: Option<PathNexus>) -> usize {
        let late = self.uncertain.iter().filter(|other| other.isid == isid);
        late.filter(|other| Some(**other) != nexus).count()
    }
}

/// Returns the number of registrations with a key from one initiator port.
fn reported_by(status: &FullStatus, key: ReservationKey, isid: Isid) -> usize {
    let is_by_port = |it: &&Registrant| it.key == key && it.initiator_port.isid() == Some(isid);
    status.registrants.iter().filter(is_by_port).count()
}

/// Returns whether READ FULL STATUS names the initiator port of each registration with a key.
fn is_complete(status: &FullStatus, key: ReservationKey) -> bool {
    let has_port = |it: &Registrant| it.key != key || it.initiator_port.isid().is_some();
    !status.is_truncated() && status.registrants.iter().all(has_port)
}
