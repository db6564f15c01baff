//! Tests that writes on a path that is held up or lost never overwrite newer data.

use std::ops::Range;

use iscsi_testkit::fault::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::Sense;

use super::*;
use crate::error::{Advice, Error, ErrorKind};
use crate::options::sessions::Sessions;
use crate::{Disk, Session};

const PARTS: u8 = 16;
const PART: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(200);
/// Longer than the lifetime of any segment.
const LONG: Duration = Duration::from_secs(150);

/// A disk over two portals. Its first path is held up, with copies of writes in flight that the other path has
/// completed.
struct Rig {
    network: Simulated,
    node: Node,
    disk: Disk,
    medium: RamDisk,
}

/// Creates the targets of two portals: one target if the portal groups are equal. With group 0 a target states
/// no portal group.
fn targets(medium: &RamDisk, portal_groups: [u16; 2]) -> [Arc<Mutex<Target>>; 2] {
    let target = |portal_group| {
        let mut config = TargetConfig::new(TARGET, medium.clone());
        config.portal_group = Some(portal_group).filter(|group| *group > 0);
        config.keys.default_time2wait = 0;
        config.record = true;
        Arc::new(Mutex::new(Target::new(config)))
    };
    let first = target(portal_groups[0]);
    let is_one = portal_groups[0] == portal_groups[1];
    [Arc::clone(&first), if is_one { first } else { target(portal_groups[1]) }]
}

async fn open_at(node: &Node, url: &str) -> Disk {
    open::open(node, Url::parse(url).unwrap()).await.unwrap()
}

impl Rig {
    async fn open(portal_groups: [u16; 2]) -> Self {
        let medium = RamDisk::new(512, 8192);
        let mut properties = Properties::default();
        properties.latency = ROUND_TRIP / 2;
        let network = Simulated::new(targets(&medium, portal_groups), properties);
        let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
        let mut options = Options { use_environment: false, ..Options::default() };
        options = options.with_sessions(Sessions::Fixed(2)).with_retry_timeout(PATIENCE);
        let node = Node::over(Arc::new(network.clone()), name, options).unwrap();
        let url = format!("iscsi://192.0.2.1/{TARGET}/0?portal=192.0.2.2");
        let disk = open_at(&node, &url).await;
        assert_eq!(disk.sessions().len(), 2);
        Self { network, node, disk, medium }
    }

    /// Opens the disk, holds up its first path, and writes, so that copies of the writes are held up there.
    async fn start(portal_groups: [u16; 2]) -> Self {
        let rig = Self::open(portal_groups).await;
        for seed in 0..4 {
            rig.write(seed).await.unwrap();
        }
        rig.network.portals[0].hold();
        rig.write(OLD).await.unwrap();
        assert_eq!(rig.parts_of(OLD), PARTS);
        rig
    }

    /// Writes the data of `seed` to all parts concurrently.
    async fn write(&self, seed: u8) -> Result<(), Error> {
        write(&self.disk, seed).await
    }

    /// Returns how many parts of the medium hold the data of `seed`.
    fn parts_of(&self, seed: u8) -> u8 {
        parts_of(&self.medium, seed)
    }

    /// From this call on, new connections to the first portal reach another target with the same medium, whose
    /// portal group is `portal_group`. Existing connections stay at the old target.
    fn lead_first_portal_to(&self, portal_group: u16) {
        let [target, _] = targets(&self.medium, [portal_group; 2]);
        *lock(&self.network.portals[0].moved_to) = Some(target);
    }

