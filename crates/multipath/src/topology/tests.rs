use iscsi_pdu::Isid;
use iscsi_pdu::scsi::{AccessState, TargetPortGroups};
use proptest::prelude::*;

use super::plan::MAX_MOVES;
use super::*;
use crate::ids::PathId;
use crate::port_groups::Answer;
use crate::reconnect::BackOff;

mod properties;

const SECOND: Duration = Duration::from_secs(1);

/// A situation in short form: sessions as portal and state (`u` in use, `w` working, `n` not served, `c`
/// closing), and the state of the port of each portal (`o` optimized, `n` non-optimized, `s` standby, `-`
/// unknown).
struct Given {
    sessions: Vec<Session>,
    portals: Vec<Portal>,
    opening: Vec<(Why, Option<PortalId>)>,
    lost: Vec<Lost>,
    facts: fn(&mut Facts<'_>, Instant),
}

impl Given {
    fn new(sessions: &str, ports: &str) -> Self {
        let sessions = sessions.split_whitespace().zip(0..).map(|(text, path)| {
            let (portal, state) = text.split_at(1);
            let state = match state {
                "u" => SessionState::InUse,
                "w" => SessionState::Working,
                "n" => SessionState::NotServed,
                _ => SessionState::Closing,
            };
            Session { path: PathId(path), portal: PortalId(portal.parse().unwrap()), state }
        });
        let portals =
            ports.chars().map(|port| Portal { access: access(port), ..Portal::default() });
        Self {
            sessions: sessions.collect(),
            portals: portals.collect(),
            opening: Vec::new(),
            lost: Vec::new(),
            facts: |_, _| {},
        }
    }

    fn opening(mut self, why: Why, portal: usize) -> Self {
        self.opening.push((why, Some(PortalId(portal))));
        self
    }

    fn lost(mut self, isid: u8, portal: usize) -> Self {
        self.lost.push(Lost { isid: Isid::from_bytes([isid; 6]), portal: PortalId(portal) });
        self
    }

