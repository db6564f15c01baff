//! Tests of ports that serve a unit in different ways (SPC-4 §5.11): which ports requests use, and what
//! happens to requests that a port refuses.

use std::time::Duration;

use crate::support::{
    TARGET, Watched, initiator, let_pass, notes_of, pattern, shown, soon, unit_change, until,
};
use iscsi_initiator::scsi::Lun;
use iscsi_initiator::{Disk, DiskEvent, ErrorKind, Options, PathStatus, Sessions};
use iscsi_pdu::scsi::{AccessState as State, SetTargetPortGroups};
use iscsi_testkit::config::{Portal, TargetConfig};
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::scsi::{AccessState, PortGroup, PortGroups, Sense, TargetPort, status};
use iscsi_testkit::target::Outcome;

const BLOCKS: u64 = 4096;
const PART: usize = 8192;

/// An array with two ports, each in a group of its own: 1 and 2.
struct Array {
    groups: PortGroups,
    ports: Vec<Watched>,
    disk: RamDisk,
}

impl Array {
    async fn start(states: [AccessState; 2]) -> Self {
        let groups =
            (1..).zip(states).map(|(id, state)| PortGroup::new(id, [id]).with_state(state));
        let groups = PortGroups::new(groups.collect::<Vec<_>>());
        let disk = RamDisk::new(512, BLOCKS);
        let mut ports = Vec::new();
        for port in [1, 2] {
            let mut config = TargetConfig::new(TARGET, disk.clone())
                .with_port(TargetPort::new(groups.clone(), port));
            config.keys.default_time2wait = 0;
            config.portal_group = Some(port);
            ports.push(Watched::start(config).await);
        }
        Self { groups, ports, disk }
    }

    fn url(&self) -> String {
        let [first, second] = [0, 1].map(|port: usize| self.ports[port].address());
        format!("iscsi://{first}/{TARGET}/0?portal={second}")
    }

    async fn open(&self, sessions: u32) -> Disk {
        let disk = soon(initiator(options(sessions)).disk(self.url())).await.unwrap();
        until(|| disk.sessions().len() == sessions as usize).await;
        disk
    }

    /// Returns how many commands that move data were sent to a port.
    fn moved(&self, port: usize) -> usize {
        const READ_16: u8 = 0x88;
        const WRITE_16: u8 = 0x8a;
        self.count(port, &[READ_16, WRITE_16])
    }

    /// Returns how many SYNCHRONIZE CACHE commands, of 10 and of 16 bytes, were sent to a port.
    fn flushes(&self, port: usize) -> usize {
        self.count(port, &[0x35, 0x91])
    }

    fn count(&self, port: usize, operations: &[u8]) -> usize {
        self.ports[port].with(|target| {
            let all = target.commands().iter();
            all.filter(|command| operations.contains(&command.cdb[0])).count()
        })
    }

    /// Waits until each port has reported its states, so that the next command is sent by the test.
    async fn asked(&self) {
        const MAINTENANCE_IN: u8 = 0xa3;
        let is_asked = |port: usize| {
            let is_idle = self.ports[port].with(|target| target.active_tasks() == 0);
            is_idle && self.count(port, &[MAINTENANCE_IN]) > 0
        };
        until(|| is_asked(0) && is_asked(1)).await;
    }

    /// Makes a port answer its next commands as LIO 6.1 does for every command through an offline group.
    fn refuse_senselessly(&self, port: usize, commands: usize) {
        self.ports[port].with(|target| {
            let refusals = (0..commands).map(|_| Outcome::check(Sense::INVALID_FIELD));
            refusals.for_each(|refusal| target.end_next_with(refusal));
        });
    }
}

fn options(sessions: u32) -> Options {
    Options::default()
        .with_sessions(Sessions::Fixed(sessions))
        .with_retry_timeout(Duration::from_secs(20))
}

async fn write_all(disk: &Disk, seed: u8) {
    let mut writes = tokio::task::JoinSet::new();
    for at in 0..16_u64 {
        let disk = disk.clone();
        let data = pattern(PART, seed ^ at as u8);
        writes.spawn(async move { disk.write_at(at * PART as u64, data).await });
    }
    while let Some(write) = soon(writes.join_next()).await {
        write.unwrap().unwrap();
    }
}

fn assert_holds(array: &Array, seed: u8) {
    for at in 0..16_u64 {
        assert!(array.disk.holds(at * PART as u64, &pattern(PART, seed ^ at as u8)), "part {at}");
    }
}

