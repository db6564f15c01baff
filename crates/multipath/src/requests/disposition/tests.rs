use super::*;

const PORT: End = End::Port(AccessState::Standby);
const CHANGING: End = End::Port(AccessState::Transitioning);
const OFFLINE: End = End::Port(AccessState::Offline);

const ALL: [End; 21] = [
    End::Good,
    End::Attention,
    End::Busy,
    End::TaskAborted,
    End::BecomingReady,
    PORT,
    CHANGING,
    OFFLINE,
    End::Port(AccessState::Unavailable),
    End::InvalidField,
    End::UnknownCommand,
    End::AbortedCommand,
    End::ReservationConflict,
    End::Refused,
    End::Damaged,
    End::TimedOut,
    End::ConnectionLost,
    End::SessionLost,
    End::Withdrawn,
    End::NoAnswer,
    End::OtherUnit,
];

/// Returns every combination of facts.
fn all_facts() -> impl Iterator<Item = Facts> {
    (0u16..1 << 10).map(|bits| {
        let has = |bit: u16| bits & 1 << bit != 0;
        Facts {
            is_plain: has(0),
            can_shorten: has(1),
            attentions_left: has(2),
            pauses_left: has(3),
            transition_left: has(4),
            refusals_left: has(5),
            follows_access: has(6),
            others_serve: has(7),
            has_other_path: has(8),
            discovers_ports: has(9),
        }
    })
}

/// A disk with two paths through ports that serve the unit, and the unit reports the states of its ports.
const TWO_PORTS: Facts = Facts {
    is_plain: true,
    can_shorten: true,
    attentions_left: true,
    pauses_left: true,
    transition_left: true,
    refusals_left: true,
    follows_access: true,
    others_serve: true,
    has_other_path: true,
    discovers_ports: true,
};
/// A disk with a single path, and the unit does not report states of its ports.
const ALONE: Facts = Facts {
    follows_access: false,
    others_serve: false,
    has_other_path: false,
    discovers_ports: false,
    ..TWO_PORTS
};

#[test]
fn each_end_has_its_disposition() {
    use Disposition::*;
    let table: [(End, [Disposition; 3]); 21] = [
        // Columns: a disk with two ports, a disk with one path, a unit over one session.
        (End::Good, [Complete; 3]),
        (End::Attention, [RetryImmediately; 3]),
        (End::Busy, [Pause(Limit::RetryTimeout), Pause(Limit::RetryTimeout), Pause(Limit::Pauses)]),
        (End::TaskAborted, [Pause(Limit::RetryTimeout), Pause(Limit::RetryTimeout), Fail]),
        (
            End::BecomingReady,
            [Pause(Limit::RetryTimeout), Pause(Limit::RetryTimeout), Pause(Limit::Pauses)],
        ),
        (PORT, [Failover, Fail, Fail]),
        (CHANGING, [Failover, Pause(Limit::RetryTimeout), Pause(Limit::Transition)]),
        (OFFLINE, [Failover, Fail, Fail]),
        (End::Port(AccessState::Unavailable), [Failover, Fail, Fail]),
        (End::InvalidField, [Failover, Fail, Fail]),
        (End::UnknownCommand, [RetryShorter; 3]),
        (
            End::AbortedCommand,
            [Pause(Limit::AbortedTimeout), Pause(Limit::AbortedTimeout), Pause(Limit::Pauses)],
        ),
        (End::ReservationConflict, [FailByReservation; 3]),
        (End::Refused, [Fail; 3]),
        (End::Damaged, [Pause(Limit::AbortedTimeout), Pause(Limit::AbortedTimeout), Fail]),
        (End::TimedOut, [Pause(Limit::RetryTimeout), Pause(Limit::RetryTimeout), Fail]),
        (End::ConnectionLost, [NextPath, NextPath, Fail]),
        (End::SessionLost, [NextPath, NextPath, Fail]),
        (End::Withdrawn, [RetryImmediately; 3]),
        (End::NoAnswer, [Fail; 3]),
        (End::OtherUnit, [SetPathAside, Fail, Fail]),
    ];
    assert_eq!(table.each_ref().map(|(end, _)| *end), ALL);
    for (end, expected) in table {
        let found = [
            dispose(end, Scope::Disk, &TWO_PORTS),
            dispose(end, Scope::Disk, &ALONE),
            dispose(end, Scope::Unit, &ALONE),
        ];
        assert_eq!(found, expected, "{end:?}");
    }
}