    /// Lets the writes that were held up reach the target.
    async fn release(&self) {
        self.network.portals[0].release();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

const OLD: u8 = 0x11;
const NEW: u8 = 0x22;

/// Returns the offset of a part, in bytes.
fn at(part: u8) -> u64 {
    u64::from(part) * PART as u64
}

fn data(part: u8, seed: u8) -> Bytes {
    vec![seed ^ part; PART].into()
}

/// Makes neither portal reachable, and cuts the connections through the first one.
fn take_away(network: &Simulated) {
    network.portals.iter().for_each(|portal| portal.refuse(true));
    network.portals[0].cut();
}

fn bring_back(network: &Simulated) {
    network.portals.iter().for_each(|portal| portal.refuse(false));
}

fn parts_of(medium: &RamDisk, seed: u8) -> u8 {
    let holds = |part: &u8| medium.holds(at(*part), &data(*part, seed));
    (0..PARTS).filter(holds).map(|_| 1).sum()
}

async fn write(disk: &Disk, seed: u8) -> Result<(), Error> {
    write_parts(disk, 0..PARTS, seed).await
}

async fn write_parts(disk: &Disk, parts: Range<u8>, seed: u8) -> Result<(), Error> {
    let mut writes = tokio::task::JoinSet::new();
    for part in parts {
        let disk = disk.clone();
        writes.spawn(async move { disk.write_at(at(part), data(part, seed)).await });
    }
    writes.join_all().await.into_iter().collect()
}

/// Writes that one path has completed also have copies in flight on a path that is held up. The copies are
/// aborted, so their blocks are free when that path responds.
#[tokio::test(start_paused = true)]
async fn the_losing_copy_of_a_write_is_aborted() {
    let rig = Rig::start([1, 1]).await;
    let newer = tokio::spawn({
        let disk = rig.disk.clone();
        async move { write(&disk, NEW).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!newer.is_finished() && rig.parts_of(OLD) > 0);
    rig.network.portals[0].release();
    newer.await.unwrap().unwrap();
    assert_eq!((rig.parts_of(NEW), rig.disk.status().reconnects), (PARTS, 0));
    let target = lock(&rig.network.portals[0].target);
    let aborts = target.received().iter();
    let aborts = aborts.filter(|(_, pdu)| pdu.opcode() == Some(Opcode::TaskManagementRequest));
    assert!(aborts.count() > 0);
    assert!(target.violations().is_empty(), "{:?}", target.violations());
}

/// After a disk was logged out, its writes that were held up do not overwrite what another disk writes.
#[tokio::test(start_paused = true)]
async fn a_disk_that_is_logged_out_changes_nothing_any_more() {
    let rig = Rig::start([1, 1]).await;
    assert!(!rig.disk.is_settled());
    rig.disk.logout().await.unwrap();
    assert!(rig.disk.is_settled());
    let again = open_at(&rig.node, &format!("iscsi://192.0.2.2/{TARGET}/0")).await;
    write(&again, NEW).await.unwrap();
    again.flush().await.unwrap();
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), PARTS);
}

/// Dropping the last handle settles the writes as a logout does, but no caller receives the result.
#[tokio::test(start_paused = true)]
async fn a_disk_that_is_dropped_is_settled_in_the_background() {
    let Rig { network, node, disk, medium } = Rig::start([1, 1]).await;
    let session = disk.sessions().remove(0);
    drop(disk);
    drop(session.closed().await);
    tokio::time::sleep(LONG).await;
    let again = open_at(&node, &format!("iscsi://192.0.2.2/{TARGET}/0")).await;
    write(&again, NEW).await.unwrap();
    network.portals[0].release();
    tokio::time::sleep(LONG).await;
    assert_eq!(parts_of(&medium, NEW), PARTS);
}

/// A logout that cannot settle all writes returns an error, within a time limit.
#[tokio::test(start_paused = true)]
async fn a_logout_says_what_it_could_not_settle() {
    let rig = Rig::start([1, 1]).await;
    rig.network.portals.iter().for_each(|portal| portal.refuse(true));
    let begun = Instant::now();
    let error = rig.disk.logout().await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::WriteNothing), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unsettled);
    assert!(begun.elapsed() <= 2 * PATIENCE, "{:?}", begun.elapsed());
    assert!(!rig.disk.is_settled());
    let again = rig.disk.logout().await.unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
}

/// Writes to blocks with unsettled writes of a lost session wait until a login with the ISID of that session, to
/// the same portal group, settles the unsettled writes. Elapsed time does not settle them.
#[tokio::test(start_paused = true)]
async fn newer_data_waits_until_a_lost_session_is_reinstated() {
    let rig = Rig::start([1, 1]).await;
    take_away(&rig.network);
    let newer = tokio::spawn({
        let disk = rig.disk.clone();
        async move { write(&disk, NEW).await }
    });
    tokio::time::sleep(LONG).await;
    assert!(!newer.is_finished() && rig.parts_of(OLD) > 0);
    bring_back(&rig.network);
    newer.await.unwrap().unwrap();
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), PARTS);
    rig.disk.logout().await.unwrap();
}

