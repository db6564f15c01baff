use iscsi_pdu::scsi::AccessState;

use super::*;

const PATHS: [PathId; 3] = [PathId(0), PathId(1), PathId(2)];

/// Returns a response through the port of a group. It reports one state for each of two groups.
fn answer(question: u64, of_group: u16, states: [u8; 2]) -> Answer {
    let group = |id: u8, state: u8| [state, 0x0f, 0, id, 0, 0, 0, 1, 0, 0, 0, id];
    let groups = [group(1, states[0]), group(2, states[1])].concat();
    let data = [&[0, 0, 0, 24][..], &groups].concat();
    let groups = TargetPortGroups::decode(&data).unwrap();
    Answer { question, group: Some(of_group), port: None, groups }
}

/// Creates three paths, each at its own portal.
#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn three() -> (PortGroups, Instant) {
    let now = Instant::now();
    let back_off = BackOff::new(Duration::from_millis(10), Duration::from_secs(1));
    let mut groups = PortGroups::new(true, back_off, now);
    for path in PATHS {
        assert_eq!(groups.path_opened(path, PortalId(path.0 as usize)), None);
    }
    (groups, now)
}

fn state(groups: &PortGroups, path: u32) -> Option<AccessState> {
    groups.access(PathId(path)).map(|access| access.state)
}

fn refused(state: AccessState) -> NoAnswer {
    NoAnswer::Refused(Access { state, preferred: false })
}

#[test]
fn of_each_group_the_answer_to_the_latest_question_counts() {
    let (mut groups, now) = three();
    groups.answered(PathId(0), &answer(2, 1, [0, 1]), now);
    groups.answered(PathId(1), &answer(1, 2, [2, 0]), now);
    assert_eq!(state(&groups, 0), Some(AccessState::ActiveOptimized));
    assert_eq!(state(&groups, 1), Some(AccessState::ActiveNonOptimized));
    groups.answered(PathId(1), &answer(3, 2, [2, 0]), now);
    assert_eq!(state(&groups, 0), Some(AccessState::Standby));
    assert_eq!(state(&groups, 2), None, "its group is unknown");
    assert_eq!(groups.known().len(), 2);
}

#[test]
fn one_path_at_each_portal_is_asked_and_each_new_one() {
    let (mut groups, now) = three();
    assert_eq!(groups.ask(now), Some(Question { number: 1, paths: PATHS.to_vec() }));
    assert_eq!(groups.ask(now), None);
    for path in PATHS {
        groups.answered(path, &answer(1, 1, [0, 0]), now);
    }
    groups.path_opened(PathId(3), PortalId(0));
    assert_eq!(state(&groups, 3), Some(AccessState::ActiveOptimized), "as the other at its portal");
    let alone = Question { number: 1, paths: vec![PathId(3)] };
    assert_eq!(groups.ask(now), Some(alone), "no reason to ask the others");
    groups.answered(PathId(3), &answer(1, 1, [0, 0]), now);
    groups.call();
    let at = groups.poll_timeout(false).unwrap();
    assert_eq!(groups.ask(at), Some(Question { number: 2, paths: PATHS.to_vec() }));
}

#[test]
fn an_answer_over_a_path_that_is_gone_counts_for_nothing() {
    let (mut groups, now) = three();
    groups.ask(now);
    groups.retain(|path| path != PathId(1));
    groups.answered(PathId(1), &answer(1, 2, [0, 0]), now);
    assert!(!groups.not_answered(PathId(1), NoAnswer::Unknown, now));
    assert!(groups.is_supported() && !groups.is_followed());
}

/// SPC-4 §5.11.2.8: the offline state may be the state of a single port, whatever the state of its group.
#[test]
fn a_port_that_refuses_the_question_is_known_by_that_until_it_answers() {
    let (mut groups, now) = three();
    let is_asked_again =
        |groups: &PortGroups| groups.poll_timeout(true) != groups.poll_timeout(false);
    groups.ask(now);
    groups.answered(PathId(0), &answer(1, 1, [0, 0]), now);
    groups.not_answered(PathId(0), refused(AccessState::Offline), now);
    groups.answered(PathId(1), &answer(2, 2, [0, 0]), now);
    assert_eq!(state(&groups, 0), Some(AccessState::Offline));
    assert_eq!(state(&groups, 1), Some(AccessState::ActiveOptimized));
    groups.not_answered(PathId(1), NoAnswer::SessionEnded, now);
    assert_eq!(state(&groups, 1), Some(AccessState::ActiveOptimized));
    groups.not_answered(PathId(2), NoAnswer::Unknown, now);
    assert!(
        !is_asked_again(&groups),
        "one group is known, and one unit does not know the question"
    );
    groups.answered(PathId(0), &answer(3, 1, [1, 0]), now);
    assert_eq!(state(&groups, 0), Some(AccessState::ActiveNonOptimized));
    groups.not_answered(PathId(2), NoAnswer::MayPass, now);
    assert!(is_asked_again(&groups));
}

