//! Tests of properties of the topology that hold for any situation.

use super::*;

#[derive(Clone, Debug)]
struct World {
    sessions: Vec<Session>,
    ports: Vec<char>,
    lost: Vec<Lost>,
    max: u32,
    count: Count,
    flags: [bool; 4],
    /// For each portal: seconds since the last try there, the number of sessions that were closed there, and
    /// the number of sessions to reopen there.
    records: Vec<(Option<u64>, u32, u32)>,
    uneven: Option<u64>,
    calm: Option<u64>,
    opening: Vec<Why>,
}

fn why() -> impl Strategy<Value = Why> {
    prop_oneof![
        Just(Why::Count),
        Just(Why::Flush),
        (0..3u8).prop_map(|isid| Why::Lost(Isid::from_bytes([isid; 6]))),
        Just(Why::Need),
        Just(Why::Standby),
        Just(Why::Spare),
        Just(Why::Spread),
        Just(Why::Better),
    ]
}

fn world() -> impl Strategy<Value = World> {
    let state = prop_oneof![
        2 => Just(SessionState::InUse),
        2 => Just(SessionState::Working),
        1 => Just(SessionState::NotServed),
        1 => Just(SessionState::Closing),
    ];
    let count = prop_oneof![
        Just(Count::Stay),
        (0..9u32).prop_map(Count::More),
        (0..9u32).prop_map(Count::Fewer)
    ];
    let ports = prop_oneof![Just('o'), Just('n'), Just('s'), Just('-')];
    let record = (proptest::option::of(0..120u64), 0..3u32, 0..3u32);
    let isids = proptest::collection::btree_set(0..3u8, 0..3);
    let sizes = (1..10u32, proptest::option::of(0..120u64), proptest::option::of(0..4u64));
    (
        proptest::collection::vec((0..4usize, state), 0..8),
        proptest::collection::vec(ports, 4),
        isids,
        count,
        any::<[bool; 4]>(),
        proptest::collection::vec(record, 4),
        sizes,
        proptest::collection::vec(why(), 0..4),
    )
        .prop_map(
            |(sessions, ports, isids, count, flags, records, (max, uneven, calm), opening)| {
                let sessions = sessions.into_iter().zip(0..).map(|((portal, state), path)| {
                    Session { path: PathId(path), portal: PortalId(portal), state }
                });
                let lost = isids.into_iter().map(|isid| Lost {
                    isid: Isid::from_bytes([isid; 6]),
                    portal: PortalId(usize::from(isid)),
                });
                World {
                    sessions: sessions.collect(),
                    ports,
                    lost: lost.collect(),
                    max,
                    count,
                    flags,
                    records,
                    uneven,
                    calm,
                    opening,
                }
            },
        )
}

impl World {
    fn situation(&self) -> Situation<'_> {
        let [wants_all_portals, lacks_port, wants_second, _] = self.flags;
        Situation {
            portals: self.ports.len(),
            sessions: &self.sessions,
            lost: &self.lost,
            max: self.max,
            count: self.count,
            wants_all_portals,
            lacks_port,
            wants_second,
        }
    }

    /// Returns the topology, the states of the ports, and the time.
    fn build(&self) -> (Topology, PortGroups, Instant) {
        let (mut groups, begun) = two_portals([0, 0]);
        if self.flags[3] {
            groups = self.port_groups(begun);
        }
        let now = begun + 1000 * SECOND - Duration::from_secs(self.calm.unwrap_or_default());
        let mut topology = Topology::new(PortalId(0));
        for (portal, (tried, closed, returning)) in self.records.iter().enumerate() {
            *topology.record(PortalId(portal)) = PortalRecord {
                tried: tried.map(|seconds| now - Duration::from_secs(seconds)),
                closed: *closed,
                returning: *returning,
            };
        }
        topology.uneven_since = self.uneven.map(|seconds| now - Duration::from_secs(seconds));
        topology.moves_from = self.calm.map(|_| begun + 998 * SECOND);
        for (at, why) in self.opening.iter().enumerate() {
            let is_there = topology.opening.iter().any(|open| open.why == *why);
            if !is_there || !matches!(why, Why::Lost(_)) {
                topology.begin(*why, vec![PortalId(at % 4)]);
            }
        }
        (topology, groups, now)
    }

    /// Returns the states of the port groups. Each portal has the group of its number.
    fn port_groups(&self, now: Instant) -> PortGroups {
        let mut groups = PortGroups::new(true, BackOff::new(SECOND, SECOND), now);
        for (portal, port) in (0u16..).zip(&self.ports) {
            let state = match port {
                'o' => 0,
                'n' => 1,
                's' => 2,
                _ => continue,
            };
            let id = portal.to_be_bytes();
            let group = [state, 0x0f, id[0], id[1], 0, 0, 0, 1, 0, 0, 0, 1];
            let data = [&[0, 0, 0, 12][..], &group].concat();
            let path = PathId(portal.into());
            groups.path_opened(path, PortalId(portal.into()));
            let reported = TargetPortGroups::decode(&data).unwrap();
            let answer = Answer { question: 1, group: Some(portal), port: None, groups: reported };
            groups.answered(path, &answer, now);
        }
        groups
    }
}

const fn takes_a_place(why: Why) -> bool {
    matches!(why, Why::Better | Why::Spread | Why::Need)
}

const fn works(session: &Session) -> bool {
    matches!(session.state, SessionState::Working | SessionState::InUse)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_changes_keep_the_limits_and_are_complete(world in world()) {
        let (mut topology, groups, now) = world.build();
        let before = topology.opening.len();
        let changes = topology.poll(&world.situation(), &groups, now);

        // There are never more sessions than the maximum, except for sessions that replace others.
        let there = world.sessions.len() + before;
        let lost = changes.open.iter().filter(|open| matches!(open.why, Why::Lost(_))).count();
        let further = changes.open.iter().filter(|open| {
            !takes_a_place(open.why) && !matches!(open.why, Why::Lost(_))
        });
        let further = further.count();
        prop_assert!(further == 0 || there + lost + further <= world.max as usize);
        let of = |it: Why| changes.open.iter().filter(|open| open.why == it).count();
        prop_assert!(of(Why::Better) <= MAX_MOVES && of(Why::Spread) <= 1);
        prop_assert!(of(Why::Need) <= world.ports.len());

        // There is one login per ISID at a time.
        let mut names = Vec::new();
        for open in &topology.opening {
            if let Why::Lost(isid) = open.why {
                prop_assert!(!names.contains(&isid), "two logins under one ISID");
                names.push(isid);
            }
        }

        // At least one working session stays.
        let is_closed = |path: PathId| changes.close.iter().any(|(it, _)| *it == path);
        if !changes.close.is_empty() {
            prop_assert!(world.sessions.iter().any(|it| works(it) && !is_closed(it.path)));
        }

        // Each session to open has a portal, and the next poll is later than now.
        prop_assert!(changes.open.iter().all(|open| !open.portals.is_empty()));
        prop_assert!(changes.again.is_none_or(|again| again > now));

        // After the changes, another poll finds nothing to change.
        let mut sessions = world.sessions.clone();
        for session in sessions.iter_mut().filter(|it| is_closed(it.path)) {
            session.state = SessionState::Closing;
        }
        let situation = Situation { count: Count::Stay, sessions: &sessions, ..world.situation() };
        let second = topology.poll(&situation, &groups, now);
        prop_assert_eq!((second.open, second.close), (Vec::new(), Vec::new()));
    }
}
