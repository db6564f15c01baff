//! Tests of the state of a disk's registrations, apart from the course of its procedures.

use iscsi_pdu::scsi::reservation::{
    FullStatus, HeldReservation, PersistentReserveOut, Reservation, ReservationKey, ReservationType,
};
use iscsi_pdu::scsi::{AdditionalSense, Status};

use super::super::registrations::Registrations;
use super::super::{End, Failure, Fencing, Goal, PathNexus, ProcedureId, Step};
use super::model::{Answer, full_status, known, nexus, now};
use crate::PathId;

const KEY: ReservationKey = ReservationKey(0xa);

/// PRS-11: a unit attention reports a preemption only to a path that was registered.
#[test]
fn prs_11_only_what_was_registered_can_be_preempted() {
    let preempted = AdditionalSense::REGISTRATIONS_PREEMPTED;
    let mut fencing = Fencing::new(KEY);
    fencing.attach(PathId(1), nexus(1));
    fencing.attach(PathId(2), nexus(2));
    assert!(
        !fencing.on_unit_attention(PathId(1), preempted),
        "it is about an earlier registration"
    );
    let procedure = fencing.start(PathId(1), Goal::Register);
    let Step::Ask(_) = fencing.poll(procedure, now()) else { panic!() };
    assert!(!fencing.on_unit_attention(PathId(1), preempted), "the same");
    fencing.on_end(procedure, End::Good(&[]));
    assert_eq!(fencing.poll(procedure, now()), Step::Done(Ok(())));
    assert!(!fencing.on_unit_attention(PathId(1), AdditionalSense::RESERVATIONS_RELEASED));
    assert!(!fencing.on_unit_attention(PathId(2), preempted), "of another nexus");
    assert!(!fencing.on_unit_attention(PathId(7), preempted), "of no path");
    assert!(!fencing.is_preempted());
    assert!(fencing.on_unit_attention(PathId(1), preempted));
    assert!(fencing.is_preempted());
}

/// PRS-10: a session with the same ISID at another target port has a separate entry, which may appear late as
/// well.
#[test]
fn prs_10_a_change_is_made_if_there_is_one_entry_more_or_less() {
    let at = |portal_group| PathNexus { portal_group: Some(portal_group), ..nexus(1) };
    let status = |reported: usize| {
        let Answer::Good(data) = full_status(1, &vec![(KEY.0, nexus(1)); reported]) else {
            unreachable!()
        };
        FullStatus::decode(&data).unwrap()
    };
    let (yes, no) = (Some(true), Some(false));
    // Columns: other nexuses that are registered, other nexuses that are uncertain, entries; whether this nexus
    // is registered, and whether its registration has ended.
    for (others, late, reported, is_registered, is_ended) in [
        (0, 0, 0, no, yes),
        (0, 0, 1, yes, no),
        (1, 0, 0, no, yes),
        (1, 0, 1, None, yes),
        (1, 0, 2, yes, no),
        (0, 1, 1, None, None),
        (0, 1, 2, yes, no),
        (1, 1, 1, None, yes),
        (1, 1, 2, None, None),
        (1, 1, 3, yes, no),
    ] {
        let mut it = Registrations::new(KEY);
        (0..others).for_each(|group| it.keep(at(10 + group), false));
        (0..late).for_each(|group| it.sent(at(20 + group)));
        it.sent(at(1));
        let is_made = |wanted| it.is_made(&status(reported), wanted, at(1), true);
        let found = (is_made(KEY), is_made(ReservationKey::NONE));
        assert_eq!(found, (is_registered, is_ended), "{others} {late} {reported}");
    }
    let mut it = Registrations::new(KEY);
    let is_ended =
        |it: &Registrations, is_sole| it.is_made(&status(1), ReservationKey::NONE, at(1), is_sole);
    it.keep(at(10), true);
    assert_eq!(is_ended(&it, true), None, "the other one may be gone");
    it.keep(at(10), false);
    assert_eq!((is_ended(&it, true), is_ended(&it, false)), (yes, None), "it may be fenced off");
}

/// PRS-17: if the holder is not certain, the reservation counts as one that ends with the registration.
#[test]
fn prs_17_a_reservation_outlives_the_registration_of_a_nexus_that_does_not_hold_it() {
    let held = |key, code: u8| {
        let mut data = [0; 24];
        (data[7], data[15], data[21]) = (16, key, code);
        HeldReservation::decode(&data).unwrap().reservation.unwrap()
    };
    let outlives = |registrations: &Registrations, held: Reservation, number| {
        registrations.is_outlived_by(&held, nexus(number))
    };
    let (ours, others, of_all) = (held(0xa, 5), held(0xb, 5), held(0, 7));
    let mut it = Registrations::new(KEY);
    it.keep(nexus(1), false);
    assert!(!outlives(&it, ours, 1), "it may be older than the disk");
    assert!(outlives(&it, others, 1) && !outlives(&it, of_all, 1) && outlives(&it, of_all, 2));
    it.keep(nexus(1), true);
    assert!(!outlives(&it, of_all, 2), "it may have ended");
    assert!(it.may_hold(known(1)) && !it.may_hold(known(1)));
    assert!(!outlives(&it, ours, 1) && outlives(&it, ours, 2));
    it.may_hold(known(2));
    assert!(!outlives(&it, ours, 1) && !outlives(&it, ours, 2) && outlives(&it, ours, 3));
    it.holds(known(2));
    assert!(outlives(&it, ours, 1) && !outlives(&it, ours, 2));
    it.may_hold(None);
    assert!(!outlives(&it, ours, 1), "it may be any of them");
    it.does_not_hold(None);
    assert!(outlives(&it, ours, 1));
    let mut nameless = nexus(1);
    nameless.portal_group = None;
    assert!(!it.is_outlived_by(&others, nameless));
}