/// RFC 8305 §5: a portal that does not respond delays a reconnect, and the writes that wait for it, only by its
/// head start.
#[tokio::test(start_paused = true)]
async fn a_dark_portal_costs_its_head_start() {
    let rig = Rig::start([1, 1]).await;
    rig.network.portals[0].is_dark.store(true, Ordering::Relaxed);
    rig.network.portals[0].cut();
    let begun = Instant::now();
    rig.write(NEW).await.unwrap();
    assert!(
        begun.elapsed() < rig.node.options().advanced.sockets.connect_timeout,
        "{:?}",
        begun.elapsed()
    );
    assert_eq!((rig.disk.status().reconnects, rig.disk.sessions().len()), (1, 2));
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), PARTS);
    rig.disk.logout().await.unwrap();
}

/// A session that has reconnected over another portal is replaced by a session over its own portal when that
/// portal responds. The replacement loses no request in flight.
#[tokio::test(start_paused = true)]
async fn sessions_are_spread_over_the_portals_again() {
    let rig = Rig::start([1, 1]).await;
    let at_first = || {
        let sessions = rig.disk.sessions();
        let at_first = |session: &Session| session.portal().unwrap().host == "192.0.2.1";
        (sessions.iter().filter(|session| at_first(session)).count(), sessions.len())
    };
    rig.network.portals[0].refuse(true);
    rig.network.portals[0].cut();
    rig.network.portals[0].release();
    rig.write(NEW).await.unwrap();
    assert_eq!(at_first(), (0, 2));
    rig.network.portals[0].refuse(false);
    let begun = Instant::now();
    while begun.elapsed() < LONG && at_first() != (1, 2) {
        rig.write(NEW).await.unwrap();
    }
    assert_eq!((at_first(), rig.disk.status().reconnects), ((1, 2), 1));
    rig.write(OLD).await.unwrap();
    assert_eq!(rig.parts_of(OLD), PARTS);
    rig.disk.logout().await.unwrap();
    let target = lock(&rig.network.portals[0].target);
    assert!(target.violations().is_empty(), "{:?}", target.violations());
}

/// If the writes of a lost session are not settled, writes to the same blocks fail, and other writes do not.
#[tokio::test(start_paused = true)]
async fn writes_over_what_is_not_settled_fail() {
    let rig = Rig::start([1, 1]).await;
    take_away(&rig.network);
    let error = rig.write(NEW).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::WriteLater), "{error}");
    assert_eq!((error.kind(), error.may_have_executed()), (ErrorKind::Unsettled, false));
    assert!(rig.parts_of(OLD) > 0);
    rig.disk.write_at(at(PARTS), data(0, NEW)).await.unwrap();
    let error = rig.disk.logout().await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::WriteNothing), "{error}");
}

/// The network is down for longer than every time limit, and comes back. Then unsettled writes are settled when
/// a write needs their blocks.
#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_settled_once_the_portals_are_back() {
    let rig = Rig::start([1, 1]).await;
    take_away(&rig.network);
    assert!(rig.write(NEW).await.is_err());
    tokio::time::sleep(LONG).await;
    bring_back(&rig.network);
    rig.write(NEW).await.unwrap();
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), PARTS);
    rig.disk.logout().await.unwrap();
}

/// The network is down for longer than every time limit, and comes back while a write waits for unsettled
/// writes. Then the write continues.
#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_what_was_given_up_goes_on_once_the_portals_are_back() {
    let rig = Rig::start([1, 1]).await;
    take_away(&rig.network);
    assert!(rig.write(NEW).await.is_err());
    tokio::time::sleep(LONG).await;
    let newer = tokio::spawn({
        let disk = rig.disk.clone();
        async move { write(&disk, NEW).await }
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!newer.is_finished());
    bring_back(&rig.network);
    newer.await.unwrap().unwrap();
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), PARTS);
    rig.disk.logout().await.unwrap();
}