#[test]
fn a_unit_that_does_not_know_the_question_has_no_groups_unless_it_has_answered_before() {
    let (mut groups, now) = three();
    groups.ask(now);
    assert!(groups.not_answered(PathId(0), NoAnswer::Unknown, now));
    groups.call();
    groups.answered(PathId(1), &answer(1, 1, [0, 0]), now);
    assert!(!groups.is_supported(), "an answer that comes later changes nothing");
    assert_eq!((groups.ask(now), groups.poll_timeout(true)), (None, None));
    let (mut groups, now) = three();
    groups.ask(now);
    groups.answered(PathId(0), &answer(1, 1, [0, 0]), now);
    assert!(!groups.not_answered(PathId(1), NoAnswer::Unknown, now));
    assert!(groups.is_followed());
}

#[test]
fn a_path_that_does_not_answer_is_asked_again_after_a_pause() {
    let (mut groups, mut now) = three();
    groups.ask(now);
    for path in [0, 1] {
        groups.answered(PathId(path), &answer(1, 1, [0, 0]), now);
    }
    let mut pauses = Vec::new();
    for _ in 0..3 {
        groups.not_answered(PathId(2), NoAnswer::MayPass, now);
        assert_eq!((groups.ask(now), groups.poll_timeout(false)), (None, None));
        let at = groups.poll_timeout(true).unwrap();
        pauses.push((at - now).as_millis());
        now = at;
        assert_eq!(groups.ask(now), Some(Question { number: 1, paths: vec![PathId(2)] }));
    }
    assert_eq!(pauses, [10, 20, 40]);
    groups.answered(PathId(2), &answer(1, 2, [0, 1]), now);
    assert_eq!((groups.ask(now), groups.poll_timeout(true)), (None, None));
}

#[test]
fn questions_have_pauses_between_them_and_never_a_tight_loop() {
    let (mut groups, mut now) = three();
    let mut pauses = Vec::new();
    for number in 1..6 {
        assert_eq!(groups.ask(now).map(|question| question.number), Some(number));
        for path in PATHS {
            groups.answered(path, &answer(number, 1, [0, 0]), now);
        }
        assert_eq!(groups.poll_timeout(true), None, "nothing is called for");
        groups.call();
        assert_eq!(groups.ask(now), None);
        let at = groups.poll_timeout(false).unwrap();
        pauses.push((at - now).as_millis());
        now = at;
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160]);
    groups.retain(|_| false);
    assert_eq!(groups.ask(now), None);
    assert_eq!(groups.poll_timeout(false), Some(now + Duration::from_secs(1)), "no path to ask");
}

#[test]
fn states_are_asked_for_while_ports_differ_and_often_while_none_serves() {
    let after = |states| {
        let (mut groups, now) = three();
        groups.ask(now);
        for (path, group) in PATHS.into_iter().zip([1, 2, 2]) {
            groups.answered(path, &answer(1, group, states), now);
        }
        groups.plan(|_| false, now);
        groups.poll_timeout(true).map(|at| at - now)
    };
    assert_eq!(after([0, 0]), None);
    assert_eq!(after([0, 1]), Some(INTERVAL));
    assert_eq!(after([1, 1]), Some(INTERVAL), "none is the best that there may be");
    assert_eq!(after([2, 2]), Some(INTERVAL_IN_NEED));
    let (mut groups, now) = three();
    groups.ask(now);
    for (path, group) in PATHS.into_iter().zip([1, 2, 2]) {
        groups.answered(path, &answer(1, group, [0, 2]), now);
    }
    groups.plan(|path| path == PathId(0), now);
    assert_eq!(groups.poll_timeout(true), Some(now + INTERVAL_IN_NEED), "the only one is silent");
    assert_eq!(groups.poll_timeout(false), None, "a disk without requests waits for a report");
    assert_eq!(groups.calm_at(), now + CALM);
}
