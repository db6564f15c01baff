//! Tests of a path that falls silent while another path responds.

use std::time::Duration;

use crate::support::proxy::{Proxy, Way};
use crate::support::{Rig, TARGET, Watched, initiator, let_pass, pattern, soon, until};
use iscsi_initiator::{Disk, Options, PathState, Sessions};
use iscsi_session::Timeouts;
use iscsi_testkit::config::TargetConfig;

const BLOCKS: u64 = 16384;
const PART: usize = 64 << 10;
const EVER: Duration = Duration::from_secs(3600);

/// Opens a disk with a session at each of two ports. The second port falls silent after `limit` bytes were
/// sent to it.
async fn start(limit: usize) -> (Rig, Watched, Proxy, Disk) {
    let first = Rig::start(512, BLOCKS, |_| {}).await;
    let second = TargetConfig::new(TARGET, first.disk.clone());
    let second = Watched::start(second).await;
    let proxy = Proxy::start(second.address(), Way { connections: 1, stop: Some((0, limit)) });
    let mut options = Options::default().with_sessions(Sessions::Fixed(2));
    // Commands have a long time limit, and there are no pings, so nothing ends the session that is silent. Its
    // requests succeed in time only over the other path.
    options = options.with_timeouts(
        Timeouts::default()
            .with_command(Some(EVER))
            .with_nop_interval(None)
            .with_task_management(EVER),
    );
    let url = first.unit_url(0, &format!("?portal={}", proxy.address));
    let disk = soon(initiator(options).disk(url)).await.unwrap();
    until(|| disk.sessions().len() == 2).await;
    (first, second, proxy, disk)
}

async fn write_all(disk: &Disk, seed: u8) {
    let mut writes = tokio::task::JoinSet::new();
    for at in 0..64_u64 {
        let (disk, data) = (disk.clone(), pattern(PART, seed ^ at as u8));
        writes.spawn(async move { disk.write_at(at * PART as u64, data).await });
    }
    while let Some(write) = soon(writes.join_next()).await {
        write.unwrap().unwrap();
    }
}

#[tokio::test]
async fn writes_and_flushes_go_on_over_the_path_that_answers() {
    let (first, _second, proxy, disk) = start(1 << 20).await;
    write_all(&disk, 1).await;
    assert!(proxy.has_stopped());
    soon(disk.flush()).await.unwrap();
    for at in 0..64_u64 {
        assert!(first.disk.holds(at * PART as u64, &pattern(PART, 1 ^ at as u8)), "part {at}");
    }
    // Writes in flight over the silent path may be executed later, so their ranges stay locked. Other
    // ranges are free.
    let free = 64 * PART as u64;
    for round in 0..20 {
        soon(disk.write_at(free, pattern(PART, round))).await.unwrap();
        soon(disk.flush()).await.unwrap();
    }
    let silent = || {
        let paths = disk.paths().into_iter();
        let mut silent = paths.filter(|path| matches!(path.state, PathState::Silent));
        silent.next().map(|path| (path.portal.port, path.requests_in_flight > 0))
    };
    assert_eq!(silent(), Some((proxy.address.port(), true)));
    // Once the silent path responds again, its writes may be executed, so the disk waits for them.
    proxy.open();
    soon(disk.write_at(0, pattern(PART, 9))).await.unwrap();
    soon(disk.logout()).await.unwrap();
    assert!(
        first.disk.holds(0, &pattern(PART, 9))
            && first.disk.holds(PART as u64, &pattern(PART, 1 ^ 1))
    );
}

/// NOP-07: some targets send no response for minutes while they flush, but their host acknowledges the data.
/// The session lasts as long as the flush may take.
#[tokio::test]
async fn nop_07_a_target_that_is_busy_with_a_flush_is_not_given_up() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let stop = Some((0, 256 << 10));
    let proxy = Proxy::start(rig.server.address(), Way { connections: 1, stop });
    let options = Options::default().with_sessions(Sessions::Fixed(1));
    let url = format!("iscsi://{}/{TARGET}/0", proxy.address);
    let disk = soon(initiator(options).disk(url)).await.unwrap();
    soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
    // The last write stops on the network path, as if the target did not read it.
    let write = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, pattern(256 << 10, 2)).await }
    });
    until(|| proxy.has_stopped()).await;
    let flush = tokio::spawn({
        let disk = disk.clone();
        async move { disk.flush().await }
    });
    // The clock of the kernel does not jump: sent data, including the NOP-Out, is acknowledged in real
    // time.
    for seconds in [16, 34] {
        let session = disk.sessions().remove(0);
        let is_acknowledged = async {
            while !session.reading().await.unwrap().tcp_info().is_all_acknowledged() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(is_acknowledged).await;
        let_pass(Duration::from_secs(seconds)).await;
    }
    let session = disk.sessions().remove(0);
    assert!(session.reading().await.unwrap().tcp_info().is_all_acknowledged());
    assert!(!write.is_finished() && !flush.is_finished());
    let status = disk.status();
    assert!(
        status.notes.iter().any(|note| note.to_string().contains("busy: SYNCHRONIZE CACHE")),
        "{status}"
    );
    proxy.open();
    soon(write).await.unwrap().unwrap();
    soon(flush).await.unwrap().unwrap();
    assert_eq!((disk.status().reconnects, rig.server.with(|target| target.accepted())), (0, 1));
}