/// The time limit of a write for its blocks counts only time in which the process runs: here it passes while the
/// process is stopped, and the portals are back when the process continues.
#[tokio::test(start_paused = true)]
async fn a_write_waits_for_its_blocks_in_the_time_in_which_the_process_runs() {
    let rig = Rig::start([1, 1]).await;
    take_away(&rig.network);
    let newer = tokio::spawn({
        let disk = rig.disk.clone();
        async move { write(&disk, NEW).await }
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    bring_back(&rig.network);
    tokio::time::advance(3 * PATIENCE).await;
    newer.await.unwrap().unwrap();
    rig.disk.logout().await.unwrap();
}

/// An idle disk has unsettled writes that it has stopped trying to settle. They are settled when another disk of
/// the initiator writes to the same unit.
#[tokio::test(start_paused = true)]
async fn what_an_idle_disk_has_given_up_is_settled_for_another_one() {
    let rig = Rig::start([1, 1]).await;
    let other = open_at(&rig.node, &format!("iscsi://192.0.2.2/{TARGET}/0")).await;
    take_away(&rig.network);
    assert!(rig.write(NEW).await.is_err());
    tokio::time::sleep(LONG).await;
    bring_back(&rig.network);
    tokio::time::sleep(LONG).await;
    assert!(!rig.disk.is_settled(), "nobody waits for it");
    write(&other, NEW).await.unwrap();
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), PARTS);
    other.logout().await.unwrap();
    rig.disk.logout().await.unwrap();
}

/// A disk has ended with unsettled writes. They are settled when another disk of the initiator writes to the
/// same unit.
#[tokio::test(start_paused = true)]
async fn what_a_disk_has_left_is_settled_for_another_one() {
    for is_dropped in [false, true] {
        let Rig { network, node, disk, medium } = Rig::start([1, 1]).await;
        let other = open_at(&node, &format!("iscsi://192.0.2.2/{TARGET}/0")).await;
        take_away(&network);
        if is_dropped {
            drop(disk);
        } else {
            assert!(disk.logout().await.is_err());
        }
        let error = write(&other, NEW).await.unwrap_err();
        assert_eq!(error.advice(), Some(Advice::WriteLater), "{error}");
        bring_back(&network);
        later_writes_stand(&network, &medium, other).await;
    }
}

/// Writes by `later`, releases the writes that were held up, and checks that they do not overwrite the newer
/// data.
async fn later_writes_stand(network: &Simulated, medium: &RamDisk, later: Disk) {
    write(&later, NEW).await.unwrap();
    network.portals[0].release();
    tokio::time::sleep(LONG).await;
    assert_eq!(parts_of(medium, NEW), PARTS);
    later.logout().await.unwrap();
}

/// A disk has ended with unsettled writes, and another disk of the unit is opened after all others have ended.
/// The ranges have stayed locked, and are settled when a write waits for them.
#[tokio::test(start_paused = true)]
async fn what_a_disk_has_left_is_settled_for_one_that_comes_later() {
    for (is_dropped, portal_group) in [(false, 1), (true, 1), (true, 0)] {
        let Rig { network, node, disk, medium } = Rig::start([portal_group; 2]).await;
        take_away(&network);
        if is_dropped {
            drop(disk);
        } else {
            assert!(disk.logout().await.is_err());
        }
        tokio::time::sleep(PATIENCE + LONG).await;
        bring_back(&network);
        let later = open_at(&node, &format!("iscsi://192.0.2.2/{TARGET}/0")).await;
        later_writes_stand(&network, &medium, later).await;
    }
}

/// A disk has ended with unsettled writes, and another disk is opened over a session that the caller opened. The
/// unsettled writes are settled even if the caller has dropped the initiator and has only the session left.
#[tokio::test(start_paused = true)]
async fn what_a_disk_has_left_is_settled_for_one_of_a_session() {
    let Rig { network, node, disk, medium } = Rig::start([1, 1]).await;
    let url = Url::parse(&format!("iscsi://192.0.2.2/{TARGET}/0")).unwrap();
    let session = node.connect(&url).await.unwrap();
    take_away(&network);
    drop((disk, node));
    tokio::time::sleep(PATIENCE + LONG).await;
    bring_back(&network);
    let later = session.disk_without_reconnect().await.unwrap();
    later_writes_stand(&network, &medium, later).await;
}

/// When no further disk can be opened, no task continues to settle the writes of the last disk.
#[tokio::test(start_paused = true)]
async fn what_nobody_can_wait_for_is_not_kept() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut left = Vec::new();
    for can_be_opened in [false, true] {
        let before = tasks();
        let Rig { network, node, disk, medium: _ } = Rig::start([1, 1]).await;
        take_away(&network);
        let node = can_be_opened.then_some(node);
        drop(disk);
        tokio::time::sleep(PATIENCE + LONG).await;
        left.push(tasks() - before);
        drop(node);
    }
    assert_eq!(left[1], left[0] + 1, "the one that settles");
}