/// Writes until the writes go only to `port`. This takes some writes, because the disk queries the states of the
/// ports in the background.
async fn settle_on(array: &Array, disk: &Disk, port: usize) {
    let other = 1 - port;
    for _ in 0..200 {
        let before = (array.moved(port), array.moved(other));
        write_all(disk, 0).await;
        if array.moved(other) == before.1 && array.moved(port) > before.0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("requests still go to port {other}");
}

/// TPG-10: requests use active/optimized ports before active/non-optimized ports.
#[tokio::test]
async fn requests_go_to_the_optimized_port_and_no_other() {
    let array = Array::start([AccessState::ActiveNonOptimized, AccessState::ActiveOptimized]).await;
    let disk = array.open(2).await;
    settle_on(&array, &disk, 1).await;
    let before = array.moved(0);
    for seed in 1..20 {
        write_all(&disk, seed).await;
    }
    assert_eq!(array.moved(0), before);
    let port = |path: &PathStatus| usize::from(path.portal.port != array.ports[0].address().port());
    let mut paths = disk.paths();
    paths.sort_by_key(port);
    let states: Vec<_> = paths.iter().map(|path| (path.state.to_string(), path.access)).collect();
    let expected = [("standby", State::ActiveNonOptimized), ("open", State::ActiveOptimized)];
    assert_eq!(states, expected.map(|(state, access)| (state.to_owned(), Some(access))));
    assert_holds(&array, 19);
    // Among equal ports, the preferred one comes first.
    array.groups.set_state(1, AccessState::ActiveOptimized);
    array.groups.set_preferred(1, true);
    settle_on(&array, &disk, 0).await;
}

/// If a port was busy when it was queried, it is queried again until it reports its group, even without
/// another reason.
#[tokio::test]
async fn a_port_that_was_busy_when_it_was_asked_is_asked_again() {
    const MAINTENANCE_IN: u8 = 0xa3;
    let array = Array::start([AccessState::ActiveOptimized, AccessState::ActiveNonOptimized]).await;
    let disk = soon(initiator(options(2)).disk(array.url())).await.unwrap();
    // The sessions are open, and have not queried the states yet.
    array.ports[1].with(|target| {
        (0..2).for_each(|_| target.end_next_with(Outcome::status(status::BUSY)));
    });
    until(|| array.count(1, &[MAINTENANCE_IN]) > 0).await;
    settle_on(&array, &disk, 0).await;
    assert!(array.count(1, &[MAINTENANCE_IN]) > 1);
}

/// TPG-11: the array reports a change of states to each session, instead of executing its next command.
/// Requests follow the new states immediately.
#[tokio::test]
async fn states_that_change_are_followed_at_once() {
    let array = Array::start([AccessState::ActiveOptimized, AccessState::ActiveNonOptimized]).await;
    let disk = array.open(2).await;
    settle_on(&array, &disk, 0).await;
    let mut changes = disk.events();
    array.groups.set_state(2, AccessState::ActiveOptimized);
    array.groups.set_state(1, AccessState::ActiveNonOptimized);
    settle_on(&array, &disk, 1).await;
    assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&DiskEvent::AccessStatesChanged)));
    for refusing in [AccessState::Standby, AccessState::Unavailable, AccessState::Transitioning] {
        for (good, bad) in [(0, 1), (1, 0)] {
            array.groups.set_state(good as u16 + 1, AccessState::ActiveNonOptimized);
            array.groups.set_state(bad as u16 + 1, refusing);
            write_all(&disk, 77).await;
            assert_holds(&array, 77);
            settle_on(&array, &disk, good).await;
        }
    }
    assert_eq!(disk.sessions().len(), 2, "a session at a port in standby is kept");
}

/// TPG-12: while no port serves the unit, requests wait, and none is lost.
#[tokio::test]
async fn where_no_port_serves_the_unit_requests_wait_until_one_does() {
    for refusing in [AccessState::Standby, AccessState::Unavailable, AccessState::Transitioning] {
        let array = Array::start([AccessState::ActiveOptimized; 2]).await;
        let disk = array.open(2).await;
        write_all(&disk, 1).await;
        array.groups.set_state(1, refusing);
        array.groups.set_state(2, refusing);
        let writing = tokio::spawn({
            let disk = disk.clone();
            async move { write_all(&disk, 2).await }
        });
        until(|| {
            disk.status().waits.iter().any(|wait| wait.cause.to_string().contains("NOT READY"))
        })
        .await;
        array.groups.set_state(2, AccessState::ActiveNonOptimized);
        soon(writing).await.unwrap();
        assert_holds(&array, 2);
        soon(disk.flush()).await.unwrap();
    }
}