    fn with(mut self, facts: fn(&mut Facts<'_>, Instant)) -> Self {
        self.facts = facts;
        self
    }

    /// Returns the actions as text: openings with the reason and the portal, closings with the path, and the
    /// seconds until the next poll.
    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn wants(self) -> String {
        let now = Instant::now() + 1000 * SECOND;
        let mut facts = Facts {
            portals: self.portals,
            opening: self.opening,
            has_spares: false,
            uneven_since: None,
            moves_from: None,
            situation: Situation {
                portals: 0,
                sessions: &self.sessions,
                lost: &self.lost,
                max: 8,
                count: Count::Stay,
                wants_all_portals: false,
                lacks_port: false,
                wants_second: false,
            },
        };
        (self.facts)(&mut facts, now);
        let plan = Plan::new(&facts, now).wanted();
        let opens = plan.opens.iter().map(|(why, at)| {
            at.map_or_else(|| format!("{why:?}"), |portal| format!("{why:?} {portal}"))
        });
        let closes = plan.closes.iter().map(|(path, reason)| format!("{reason:?} path {path}"));
        let again = plan.again.iter().map(|at| format!("again in {}", (*at - now).as_secs()));
        opens.chain(closes).chain(again).collect::<Vec<_>>().join(", ")
    }
}

fn access(port: char) -> Option<Access> {
    let state = match port {
        'o' => AccessState::ActiveOptimized,
        'n' => AccessState::ActiveNonOptimized,
        's' => AccessState::Standby,
        _ => return None,
    };
    Some(Access { state, preferred: false })
}

fn tried(facts: &mut Facts<'_>, portal: usize, at: Instant) {
    facts.portals[portal].tried = Some(at);
}

#[test]
fn a_lost_session_reconnects_first_and_once() {
    let isid = |byte| Isid::from_bytes([byte; 6]);
    let lost = |given: Given| given.lost(1, 0).lost(2, 1);
    let [first, second] = [isid(1), isid(2)].map(Why::Lost);
    for (given, expected) in [
        (lost(Given::new("0u", "--")), format!("{first:?} 0, {second:?} 1")),
        (lost(Given::new("0u", "--")).opening(first, 0), format!("{second:?} 1")),
        (
            lost(Given::new("", "--")).with(|facts, _| facts.situation.max = 1),
            format!("{first:?} 0, {second:?} 1"),
        ),
    ] {
        assert_eq!(given.wants(), expected);
    }
    let busy = lost(Given::new("0u 0u", "---")).with(|facts, now| {
        (facts.has_spares, facts.uneven_since) = (true, Some(now - 100 * SECOND));
    });
    assert_eq!(busy.wants(), format!("{first:?} 0, {second:?} 1"), "the others wait");
}

#[test]
fn a_session_whose_port_does_not_serve_the_unit_closes_where_another_one_works() {
    for (sessions, expected) in [
        ("0n 1u", "NotServed path 0"),
        ("0n 1c", ""),
        ("0n", ""),
        ("0n 0n 1w", "NotServed path 0, NotServed path 1"),
    ] {
        assert_eq!(Given::new(sessions, "--").wants(), expected, "{sessions}");
    }
}

#[test]
fn other_portals_are_tried_each_second_while_no_path_serves_the_unit() {
    let need = |given: Given| given.with(|facts, _| facts.situation.lacks_port = true);
    assert_eq!(need(Given::new("0n", "---")).wants(), "Need 1, Need 2");
    assert_eq!(need(Given::new("0n", "---").opening(Why::Spare, 1)).wants(), "Need 2");
    let again = Given::new("0n", "---").with(|facts, now| {
        facts.situation.lacks_port = true;
        facts.situation.max = 1;
        facts.portals[2].closed = 1;
        tried(facts, 1, now);
        tried(facts, 2, now - SECOND);
    });
    assert_eq!(
        again.wants(),
        "Need 2, again in 1",
        "one more than allowed, until the other closes"
    );
}

#[test]
fn portals_in_standby_are_tried_each_minute() {
    let standby = |given: Given| {
        given.with(|facts, now| {
            facts.portals[1].closed = 2;
            tried(facts, 1, now - 60 * SECOND);
            facts.portals[2].closed = 1;
            tried(facts, 2, now - 20 * SECOND);
        })
    };
    assert_eq!(standby(Given::new("0u", "---")).wants(), "Standby 1, again in 40");
    assert_eq!(standby(Given::new("0u", "---").opening(Why::Standby, 1)).wants(), "again in 40");
    let full = Given::new("0u", "--").with(|facts, _| {
        (facts.portals[1].closed, facts.situation.max) = (1, 1);
    });
    assert_eq!(full.wants(), "");
    let back = Given::new("0u 1u", "--").with(|facts, _| facts.portals[1].returning = 2);
    assert_eq!(back.wants(), "Standby 1, Standby 1", "all that were closed return");
}

#[test]
fn each_portal_has_a_session_where_access_states_are_followed() {
    let spares = |given: Given| given.with(|facts, _| facts.has_spares = true);
    assert_eq!(spares(Given::new("0u", "on-")).wants(), "Spare 1, Spare 2");
    assert_eq!(spares(Given::new("0u 1c", "on-")).wants(), "Spare 2");
    assert_eq!(spares(Given::new("0u", "on-").opening(Why::Spare, 1)).wants(), "Spare 2");
    assert_eq!(spares(Given::new("0u", "on-").opening(Why::Count, 0)).wants(), "");
    let later = Given::new("0u", "on-").with(|facts, now| {
        facts.has_spares = true;
        facts.situation.max = 2;
        tried(facts, 1, now - 50 * SECOND);
    });
    assert_eq!(later.wants(), "Spare 2, again in 10");
    let standby = Given::new("0u", "on").with(|facts, now| {
        (facts.has_spares, facts.portals[1].closed) = (true, 1);
        tried(facts, 1, now);
    });
    assert_eq!(standby.wants(), "again in 60");
}

#[test]
fn a_portal_without_a_session_is_tried_each_minute_where_another_has_several() {
    let uneven = |given: Given| {
        given.with(|facts, now| {
            facts.uneven_since = Some(now - 60 * SECOND);
            tried(facts, 1, now - 70 * SECOND);
            tried(facts, 2, now - 80 * SECOND);
        })
    };
    assert_eq!(uneven(Given::new("0u 0u", "---")).wants(), "Spread 2");
    assert_eq!(uneven(Given::new("0u 0u", "---").opening(Why::Spread, 1)).wants(), "");
    let soon = Given::new("0u 0u", "--").with(|facts, now| facts.uneven_since = Some(now - SECOND));
    assert_eq!(soon.wants(), "again in 59");
}

#[test]
fn sessions_move_to_better_ports_four_at_a_time_once_the_states_are_calm() {
    let calm = |given: Given| given.with(|facts, now| facts.moves_from = Some(now));
    for (sessions, ports, expected) in [
        ("0u 1w 1w", "on", "Better"),
        ("0u 1w", "on", ""),
        ("0u 1w 1w", "oo", ""),
        ("0u 1w 1w", "o-", ""),
        ("1w 1w", "on", ""),
        ("0u 1w 1w 1c", "on", "Better"),
        ("0w 1w 1w", "ss", ""),
        ("0u 1w 1w 1w 1w 1w 1w", "on", "Better, Better, Better, Better"),
    ] {
        assert_eq!(calm(Given::new(sessions, ports)).wants(), expected, "{sessions} at {ports}");
    }
    assert_eq!(calm(Given::new("0u 1w 1w", "on").opening(Why::Better, 0)).wants(), "");
    let moves = Given::new("0u 1w 1w", "on").with(|facts, now| {
        facts.moves_from = Some(now + 2 * SECOND);
    });
    assert_eq!(moves.wants(), "again in 2");
}

#[test]
fn a_second_session_is_opened_for_slow_flushes_and_others_as_the_tuner_wants() {
    let flush = |given: Given| given.with(|facts, _| facts.situation.wants_second = true);
    assert_eq!(flush(Given::new("0u", "-")).wants(), "Flush");
    assert_eq!(flush(Given::new("0u 0u", "-")).wants(), "");
    assert_eq!(flush(Given::new("0u", "-").opening(Why::Flush, 0)).wants(), "");
    let more = |given: Given| given.with(|facts, _| facts.situation.count = Count::More(7));
    assert_eq!(more(Given::new("0u 0u 0u 0u 0u", "-")).wants(), "Count, Count, Count");
    assert_eq!(more(Given::new("0u 0u 0u 0u 0u 0c", "-").opening(Why::Spare, 1)).wants(), "Count");
    let fewer = |given: Given| given.with(|facts, _| facts.situation.count = Count::Fewer(2));
    assert_eq!(fewer(Given::new("0u 0u 1w 0u 0u", "on")).wants(), "Surplus path 3, Surplus path 4");
    assert_eq!(fewer(Given::new("0u 0u", "-")).wants(), "Surplus path 1", "one stays");
}

/// Creates a disk with two portals whose ports are in these states. Each portal has the group of its number.
#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn two_portals(states: [u8; 2]) -> (PortGroups, Instant) {
    let now = Instant::now();
    let mut groups = PortGroups::new(true, BackOff::new(SECOND, SECOND), now);
    let group = |id: u8, state: u8| [state, 0x0f, 0, id, 0, 0, 0, 1, 0, 0, 0, id];
    let data = [&[0, 0, 0, 24][..], &group(0, states[0]), &group(1, states[1])].concat();
    let reported = TargetPortGroups::decode(&data).unwrap();
    for (portal, group) in [(0, 0u16), (1, 1)] {
        let path = PathId(group.into());
        groups.path_opened(path, PortalId(portal));
        let groups_now = reported.clone();
        let answer = Answer { question: 1, group: Some(group), port: None, groups: groups_now };
        groups.answered(path, &answer, now);
    }
    (groups, now)
}

const fn quiet(sessions: &[Session]) -> Situation<'_> {
    Situation {
        portals: 2,
        sessions,
        lost: &[],
        max: 8,
        count: Count::Stay,
        wants_all_portals: false,
        lacks_port: false,
        wants_second: false,
    }
}