#[test]
fn a_port_that_refuses_is_waited_for_where_none_serves_the_unit() {
    let looks = Facts { discovers_ports: true, ..ALONE };
    let follows = Facts { follows_access: true, ..ALONE };
    let none_serves = Facts { others_serve: false, ..TWO_PORTS };
    for facts in [looks, follows, none_serves] {
        for end in [PORT, OFFLINE] {
            let expected = Disposition::Pause(Limit::RetryTimeout);
            assert_eq!(dispose(end, Scope::Disk, &facts), expected, "{end:?} {facts:?}");
        }
    }
    // If the unit does not report the states of its ports, the path is set aside.
    let silent = Facts { follows_access: false, ..TWO_PORTS };
    assert_eq!(dispose(PORT, Scope::Disk, &silent), Disposition::SetPathAside);
    assert_eq!(dispose(OFFLINE, Scope::Disk, &silent), Disposition::Fail);
}

/// A request over a path that leads to another unit waits only if the disk looks for other portals: the state
/// of a port may change, but such a path never leads to the known unit again.
#[test]
fn only_another_portal_is_waited_for_where_the_path_leads_to_another_unit() {
    let other_unit = |facts| dispose(End::OtherUnit, Scope::Disk, facts);
    let looks = Facts { discovers_ports: true, ..ALONE };
    assert_eq!(other_unit(&looks), Disposition::Pause(Limit::RetryTimeout));
    let follows = Facts { follows_access: true, ..ALONE };
    assert_eq!(other_unit(&follows), Disposition::Fail);
    // The port of the other path may serve the unit later, so only this path is set aside.
    let none_serves = Facts { others_serve: false, ..TWO_PORTS };
    assert_eq!(other_unit(&none_serves), Disposition::SetPathAside);
}

#[test]
fn ports_that_all_refuse_are_not_tried_for_ever() {
    let tried = Facts { refusals_left: false, ..TWO_PORTS };
    assert_eq!(dispose(CHANGING, Scope::Disk, &tried), Disposition::Pause(Limit::RetryTimeout));
    assert_eq!(dispose(PORT, Scope::Disk, &tried), Disposition::SetPathAside);
    assert_eq!(dispose(End::InvalidField, Scope::Disk, &tried), Disposition::Fail);
}

#[test]
fn a_refusal_that_a_unit_may_mean_is_one() {
    let rare = Facts { is_plain: false, ..TWO_PORTS };
    assert_eq!(dispose(End::InvalidField, Scope::Disk, &rare), Disposition::Fail);
    let long = Facts { can_shorten: false, ..TWO_PORTS };
    assert_eq!(dispose(End::UnknownCommand, Scope::Disk, &long), Disposition::Fail);
}

/// Whatever the facts: an immediate retry or a failover occurs only while its limit permits it, and a path is set aside only
/// if there is another one.
#[test]
fn limits_end_what_would_go_on() {
    for facts in all_facts() {
        for scope in [Scope::Disk, Scope::Unit] {
            for end in ALL {
                let found = dispose(end, scope, &facts);
                let is_good = found == Disposition::Complete;
                assert_eq!(is_good, end == End::Good, "{end:?} {facts:?}");
                if found == Disposition::RetryImmediately {
                    let may = facts.attentions_left || end == End::Withdrawn;
                    assert!(may, "{end:?} {facts:?}");
                }
                // A disk limits its pauses by time; a unit over one session has no other path.
                let is_elsewhere = matches!(
                    found,
                    Disposition::Failover | Disposition::SetPathAside | Disposition::NextPath
                );
                let is_of_unit =
                    matches!(found, Disposition::Pause(Limit::Pauses | Limit::Transition));
                match scope {
                    Scope::Disk => assert!(!is_of_unit, "{end:?} {facts:?}"),
                    Scope::Unit => assert!(!is_elsewhere, "{end:?} {facts:?}"),
                }
                if matches!(found, Disposition::Failover) {
                    assert!(facts.others_serve && facts.refusals_left, "{end:?} {facts:?}");
                }
                if found == Disposition::SetPathAside {
                    assert!(facts.has_other_path, "{end:?} {facts:?}");
                }
            }
        }
    }
}

/// A request that may still be executed is not retried before its path is lost.
#[test]
fn what_may_still_be_executed_waits_for_the_end_of_its_session() {
    for facts in all_facts() {
        assert_eq!(dispose(End::SessionLost, Scope::Disk, &facts), Disposition::NextPath);
        assert_eq!(dispose(End::NoAnswer, Scope::Disk, &facts), Disposition::Fail);
    }
}