#[tokio::test]
async fn a_port_that_never_serves_the_unit_ends_requests_when_patience_ends() {
    let array = Array::start([AccessState::ActiveOptimized; 2]).await;
    let mut options = options(2);
    options = options.with_retry_timeout(Duration::from_millis(300));
    let disk = soon(initiator(options).disk(array.url())).await.unwrap();
    array.groups.set_state(1, AccessState::Unavailable);
    array.groups.set_state(2, AccessState::Standby);
    let error = soon(disk.write_at(0, pattern(PART, 1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(!error.may_have_executed());
}

/// A port that does not serve the unit refuses nearly every command, including those that open a disk. The
/// disk opens through the other port.
#[tokio::test]
async fn a_disk_opens_through_the_port_that_serves_it() {
    for refusing in [AccessState::Standby, AccessState::Unavailable, AccessState::Transitioning] {
        let array = Array::start([refusing, AccessState::ActiveOptimized]).await;
        let disk = soon(initiator(options(2)).disk(array.url())).await.unwrap();
        write_all(&disk, 3).await;
        assert_holds(&array, 3);
        assert_eq!(array.moved(0), 0, "nothing is sent to a port that is known to refuse it");
        // When both sessions are open, the port that served the unit stops serving it, and the disk uses the
        // other port.
        until(|| disk.sessions().len() == 2).await;
        array.groups.set_state(1, AccessState::ActiveOptimized);
        array.groups.set_state(2, refusing);
        write_all(&disk, 4).await;
        assert_holds(&array, 4);
    }
    let array = Array::start([AccessState::Standby, AccessState::Unavailable]).await;
    let error = soon(initiator(options(2)).disk(array.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

/// LIO 6.1 refuses commands through an offline port with INVALID FIELD IN CDB. A flush then uses another port.
#[tokio::test]
async fn a_flush_that_a_port_refuses_senselessly_goes_to_another_one() {
    let array = Array::start([AccessState::ActiveOptimized; 2]).await;
    array.disk.set_cache(Cache::Volatile);
    let disk = array.open(2).await;
    write_all(&disk, 1).await;
    array.asked().await;
    array.refuse_senselessly(0, 1);
    soon(disk.flush()).await.unwrap();
    assert_eq!(array.flushes(0), 1);
    assert!(array.flushes(1) > 0 && array.disk.unflushed_blocks() == 0);
}

/// A port that does not serve the unit cannot confirm the unit's identity; another port can, and the flush
/// succeeds over it.
#[tokio::test]
async fn a_doubt_at_a_port_that_does_not_serve_the_unit_holds_nothing_up() {
    const LUNS_CHANGED: Sense = Sense::new(6, 0x3f, 0x0e);
    for refusing in [Some(AccessState::Offline), Some(AccessState::Transitioning), None] {
        let array = Array::start([AccessState::ActiveOptimized; 2]).await;
        array.disk.set_cache(Cache::Volatile);
        let options = options(2).with_retry_timeout(Duration::from_secs(3600));
        let disk = soon(initiator(options).disk(array.url())).await.unwrap();
        write_all(&disk, 1).await;
        array.asked().await;
        array.ports[0].with(|target| target.end_next_with(Outcome::check(LUNS_CHANGED)));
        match refusing {
            Some(state) => array.groups.set_state(1, state),
            None => array.refuse_senselessly(0, 10_000),
        }
        soon(disk.flush()).await.unwrap();
        assert!(array.flushes(1) > 0 && array.disk.unflushed_blocks() == 0, "{refusing:?}");
    }
}

#[tokio::test]
async fn a_disk_opens_through_another_port_than_one_that_refuses_senselessly() {
    let array = Array::start([AccessState::ActiveOptimized; 2]).await;
    array.refuse_senselessly(0, 100);
    let disk = soon(initiator(options(1)).disk(array.url())).await.unwrap();
    write_all(&disk, 3).await;
    assert_holds(&array, 3);
}

/// TPG-13: a unit that claims port groups but does not know REPORT TARGET PORT GROUPS is used over all ports.
#[tokio::test]
async fn an_array_that_claims_port_groups_and_tells_nothing_is_used_all_the_same() {
    let array = Array::start([AccessState::ActiveOptimized; 2]).await;
    array.groups.refuse_reports();
    let disk = array.open(2).await;
    write_all(&disk, 5).await;
    assert_holds(&array, 5);
    let told = || notes_of(&disk).iter().any(|note| note.contains("TPGS"));
    until(told).await;
    array.groups.set_state(1, AccessState::Standby);
    write_all(&disk, 6).await;
    write_all(&disk, 7).await;
    assert_holds(&array, 7);
}

/// TPG-14: an array older than SPC-4 knows only the shorter header. The groups can still be read and set.
#[tokio::test]
async fn groups_are_read_and_set_by_those_who_ask() {
    let array = Array::start([AccessState::ActiveOptimized, AccessState::Standby]).await;
    array.groups.refuse_extended_header();
    let session = soon(initiator(options(1)).connect(array.url())).await.unwrap();
    let unit = session.logical_unit(Lun::ZERO);
    let port = soon(unit.target_port()).await.unwrap();
    assert_eq!((port.relative_id, port.group), (Some(1), Some(1)));
    let states = |groups: &iscsi_pdu::scsi::TargetPortGroups| {
        groups.groups.iter().map(|group| (group.id, group.state)).collect::<Vec<_>>()
    };
    let groups = soon(unit.target_port_groups()).await.unwrap();
    assert_eq!(states(&groups), [(1, State::ActiveOptimized), (2, State::Standby)]);
    let mut swap = SetTargetPortGroups::new();
    swap.set_group(1, State::Standby).unwrap();
    swap.set_group(2, State::ActiveOptimized).unwrap();
    soon(unit.set_target_port_groups(&swap)).await.unwrap();
    assert_eq!(array.groups.state(2), Some(AccessState::ActiveOptimized));
    array.groups.set_support(1);
    let refused = soon(unit.set_target_port_groups(&swap)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

/// TPG-15: a command sent directly to a unit waits up to the time that the array reports for a transition. Here
/// the commands that open a disk wait, because both ports are in transition for 1.5 s.
#[tokio::test]
async fn a_transition_is_waited_for() {
    let array = Array::start([AccessState::Transitioning; 2]).await;
    let url = array.url();
    let opening = tokio::spawn(async move { initiator(options(1)).disk(url).await });
    let_pass(Duration::from_millis(1500)).await;
    array.groups.set_state(1, AccessState::ActiveOptimized);
    array.groups.set_state(2, AccessState::ActiveOptimized);
    let disk = soon(opening).await.unwrap().unwrap();
    write_all(&disk, 8).await;
    assert_holds(&array, 8);
}

/// All sessions except one move to the port that serves the unit better.
#[tokio::test]
async fn sessions_move_to_the_better_port() {
    let array = Array::start([AccessState::ActiveNonOptimized, AccessState::ActiveOptimized]).await;
    let disk = array.open(6).await;
    let (mut events, mut moves) = (disk.events(), [0, 0]);
    let count = |port: usize| {
        let address = array.ports[port].address();
        let sessions = disk.sessions();
        let there = sessions.iter().filter_map(|session| session.portal());
        there.filter(|portal| portal.port == address.port()).count()
    };
    soon(async {
        while (count(0), count(1)) != (1, 5) {
            write_all(&disk, 9).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_holds(&array, 9);
    // Each move is one path that comes up and one path that the disk has closed.
    while moves != [2, 2] {
        let event = soon(events.next()).await.unwrap();
        assert!(!matches!(event, DiskEvent::Missed { .. }), "{event}");
        if let DiskEvent::PathUp { portal, .. } = event {
            assert_eq!(portal.port, array.ports[1].address().port());
            moves[0] += 1;
        } else if let DiskEvent::PathDown { portal, cause, .. } = event {
            assert_eq!(portal.port, array.ports[0].address().port());
            assert!(cause.is_none(), "{cause:?}");
            moves[1] += 1;
        }
    }
}

/// With `portals=auto`, the list of portals that the target reports adds its other port to the disk.
#[tokio::test]
async fn all_portals_that_the_target_names_are_ways_to_the_unit() {
    let array = Array::start([AccessState::ActiveOptimized; 2]).await;
    let [first, second] = [0, 1].map(|port: usize| array.ports[port].address());
    for port in &array.ports {
        port.with(|target| {
            let addresses = vec![format!("{first},1"), format!("{second},2")];
            let list = Portal { name: TARGET.to_owned(), addresses };
            target.config_mut().discovery.targets = vec![list];
        });
    }
    let url = format!("iscsi://{first}/{TARGET}/0?portals=auto");
    let disk = soon(initiator(options(2)).disk(url)).await.unwrap();
    until(|| array.ports[1].with(|target| target.sessions()) == 1).await;
    array.groups.set_state(1, AccessState::Unavailable);
    write_all(&disk, 10).await;
    assert_holds(&array, 10);
    let error = soon(initiator(options(1)).disk(format!("iscsi://{first}/{TARGET}/0?portals=all")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

/// Reservation commands also use a port that serves the unit.
#[tokio::test]
async fn reservations_are_asked_for_through_a_port_that_serves_the_unit() {
    let array = Array::start([AccessState::ActiveOptimized, AccessState::ActiveNonOptimized]).await;
    let disk = array.open(2).await;
    settle_on(&array, &disk, 0).await;
    array.groups.set_state(1, AccessState::Unavailable);
    settle_on(&array, &disk, 1).await;
    assert!(soon(disk.registered_keys()).await.unwrap().keys.is_empty());
}
