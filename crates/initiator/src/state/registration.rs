//! The reservation key of a disk: by which nexuses it is registered with the unit, and whether it still is
//! (SPC-4 §5.13).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use iscsi_pdu::Isid;
use iscsi_pdu::scsi::AdditionalSense;
use iscsi_pdu::scsi::reservation::{
    PersistentReserveOut, Reservation, ReservationKey, ReservationType,
};

use crate::error::Error;

/// An I_T nexus of this initiator with the target of a disk: the ISID of a session, and the portal group, which
/// is the target port (RFC 7143 §4.4.1). It outlives its sessions, and so does its registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Nexus {
    pub(crate) isid: Isid,
    pub(crate) portal_group: u16,
}

/// The registrations of one disk by its key.
///
/// Invariant: once another has ended one of them, none is made any more. Whoever fences this host off relies
/// on it.
#[derive(Debug)]
pub(crate) struct Registration {
    key: ReservationKey,
    /// APTPL: the unit keeps them over a loss of power.
    persists: AtomicBool,
    was_preempted: AtomicBool,
    nexuses: Mutex<Nexuses>,
    /// One registers at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Nexuses {
    /// Those that the unit has acknowledged, and nobody has ended as far as is known.
    registered: Vec<Nexus>,
    /// Those that were to be registered, and the unit has not answered: it may still do it.
    uncertain: Vec<Option<Nexus>>,
    /// Those that have reserved the unit, or may have: one of them holds a reservation by the key.
    holders: Vec<Option<Nexus>>,
}

impl Registration {
    pub(crate) fn new(key: ReservationKey) -> Self {
        Self {
            key,
            persists: AtomicBool::new(true),
            was_preempted: AtomicBool::new(false),
            nexuses: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) const fn key(&self) -> ReservationKey {
        self.key
    }

    /// Waits until nobody else registers.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Registers a nexus, whatever key it has.
    pub(crate) fn beginning(&self) -> PersistentReserveOut {
        PersistentReserveOut::RegisterAndIgnoreExistingKey {
            new_key: self.key,
            persist_through_power_loss: self.persists.load(Ordering::Relaxed),
            all_target_ports: false,
        }
    }

    /// Registers a nexus that has this key with the same one: the unit itself refuses that where another has
    /// ended its registration.
    pub(crate) fn proof(&self) -> PersistentReserveOut {
        self.changed_to(self.key)
    }

    /// Ends the registration of a nexus.
    pub(crate) fn end(&self) -> PersistentReserveOut {
        self.changed_to(ReservationKey::NONE)
    }

    fn changed_to(&self, new_key: ReservationKey) -> PersistentReserveOut {
        PersistentReserveOut::Register {
            key: self.key,
            new_key,
            persist_through_power_loss: self.persists.load(Ordering::Relaxed),
            all_target_ports: false,
        }
    }

    /// The unit does not keep registrations over a loss of power. Says whether it was asked to before.
    pub(crate) fn give_up_persistence(&self) -> bool {
        self.persists.swap(false, Ordering::Relaxed)
    }

    /// Another has ended a registration; the error of all requests from now on.
    pub(crate) fn preempt(&self) -> Error {
        if !self.was_preempted.swap(true, Ordering::SeqCst) {
            tracing::error!(key = %self.key, "the registration of the disk was ended by another");
        }
        Error::Preempted { key: self.key }
    }

    /// The error of all requests, if another has ended a registration.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        let was_preempted = self.was_preempted.load(Ordering::SeqCst);
        if was_preempted { Err(Error::Preempted { key: self.key }) } else { Ok(()) }
    }

    /// Whether the unit has acknowledged the registration of the nexus.
    pub(crate) fn knows(&self, nexus: Option<Nexus>) -> bool {
        nexus.is_some_and(|nexus| self.lock().registered.contains(&nexus))
    }

    /// Number of registered nexuses with this ISID at other target ports.
    pub(crate) fn nexuses_beside(&self, nexus: Option<Nexus>, isid: Isid) -> usize {
        let nexuses = self.lock();
        let others = nexuses.registered.iter().filter(|other| Some(**other) != nexus);
        others.filter(|other| other.isid == isid).count()
    }

