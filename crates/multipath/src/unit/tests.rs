use iscsi_pdu::scsi::{AdditionalSense, SenseKey, Status};
use iscsi_session::TaskError;

use super::*;
use crate::identity::KnownUnit;

const PATH: PathId = Unit::FIRST_PATH;

/// Creates a known unit with a cache and an unflushed write.
fn unit() -> Unit {
    let mut unit = Unit::new();
    unit.identity.on_known(KnownUnit { is_removable: true, capacity: 4096 });
    unit.durability.on_cache();
    let begun = unit.begin_command(PATH);
    let _good = end(&mut unit, begun, CommandEnd::Status(Status::GOOD, &[]));
    unit.durability.on_write(PATH, begun.epoch);
    unit
}

fn end(unit: &mut Unit, begun: Begun, end: CommandEnd<'_>) -> Effects {
    end_of(unit, begun, end, false)
}

fn end_of(unit: &mut Unit, begun: Begun, end: CommandEnd<'_>, synchronizes_cache: bool) -> Effects {
    let command = CommandFacts { number: begun.number, synchronizes_cache, is_preempted: false };
    unit.end_command(PATH, command, end)
}

fn sense(response_code: u8, key: SenseKey, reported: AdditionalSense) -> [u8; 18] {
    let mut bytes = [0; 18];
    (bytes[0], bytes[2], bytes[7]) = (response_code, key.code(), 10);
    (bytes[12], bytes[13]) = (reported.asc, reported.ascq);
    bytes
}

const CURRENT: u8 = 0x70;
const DEFERRED: u8 = 0x71;
const NO_MORE: AdditionalSense = AdditionalSense { asc: 0, ascq: 0 };

/// Effects of the end of one command on a unit with an unflushed write.
#[derive(Debug, Default, Eq, PartialEq)]
struct Outcome {
    asks: bool,
    may_know_reset: bool,
    losses: u64,
    attentions: u64,
    has_failed_flush: bool,
}

fn outcome(ended: CommandEnd<'_>, synchronizes_cache: bool) -> Outcome {
    let mut unit = unit();
    let begun = unit.begin_command(PATH);
    let effects = end_of(&mut unit, begun, ended, synchronizes_cache);
    assert!(unit.is_idle(PATH), "it has ended");
    assert_eq!(effects.may_be_another_unit, unit.identity.needs_revalidation(PATH));
    assert_eq!(begun.is_calm(unit.identity.revision()), !effects.may_be_another_unit);
    Outcome {
        asks: effects.may_be_another_unit,
        may_know_reset: unit.durability.flush_rank(PATH).may_know_reset,
        losses: unit.durability.losses().0,
        attentions: unit.identity.attentions(),
        has_failed_flush: effects.has_failed_flush,
    }
}

#[test]
fn an_end_without_a_status_may_have_hidden_a_report() {
    let nothing = Outcome::default();
    let hidden = Outcome { may_know_reset: true, attentions: 1, ..Outcome::default() };
    let asks = || Outcome { asks: true, may_know_reset: true, attentions: 1, ..Outcome::default() };
    let cause = || iscsi_session::SessionError::AbortRefused;
    let session = |sent| TaskError::Session { cause: cause(), sent };
    let connection = |sent| TaskError::ConnectionLost { cause: cause(), sent };
    let missing = TaskError::DataMissing { expected: 2, transferred: 1 };
    for (why, expected) in [
        (session(true), asks()),
        (connection(true), asks()),
        (TaskError::Aborted, asks()),
        (TaskError::TimedOut, hidden),
        (session(false), Outcome::default()),
        (connection(false), Outcome::default()),
        (TaskError::Withdrawn, Outcome::default()),
        (TaskError::Closed, Outcome::default()),
        (missing, Outcome::default()),
    ] {
        assert_eq!(outcome(CommandEnd::Error(&why), false), expected, "{why:?}");
    }
    for (status, sense, expected) in [
        (Status::GOOD, &[][..], nothing),
        (Status::BUSY, &[], Outcome::default()),
        (Status::TASK_ABORTED, &[], asks()),
        (Status::CHECK_CONDITION, &[], asks()),
    ] {
        assert_eq!(outcome(CommandEnd::Status(status, sense), false), expected, "{status:?}");
    }
}

