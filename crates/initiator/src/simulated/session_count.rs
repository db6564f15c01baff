//! Tests of the number of sessions of a disk under high load.

use iscsi_testkit::scsi::{AccessState, PortGroup, PortGroups, TargetPort};
use iscsi_tuner::Tuning;
use tokio::task::JoinSet;

use super::*;
use crate::state::counters::RequestStats;

const PART: usize = 64 << 10;
/// Number of readers: more than the requests that may be in flight to the unit.
const READERS: u64 = 256;
const MAX: u32 = 2;

/// Creates a port of an array, in the group of the same number.
fn port(groups: &PortGroups, disk: &RamDisk, number: u16) -> Arc<Mutex<Target>> {
    let port = TargetPort::new(groups.clone(), number);
    let mut config = TargetConfig::new(TARGET, disk.clone()).with_port(port);
    config.portal_group = Some(number);
    Arc::new(Mutex::new(Target::new(config)))
}

/// Opens a disk through two ports of an array, in these states, over links of this rate.
async fn disk_of_an_array(states: [AccessState; 2], rate: &str) -> (Disk, Simulated) {
    let groups = (1..).zip(states).map(|(id, state)| PortGroup::new(id, [id]).with_state(state));
    let groups = PortGroups::new(groups.collect::<Vec<_>>());
    let disk = RamDisk::new(512, 8192);
    let mut properties = Properties::default();
    properties.latency = ROUND_TRIP / 2;
    let network = Simulated::new([1, 2].map(|number| port(&groups, &disk, number)), properties);
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let mut options = Options { use_environment: false, ..Options::default() };
    options = options
        .with_sessions(Sessions::Auto { max: MAX })
        .with_tuning(Tuning::default().with_bandwidth(rate.parse().ok()));
    let node = Node::over(Arc::new(network.clone()), name, options).unwrap();
    let url = Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0?portal=192.0.2.2")).unwrap();
    (open::open(&node, url).await.unwrap(), network)
}

/// Reads continuously for this time.
async fn read_for(disk: &Disk, time: Duration) {
    let (begun, mut readers) = (Instant::now(), JoinSet::new());
    for reader in 0..READERS {
        let disk = disk.clone();
        readers.spawn(async move {
            while begun.elapsed() < time {
                disk.read_at(reader % 64 * PART as u64, PART).await.unwrap();
            }
        });
    }
    readers.join_all().await;
}

/// The sessions of a disk never exceed the maximum; a session that is kept at a less useful port counts as well.
#[tokio::test(start_paused = true)]
async fn there_are_never_more_sessions_than_were_allowed() {
    let states = [AccessState::ActiveOptimized, AccessState::ActiveNonOptimized];
    let (disk, _) = disk_of_an_array(states, "400mbit").await;
    let (mut most, mut reasons) = (0, Vec::new());
    let watch = async {
        loop {
            most = most.max(disk.sessions().len());
            reasons.push(disk.status().explain());
            reasons.dedup();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = read_for(&disk, Duration::from_secs(6)) => {}
        () = watch => {}
    }
    assert_eq!(most, MAX as usize, "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("the plan asks for more")), "{reasons:?}");
    disk.logout().await.unwrap();
}

/// One session would fill the links, and a queue stands before each, but a session stays at each portal in use: it is
/// needed when the link of the other one fails.
#[tokio::test(start_paused = true)]
async fn a_session_stays_at_each_portal_in_use_although_fewer_fill_the_link() {
    let (disk, network) = disk_of_an_array([AccessState::ActiveOptimized; 2], "10mbit").await;
    read_for(&disk, Duration::from_secs(1)).await;
    assert_eq!(disk.sessions().len(), 2);
    network.portals.iter().for_each(|it| it.change(|wire| wire.queue = ROUND_TRIP));
    read_for(&disk, Duration::from_secs(30)).await;
    let closed = disk.stats().closed_sessions;
    assert_eq!(closed, RequestStats::default(), "{}", disk.status().explain());
    disk.logout().await.unwrap();
}