    /// A nexus that has just logged in is to be registered: what its last session had sent is past. Gives back
    /// how many registrations by the key the others may still bring about.
    pub(crate) fn prepare(&self, nexus: Option<Nexus>) -> usize {
        let mut nexuses = self.lock();
        nexuses.uncertain.retain(|other| nexus.is_none() || *other != nexus);
        nexuses.uncertain.len()
    }

    /// The registration of a nexus is on its way.
    pub(crate) fn begin(&self, nexus: Option<Nexus>) {
        self.lock().uncertain.push(nexus);
    }

    /// It is answered: done, or not.
    pub(crate) fn answered(&self, nexus: Option<Nexus>, is_registered: bool) {
        let mut nexuses = self.lock();
        if let Some(at) = nexuses.uncertain.iter().position(|other| *other == nexus) {
            nexuses.uncertain.remove(at);
        }
        if let Some(nexus) = nexus.filter(|_| is_registered) {
            nexuses.registered.push(nexus);
        }
    }

    /// The nexus is about to reserve the unit. Says whether it might not hold a reservation before.
    pub(crate) fn may_hold(&self, nexus: Option<Nexus>) -> bool {
        let holders = &mut self.lock().holders;
        let is_news = !holders.contains(&nexus);
        holders.extend(is_news.then_some(nexus));
        is_news
    }

    /// The nexus has reserved the unit, so no other holds it.
    pub(crate) fn holds(&self, nexus: Option<Nexus>) {
        self.lock().holders.retain(|other| *other == nexus);
    }

    /// The unit has refused the nexus its reservation.
    pub(crate) fn does_not_hold(&self, nexus: Option<Nexus>) {
        self.lock().holders.retain(|other| *other != nexus);
    }

    /// Whether the reservation of the unit outlives the registration of the nexus (SPC-4 §5.13.11.2): it is not the holder's,
    /// nor the last one where all registrants hold it.
    pub(crate) fn is_outlived_by(&self, held: &Reservation, nexus: Option<Nexus>) -> bool {
        let Some(nexus) = nexus else { return false };
        let nexuses = self.lock();
        let is_held_by_all = matches!(
            held.reservation_type,
            ReservationType::WriteExclusiveAllRegistrants
                | ReservationType::ExclusiveAccessAllRegistrants
        );
        if is_held_by_all {
            return nexuses.registered.iter().any(|other| *other != nexus);
        }
        // Who holds it is not known where it is older than the disk.
        let may_hold = |other: &Option<Nexus>| other.is_none_or(|other| other == nexus);
        let is_anothers = !nexuses.holders.is_empty() && !nexuses.holders.iter().any(may_hold);
        held.key != self.key || is_anothers
    }

    /// Whether the unit may know the key by a nexus of the disk.
    pub(crate) fn is_left(&self) -> bool {
        let nexuses = self.lock();
        self.verdict().is_ok() && !(nexuses.registered.is_empty() && nexuses.uncertain.is_empty())
    }

    /// The error of a disk that has ended, and may have left a registration for this reason.
    pub(crate) fn left_because(&self, why: Error) -> Error {
        Error::StillRegistered { key: self.key, why: Box::new(why) }
    }

    /// The nexus may still be registered after all.
    pub(crate) fn keep(&self, nexus: Option<Nexus>) {
        self.lock().registered.extend(nexus);
    }

    /// The nexus gives its registration up by itself.
    pub(crate) fn forget(&self, nexus: Option<Nexus>) {
        self.lock().registered.retain(|other| Some(*other) != nexus);
    }

    fn lock(&self) -> MutexGuard<'_, Nexuses> {
        self.nexuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a session of a disk has to do with the registrations of that.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    registration: OnceLock<Arc<Registration>>,
    /// Whether its nexus was registered, so that it is told when another ends that.
    is_registered: AtomicBool,
}

impl Membership {
    /// The same disk over a further session, whose nexus is not registered yet.
    pub(crate) fn follow(&self) -> Self {
        Self { registration: self.registration.clone(), is_registered: AtomicBool::new(false) }
    }

    /// The registrations of the disk, if it has a key.
    pub(crate) fn registration(&self) -> Option<&Arc<Registration>> {
        self.registration.get()
    }

    /// The same, and begins them where there are none.
    pub(crate) fn registration_by(&self, key: ReservationKey) -> &Arc<Registration> {
        self.registration.get_or_init(|| Arc::new(Registration::new(key)))
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.is_registered.load(Ordering::SeqCst)
    }