fn at(portals: &[usize]) -> Vec<Session> {
    let sessions = portals.iter().zip(0..).map(|(portal, path)| {
        let portal = PortalId(*portal);
        Session { path: PathId(path), portal, state: SessionState::InUse }
    });
    sessions.collect()
}

#[test]
fn further_sessions_go_round_the_portals_and_to_the_best_ports_first() {
    let (groups, now) = two_portals([1, 0]);
    let mut topology = Topology::new(PortalId(0));
    let portals = |opens: &[Open]| {
        opens
            .iter()
            .map(|open| open.portals.iter().map(|it| it.0).collect())
            .collect::<Vec<Vec<_>>>()
    };
    assert_eq!(portals(&topology.open_first(3, 2)), [[1, 0], [0, 1], [1, 0]]);
    let sessions = at(&[0]);
    let more = Situation { count: Count::More(2), ..quiet(&sessions) };
    assert_eq!(portals(&topology.poll(&more, &groups, now).open), [[1, 0], [1, 0]]);
}

#[test]
fn a_session_that_moves_takes_the_place_of_the_youngest_at_a_worse_port() {
    let (groups, now) = two_portals([0, 1]);
    let calm = groups.calm_at();
    let mut topology = Topology::new(PortalId(0));
    let sessions = at(&[0, 1, 1]);
    assert_eq!(topology.poll(&quiet(&sessions), &groups, now).again, Some(calm));
    let open = topology.poll(&quiet(&sessions), &groups, calm).open;
    assert_eq!(open.len(), 1);
    let admission = topology.opened(open[0].id, PortalId(0), &quiet(&sessions), &groups, calm);
    assert_eq!(admission, Admission::Replace(PathId(2)));
    let again = topology.poll(&quiet(&sessions), &groups, calm).open;
    let dismissed = topology.opened(again[0].id, PortalId(1), &quiet(&sessions), &groups, calm);
    assert_eq!(dismissed, Admission::Dismiss, "no better port was reached");
    let next = topology.poll(&quiet(&sessions), &groups, calm);
    assert_eq!((next.open.len(), next.again), (0, Some(calm + INTERVAL)));
}