/// The portal of a lost session leads to another portal group, and another portal leads to the session's group.
/// The session is settled through the other portal.
#[tokio::test(start_paused = true)]
async fn a_lost_session_is_settled_through_any_portal_of_its_group() {
    let rig = Rig::start([1, 1]).await;
    rig.lead_first_portal_to(3);
    rig.network.portals[0].cut();
    rig.write(NEW).await.unwrap();
    assert_eq!((rig.disk.status().reconnects, rig.disk.sessions().len()), (1, 2));
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), PARTS);
    rig.disk.logout().await.unwrap();
}

/// ISI-02: a session belongs to its portal group. The portal of a lost session leads to another group. A login
/// there does not make the first group drop the session, so it settles nothing (RFC 7143 §4.4.3).
#[tokio::test(start_paused = true)]
async fn isi_02_a_login_to_another_portal_group_settles_nothing() {
    let rig = Rig::start([1, 2]).await;
    rig.lead_first_portal_to(3);
    rig.network.portals[0].cut();
    let error = rig.write(NEW).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::WriteLater), "{error}");
    assert_eq!((rig.disk.status().reconnects, rig.disk.sessions().len()), (1, 2));
    let newer = rig.parts_of(NEW);
    assert!(newer < PARTS);
    rig.release().await;
    assert_eq!(rig.parts_of(NEW), newer);
}

/// Makes each portal execute the next write late.
fn execute_first_late(network: &Simulated) {
    for portal in network.portals.iter() {
        lock(&portal.target).config_mut().faults.push(Fault::execute_late(..=0, LONG));
    }
}

/// Makes the port that has a late write refuse to serve the unit, as in standby. Then writes to the disk, so
/// that the disk notices the refusal. Returns the port's portal.
async fn set_carrier_aside<'a>(network: &'a Simulated, disk: &Disk) -> &'a Portal {
    let has_it = |portal: &&Portal| lock(&portal.target).put_off_commands() > 0;
    let carrier = network.portals.iter().find(has_it).unwrap();
    let standby = Fault::sense(128.., Sense::new(0x02, 0x04, 0x0b));
    lock(&carrier.target).config_mut().faults.push(standby);
    write_parts(disk, 1..PARTS, OLD).await.unwrap();
    carrier
}

/// A session is set aside because its port does not serve the unit any more. A write that the target executes
/// late is in flight on it. The caller drops the write, and the abort does not arrive. The logout of the disk
/// then waits until the writes of the session are settled, or returns an error.
#[tokio::test(start_paused = true)]
async fn a_logout_waits_for_a_session_that_is_let_go() {
    for is_back in [true, false] {
        let Rig { network, node: _node, disk, medium } = Rig::open([1, 2]).await;
        let portals = &network.portals;
        execute_first_late(&network);
        let dropped = tokio::spawn({
            let disk = disk.clone();
            async move { disk.write_at(0, data(0, OLD)).await }
        });
        tokio::time::sleep(ROUND_TRIP).await;
        let carrier = set_carrier_aside(&network, &disk).await;
        carrier.hold();
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        tokio::time::sleep(ROUND_TRIP).await;
        assert_eq!((disk.sessions().len(), disk.is_settled()), (2, false));
        portals.iter().for_each(|portal| portal.refuse(!is_back));
        let result = disk.logout().await;
        let expected = if is_back { Ok(()) } else { Err(ErrorKind::Unsettled) };
        assert_eq!(result.map_err(|error| error.kind()), expected);
        assert_eq!(disk.is_settled(), is_back);
        tokio::time::sleep(LONG).await;
        lock(&carrier.target).advance(Instant::now().into_std());
        assert_eq!(medium.holds(0, &data(0, OLD)), !is_back);
    }
}

/// The caller of a write neither polls nor drops the future, so the session keeps the write. The logout does not
/// wait for that caller.
#[tokio::test(start_paused = true)]
async fn a_logout_does_not_wait_for_a_caller() {
    let Rig { network, node: _node, disk, medium: _ } = Rig::open([1, 2]).await;
    execute_first_late(&network);
    let mut held = Box::pin(disk.write_at(0, data(0, OLD)));
    tokio::time::timeout(ROUND_TRIP, &mut held).await.unwrap_err();
    let carrier = set_carrier_aside(&network, &disk).await;
    assert_eq!(disk.sessions().len(), 2);
    network.portals.iter().for_each(|portal| portal.refuse(true));
    carrier.cut();
    let ended = tokio::time::timeout(10 * PATIENCE, disk.logout()).await;
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Unsettled);
    drop(held);
}