    pub(crate) fn set_registered(&self, is_registered: bool) {
        self.is_registered.store(is_registered, Ordering::SeqCst);
    }

    /// The error of all requests, if another has ended a registration of the disk.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        self.registration().map_or(Ok(()), |registration| registration.verdict())
    }

    /// Takes in a unit attention. Says whether it tells that another has ended the registration of the nexus:
    /// by its key, or with all others (SPC-4 §5.13.11.4, §5.13.11.6).
    pub(crate) fn hear(&self, told: AdditionalSense) -> bool {
        let tells = matches!(
            told,
            AdditionalSense::REGISTRATIONS_PREEMPTED | AdditionalSense::RESERVATIONS_PREEMPTED
        );
        let Some(registration) = self.registration().filter(|_| tells && self.is_registered())
        else {
            return false;
        };
        drop(registration.preempt());
        true
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::reservation::HeldReservation;

    use super::*;

    const KEY: ReservationKey = ReservationKey(0xa);

    fn nexus(qualifier: u16) -> Option<Nexus> {
        Some(Nexus { isid: Isid::random([1, 2, 3], qualifier), portal_group: 1 })
    }

    /// PRS-12: what was not answered may still be carried out, until its nexus logs in again.
    #[test]
    fn prs_12_registrations_without_an_answer_are_counted() {
        let registration = Registration::new(KEY);
        registration.begin(nexus(1));
        registration.begin(nexus(2));
        assert_eq!(registration.prepare(nexus(3)), 2);
        registration.answered(nexus(2), true);
        assert!(registration.knows(nexus(2)) && !registration.knows(nexus(1)));
        assert_eq!(registration.prepare(nexus(3)), 1);
        assert_eq!(registration.prepare(nexus(1)), 0, "its login ends what was sent before");
        registration.forget(nexus(2));
        assert!(!registration.knows(nexus(2)) && !registration.knows(None));
        registration.begin(None);
        assert_eq!(registration.prepare(None), 1, "it may be any of them");
    }

    /// PRS-17: in doubt it does not.
    #[test]
    fn prs_17_a_reservation_outlives_the_registration_of_whoever_does_not_hold_it() {
        let held = |key, code: u8| {
            let mut data = [0; 24];
            (data[7], data[15], data[21]) = (16, key, code);
            HeldReservation::decode(&data).unwrap().reservation.unwrap()
        };
        let registration = Registration::new(KEY);
        let outlives =
            |held: Reservation, number| registration.is_outlived_by(&held, nexus(number));
        let (ours, others, of_all) = (held(0xa, 5), held(0xb, 5), held(0, 7));
        registration.keep(nexus(1));
        assert!(!outlives(ours, 1), "it may be older than the disk");
        assert!(outlives(others, 1) && !outlives(of_all, 1) && outlives(of_all, 2));
        assert!(registration.may_hold(nexus(1)) && !registration.may_hold(nexus(1)));
        assert!(!outlives(ours, 1) && outlives(ours, 2));
        registration.may_hold(nexus(2));
        assert!(!outlives(ours, 1) && !outlives(ours, 2) && outlives(ours, 3));
        registration.holds(nexus(2));
        assert!(outlives(ours, 1) && !outlives(ours, 2));
        registration.may_hold(None);
        assert!(!outlives(ours, 1), "it may be any of them");
        registration.does_not_hold(None);
        assert!(outlives(ours, 1));
        assert!(!registration.is_outlived_by(&others, None));
    }

    /// PRS-11: only a nexus that was registered is told that it is not any more.
    #[test]
    fn prs_11_only_what_was_registered_can_be_preempted() {
        let told = AdditionalSense::REGISTRATIONS_PREEMPTED;
        let first = Membership::default();
        assert!(!first.hear(told), "a disk without a key");
        first.registration_by(KEY);
        assert!(!first.hear(told), "what became of others by the same nexus before");
        first.set_registered(true);
        assert!(!first.hear(AdditionalSense::RESERVATIONS_RELEASED));
        let second = first.follow();
        assert!(!second.is_registered() && second.verdict().is_ok());
        assert!(first.hear(AdditionalSense::RESERVATIONS_PREEMPTED));
        assert!(matches!(second.verdict(), Err(Error::Preempted { key: KEY })), "of all sessions");
    }
}