#[test]
fn sense_data_say_what_was_lost_and_what_has_changed() {
    use AdditionalSense as Asc;
    let attention = |reported| sense(CURRENT, SenseKey::UnitAttention, reported);
    let reported = || Outcome { attentions: 1, ..Outcome::default() };
    let asks = || Outcome { asks: true, ..reported() };
    for (bytes, flushes, expected) in [
        (attention(Asc::POWER_ON_OR_RESET), false, Outcome { may_know_reset: true, ..asks() }),
        (attention(Asc::IT_NEXUS_LOSS_OCCURRED), false, asks()),
        (attention(Asc::REPORTED_LUNS_DATA_HAS_CHANGED), false, asks()),
        (attention(Asc::ASYMMETRIC_ACCESS_STATE_CHANGED), false, reported()),
        (
            sense(CURRENT, SenseKey::IllegalRequest, Asc::LOGICAL_UNIT_NOT_SUPPORTED),
            false,
            Outcome { asks: true, ..Outcome::default() },
        ),
        (
            sense(DEFERRED, SenseKey::MediumError, NO_MORE),
            false,
            Outcome { losses: 1, ..reported() },
        ),
        (sense(DEFERRED, SenseKey::RecoveredError, NO_MORE), false, reported()),
        (sense(CURRENT, SenseKey::MediumError, NO_MORE), false, Outcome::default()),
        (
            sense(CURRENT, SenseKey::MediumError, NO_MORE),
            true,
            Outcome { losses: 1, has_failed_flush: true, ..reported() },
        ),
        (
            sense(CURRENT, SenseKey::HardwareError, NO_MORE),
            true,
            Outcome { losses: 1, has_failed_flush: true, ..reported() },
        ),
        (sense(CURRENT, SenseKey::NotReady, NO_MORE), true, Outcome::default()),
        (sense(CURRENT, SenseKey::IllegalRequest, NO_MORE), true, Outcome::default()),
        (sense(CURRENT, SenseKey::RecoveredError, NO_MORE), true, Outcome::default()),
    ] {
        let ended = CommandEnd::Status(Status::CHECK_CONDITION, &bytes);
        assert_eq!(outcome(ended, flushes), expected, "{bytes:x?}");
    }
}

#[test]
fn another_medium_ends_the_use_of_the_unit() {
    let mut unit = unit();
    let begun = unit.begin_command(PATH);
    let changed = AdditionalSense::NOT_READY_TO_READY_CHANGE;
    let bytes = sense(CURRENT, SenseKey::UnitAttention, changed);
    let effects = end(&mut unit, begun, CommandEnd::Status(Status::CHECK_CONDITION, &bytes));
    assert!(effects.may_be_another_unit && effects.attention == Some(changed));
    assert!(unit.identity.verdict(PATH).is_err());
}

#[test]
fn a_command_counts_unless_two_reasons_came_since_it_began() {
    let mut unit = unit();
    let begun = unit.begin_command(PATH);
    assert!(begun.is_calm(unit.identity.revision()) && unit.is_of_known_unit(PATH, &begun));
    unit.identity.add_reason(PATH);
    assert!(!begun.is_calm(unit.identity.revision()) && unit.is_of_known_unit(PATH, &begun));
    unit.identity.add_reason(PATH);
    unit.identity.on_revalidated(PATH, unit.identity.reasons(PATH));
    assert!(!unit.is_of_known_unit(PATH, &begun));
    let later = unit.begin_command(PATH);
    assert!(later.is_calm(unit.identity.revision()) && unit.is_of_known_unit(PATH, &later));
    unit.identity.add_reason(PATH);
    assert!(!unit.begin_command(PATH).is_calm(unit.identity.revision()), "it began in doubt");
}