/// PRS-17: which paths may hold the reservation, for each result of a RESERVE or a PREEMPT.
#[test]
fn prs_17_a_path_may_hold_the_reservation_until_the_unit_says_otherwise() {
    let reservation_type = ReservationType::WriteExclusiveRegistrantsOnly;
    let reserve = PersistentReserveOut::Reserve { key: KEY, reservation_type };
    let preempt =
        PersistentReserveOut::Preempt { key: KEY, victim: ReservationKey(0xb), reservation_type };
    let ours = {
        let mut data = [0; 24];
        (data[7], data[15], data[21]) = (16, 0xa, 5);
        HeldReservation::decode(&data).unwrap().reservation.unwrap()
    };
    let conflict = End::Status(Status::RESERVATION_CONFLICT);
    // Columns: the command over path 2, its end, and whether the reservation outlives path 1, which had
    // reserved the unit, and path 2.
    for (command, end, outlives_1, outlives_2) in [
        (reserve, End::Good(&[]), true, false),
        (reserve, conflict, false, true),
        (reserve, End::NoAnswer, false, false),
        (preempt, End::Good(&[]), false, false),
        (preempt, conflict, false, true),
        (preempt, End::NoAnswer, false, false),
    ] {
        let mut fencing = Fencing::new(KEY);
        fencing.attach(PathId(1), nexus(1));
        fencing.attach(PathId(2), nexus(2));
        let claim = fencing.begin_reserving(PathId(1), &reserve).unwrap();
        fencing.end_reserving(claim, End::Good(&[]));
        let claim = fencing.begin_reserving(PathId(2), &command).unwrap();
        fencing.end_reserving(claim, end);
        let outlives = |isid| fencing.registrations.is_outlived_by(&ours, nexus(isid));
        assert_eq!((outlives(1), outlives(2)), (outlives_1, outlives_2), "{command:?} {end:?}");
    }
    let mut fencing = Fencing::new(KEY);
    let release = PersistentReserveOut::Release { key: KEY, reservation_type };
    assert!(fencing.begin_reserving(PathId(1), &release).is_none());
}

fn asked(fencing: &mut Fencing, procedure: ProcedureId) -> bool {
    match fencing.poll(procedure, now()) {
        Step::Ask(_) => true,
        Step::Wait => false,
        Step::Done(result) => panic!("{result:?}"),
    }
}

/// Procedures register one at a time, in the order of their start; only the end of a registration does not
/// wait.
#[test]
fn procedures_take_turns() {
    let mut fencing = Fencing::new(KEY);
    for path in 1..=4 {
        fencing.attach(PathId(path.into()), nexus(path));
    }
    let first = fencing.start(PathId(1), Goal::Register);
    let second = fencing.start(PathId(2), Goal::Register);
    let third = fencing.start(PathId(3), Goal::Register);
    assert!(!asked(&mut fencing, third) && !asked(&mut fencing, second));
    assert!(asked(&mut fencing, first) && !asked(&mut fencing, second));
    fencing.on_end(first, End::Good(&[]));
    assert!(!asked(&mut fencing, second), "until the first has its result");
    let end = fencing.start(PathId(1), Goal::End);
    assert!(asked(&mut fencing, end), "without a turn");
    assert_eq!(fencing.poll(first, now()), Step::Done(Ok(())));
    assert!(!asked(&mut fencing, third) && asked(&mut fencing, second));
    // The procedure is cancelled while its command is in flight.
    fencing.cancel(second);
    assert!(asked(&mut fencing, third));
    fencing.on_end(second, End::Good(&[]));
    assert!(!fencing.is_registered(PathId(2)), "no caller has asked for its end");
    let fourth = fencing.start(PathId(4), Goal::Register);
    fencing.detach(PathId(4));
    fencing.detach(PathId(3));
    assert_eq!(fencing.poll(third, now()), Step::Done(Err(Failure::GivenUp)));
    assert_eq!(fencing.poll(fourth, now()), Step::Done(Err(Failure::GivenUp)));
    let missing = fencing.start(PathId(4), Goal::Register);
    assert_eq!(fencing.poll(missing, now()), Step::Done(Err(Failure::GivenUp)));
}

/// PRS-16: a command that is in flight when its procedure is cancelled may still be executed.
#[test]
fn prs_16_a_procedure_that_is_given_up_leaves_what_it_has_sent() {
    let mut fencing = Fencing::new(KEY);
    fencing.attach(PathId(1), nexus(1));
    let procedure = fencing.start(PathId(1), Goal::Register);
    fencing.cancel(procedure);
    assert!(!fencing.may_be_left(), "nothing was sent");
    let procedure = fencing.start(PathId(1), Goal::Register);
    assert!(asked(&mut fencing, procedure));
    fencing.cancel(procedure);
    assert!(fencing.may_be_left() && !fencing.is_registered(PathId(1)));

    let mut fencing = Fencing::new(KEY);
    fencing.attach(PathId(1), nexus(1));
    let procedure = fencing.start(PathId(1), Goal::Register);
    assert!(asked(&mut fencing, procedure));
    fencing.on_end(procedure, End::Good(&[]));
    assert_eq!(fencing.poll(procedure, now()), Step::Done(Ok(())));
    let procedure = fencing.start(PathId(1), Goal::End);
    assert!(asked(&mut fencing, procedure) && !fencing.is_registered(PathId(1)));
    fencing.cancel(procedure);
    assert!(fencing.is_registered(PathId(1)) && fencing.may_be_left());
}