#[test]
fn a_session_at_an_unused_portal_takes_the_place_of_the_youngest_where_there_are_most() {
    let (groups, now) = two_portals([0, 0]);
    let mut topology = Topology::new(PortalId(0));
    topology.record(PortalId(1)).tried = Some(now);
    let sessions = at(&[0, 0, 0]);
    let open = |topology: &mut Topology, sessions: &[Session], now: Instant| {
        // `max` leaves no room for a further session, so that a session has to move to the unused portal.
        topology.poll(&Situation { max: 3, ..quiet(sessions) }, &groups, now).open
    };
    assert_eq!(open(&mut topology, &sessions, now), []);
    let spread = open(&mut topology, &sessions, now + INTERVAL);
    assert_eq!(spread[0].why, Why::Spread);
    let admission = topology.opened(spread[0].id, PortalId(1), &quiet(&sessions), &groups, now);
    assert_eq!(admission, Admission::Replace(PathId(2)));
    let later = open(&mut topology, &sessions, now + 2 * INTERVAL);
    let even = at(&[0]);
    let admission = topology.opened(later[0].id, PortalId(1), &quiet(&even), &groups, now);
    assert_eq!(admission, Admission::Dismiss, "no portal has several by now");
}

#[test]
fn sessions_return_to_a_port_that_serves_the_unit_again() {
    let (groups, now) = two_portals([0, 0]);
    let mut topology = Topology::new(PortalId(0));
    let mut sessions = at(&[0, 1, 1, 1]);
    sessions[1..].iter_mut().for_each(|it| it.state = SessionState::NotServed);
    let closed = topology.poll(&quiet(&sessions), &groups, now).close;
    assert_eq!(closed, [1, 2, 3].map(|path| (PathId(path), CloseReason::NotServed)));
    let sessions = at(&[0]);
    let changes = topology.poll(&quiet(&sessions), &groups, now);
    assert_eq!((changes.open.len(), changes.again), (0, Some(now + INTERVAL)));
    let now = now + INTERVAL;
    let looks = topology.poll(&quiet(&sessions), &groups, now).open;
    assert_eq!((looks.len(), looks[0].why), (1, Why::Standby));
    assert_eq!(
        topology.opened(looks[0].id, PortalId(1), &quiet(&sessions), &groups, now),
        Admission::Join
    );
    let sessions = at(&[0, 1]);
    assert_eq!(topology.poll(&quiet(&sessions), &groups, now).open.len(), 2);
    assert_eq!(topology.poll(&quiet(&sessions), &groups, now).open.len(), 0, "they return once");
}

#[test]
fn a_lost_session_reconnects_once_also_where_it_is_asked_for_alone() {
    let (groups, now) = two_portals([0, 0]);
    let mut topology = Topology::new(PortalId(0));
    let lost = [Lost { isid: Isid::from_bytes([1; 6]), portal: PortalId(1) }];
    let sessions = at(&[0]);
    let situation = Situation { lost: &lost, ..quiet(&sessions) };
    let open = topology.poll(&situation, &groups, now).open;
    assert_eq!(open[0].portals, [1, 0].map(PortalId));
    assert_eq!((topology.reconnecting(), topology.opening()), (1, 0));
    assert_eq!(topology.reconnect(&lost[0], 2), None);
    topology.ended(open[0].id, now);
    assert!(topology.reconnect(&lost[0], 2).is_some());
}

#[test]
fn the_target_is_asked_for_its_portals_each_ten_seconds() {
    let (_, now) = two_portals([0, 0]);
    let mut topology = Topology::new(PortalId(0));
    assert!(topology.begin_discovery(now));
    assert!(!topology.begin_discovery(now + INTERVAL), "one at a time");
    topology.end_discovery(now);
    assert!(!topology.begin_discovery(now + DISCOVERY_INTERVAL - SECOND));
    assert!(topology.begin_discovery(now + DISCOVERY_INTERVAL));
}