/// A write that another unit may have executed does not count as unflushed, so a later reset loses nothing.
#[test]
fn a_write_that_another_unit_may_have_executed_is_not_unflushed() {
    for (reasons, is_of_known_unit) in [(0, true), (1, true), (2, false)] {
        let mut unit = unit();
        let flush = unit.durability.begin_flush(PATH);
        unit.durability.end_flush(flush, None);
        let begun = unit.begin_command(PATH);
        (0..reasons).for_each(|_| unit.identity.add_reason(PATH));
        unit.identity.on_revalidated(PATH, unit.identity.reasons(PATH));
        assert_eq!(unit.end_with_good(PATH, &begun, GoodEnd::Wrote), is_of_known_unit);
        unit.durability.on_reset(PATH);
        let flush = unit.durability.begin_flush(PATH);
        unit.durability.end_flush(flush, None);
        assert_eq!(unit.durability.losses() > LossCount::default(), is_of_known_unit);
    }
}

/// TASK ABORTED and unreadable sense data count as one reason each: two may hide that another unit was there
/// for a time. All commands that were given up count as one reason together.
#[test]
fn a_status_that_may_stand_in_the_place_of_a_report_counts_by_itself() {
    let task_aborted = || CommandEnd::Status(Status::TASK_ABORTED, &[]);
    let unreadable = || CommandEnd::Status(Status::CHECK_CONDITION, &[]);
    let given_up = || CommandEnd::Error(&TaskError::Aborted);
    let cases: [(&[CommandEnd<'_>], bool); 4] = [
        (&[task_aborted()], true),
        (&[task_aborted(), unreadable()], false),
        (&[given_up(), given_up()], true),
        (&[given_up(), task_aborted()], false),
    ];
    for (ends, is_of_known_unit) in cases {
        let mut unit = unit();
        let read = unit.begin_command(PATH);
        for ended in ends {
            let other = unit.begin_command(PATH);
            assert!(end(&mut unit, other, *ended).may_be_another_unit);
            unit.identity.on_revalidated(PATH, unit.identity.reasons(PATH));
        }
        let is_known = unit.end_with_good(PATH, &read, GoodEnd::NoReset);
        assert_eq!(is_known, is_of_known_unit, "{ends:?}");
    }
}

#[test]
fn each_path_has_its_own_commands() {
    let mut unit = unit();
    let second = unit.add_path(unit.identity.shared_reasons());
    let begun = unit.begin_command(second);
    assert!(unit.is_idle(PATH) && !unit.is_idle(second));
    let next = unit.next_command(second);
    assert!(!unit.have_ended_before(second, next) && unit.have_ended_before(second, begun.number));
    unit.give_up_before(second, next);
    assert!(unit.is_idle(second) && unit.have_ended_before(second, next));
    unit.remove_path(second);
    assert!(unit.is_idle(second), "a path that was removed has no commands");
    assert_eq!(unit.add_path(unit.identity.shared_reasons()), PathId(2));
}

#[test]
fn the_end_of_a_registration_takes_queued_commands_back() {
    let mut unit = unit();
    let begun = unit.begin_command(PATH);
    let bytes = sense(CURRENT, SenseKey::UnitAttention, AdditionalSense::REGISTRATIONS_PREEMPTED);
    let command =
        CommandFacts { number: begun.number, synchronizes_cache: false, is_preempted: true };
    let effects =
        unit.end_command(PATH, command, CommandEnd::Status(Status::CHECK_CONDITION, &bytes));
    assert!(effects.may_be_another_unit);
}

#[test]
fn what_a_unit_reports_while_it_is_asked_counts_for_the_path_that_it_becomes() {
    let reset = sense(CURRENT, SenseKey::UnitAttention, AdditionalSense::POWER_ON_OR_RESET);
    let mut asked = unit();
    let mut known = unit();
    let path = known.add_path(known.identity.shared_reasons());
    known.merge(path, asked.reported(PATH));
    assert!(!known.identity.needs_revalidation(path) && known.identity.attentions() == 0);
    let begun = asked.begin_command(PATH);
    let _known = end(&mut asked, begun, CommandEnd::Status(Status::CHECK_CONDITION, &reset));
    asked.durability.on_lost_writes();
    asked.identity.on_ready_change();
    known.merge(path, asked.reported(PATH));
    assert!(known.identity.needs_revalidation(path) && known.identity.attentions() == 1);
    assert_eq!(known.durability.losses().0, 1);
    assert!(known.identity.verdict(path).is_err(), "the medium can be removed");
}
