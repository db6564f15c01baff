//! Tests of sessions with several connections (RFC 7143 §4.2.2) against the test target over TCP.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::proxy::{Proxy, Way};
use crate::support::{Rig, TARGET, initiator, pattern, soon, until};
use iscsi_initiator::{Advanced, Disk, Error, Options, Session};
use iscsi_session::{Offer, Timeouts};
use iscsi_testkit::config::{Chap, DigestPolicy, Redirect, TargetConfig};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::target::{CommandRecord, ConnId};
use iscsi_tuner::Tuning;
use tokio::task::JoinSet;

const CHUNK: usize = 64 << 10;
/// Number of requests of a copy.
const CHUNKS: u64 = 64;
/// Operation code of WRITE (16) (SBC-3 §5.34).
const WRITE_16: u8 = 0x8a;
/// Size of the disk in blocks.
const BLOCKS: u64 = CHUNKS * CHUNK as u64 / 512;

/// Returns options with this number of connections.
fn options(connections: u16) -> Options {
    Options::default().with_connections(connections)
}

async fn rig(change: impl FnOnce(&mut TargetConfig)) -> Rig {
    Rig::start(512, BLOCKS, change).await
}

/// Opens a session with all the connections that its options request, and its disk.
async fn whole_session(rig: &Rig, connections: u16) -> (Session, Disk) {
    let session = rig.session(options(connections)).await;
    until(|| session.connections().open == u32::from(connections)).await;
    assert_eq!(session.connections().note, None);
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    (session, disk)
}

/// Writes the whole disk with concurrent requests. Returns their results by their number.
async fn write_all(disk: &Disk, seed: u8) -> BTreeMap<u64, Result<(), Error>> {
    let mut writes = JoinSet::new();
    for number in 0..CHUNKS {
        let disk = disk.clone();
        writes.spawn(async move {
            let data = pattern(CHUNK, number as u8 ^ seed);
            (number, disk.write_at(number * CHUNK as u64, data).await)
        });
    }
    soon(writes.join_all()).await.into_iter().collect()
}

/// Reads the whole disk with concurrent requests.
async fn read_all(disk: &Disk) -> Vec<bytes::Bytes> {
    let mut reads = JoinSet::new();
    for number in 0..CHUNKS {
        let disk = disk.clone();
        let read = async move { disk.read_at(number * CHUNK as u64, CHUNK).await };
        reads.spawn(async move { (number, read.await.unwrap()) });
    }
    let chunks: BTreeMap<_, _> = soon(reads.join_all()).await.into_iter().collect();
    chunks.into_values().collect()
}

async fn assert_usable(rig: &Rig, disk: &Disk) {
    assert!(write_all(disk, 7).await.values().all(Result::is_ok));
    for (number, chunk) in (0..CHUNKS).zip(read_all(disk).await) {
        let data = pattern(CHUNK, number as u8 ^ 7);
        assert!(chunk == data && rig.disk.holds(number * CHUNK as u64, &data), "chunk {number}");
    }
}

/// Returns how many writes arrived over each connection.
fn writes_by_connection(rig: &Rig) -> BTreeMap<usize, usize> {
    let count = |mut counts: BTreeMap<_, _>, command: &CommandRecord| {
        *counts.entry(command.connection.0).or_default() += 1;
        counts
    };
    rig.server.with(|target| {
        let writes = target.commands().iter().filter(|command| command.cdb[0] == WRITE_16);
        writes.fold(BTreeMap::new(), count)
    })
}

#[tokio::test]
async fn a_copy_goes_over_all_connections() {
    for connections in [2, 4] {
        let rig = rig(|_| {}).await;
        let (session, disk) = whole_session(&rig, connections).await;
        assert_usable(&rig, &disk).await;
        let writes = writes_by_connection(&rig);
        let least = CHUNKS as usize / usize::from(connections) / 4;
        assert_eq!(writes.len(), usize::from(connections), "{writes:?}");
        assert!(writes.values().all(|count| *count >= least), "{writes:?}");
        assert_eq!(session.negotiated().max_connections, connections);
        soon(session.logout()).await.unwrap();
        rig.assert_clean();
    }
}

#[tokio::test]
async fn readings_tell_what_each_connection_moves() {
    let rig = rig(|_| {}).await;
    let (session, disk) = whole_session(&rig, 3).await;
    assert_usable(&rig, &disk).await;
    let readings = soon(session.readings()).await.unwrap();
    assert_eq!(readings.iter().map(|reading| reading.cid().0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(readings.iter().all(|reading| reading.bytes() > 0), "{readings:#?}");
    let stats = session.stats();
    let sum: u64 = readings.iter().map(iscsi_initiator::Reading::bytes).sum();
    assert_eq!(sum, stats.data_in_bytes + stats.data_out_bytes);
    let leading = soon(session.reading()).await.unwrap();
    assert_eq!((leading.cid().0, leading.bytes()), (0, readings[0].bytes()));
    assert!(readings.iter().all(|reading| reading.plan().link.rtt.is_some()));
}

#[tokio::test]
async fn a_target_that_agrees_to_one_connection_gets_one() {
    let rig = rig(|config| config.keys.max_connections = 1).await;
    let session = rig.session(options(4)).await;
    let connections = session.connections();
    assert_eq!((connections.open, connections.wanted), (1, 4));
    let note = connections.note.unwrap();
    assert!(note.contains("agrees to 1 of 4 connections"), "{note}");
    assert_usable(&rig, &soon(session.disk_without_reconnect()).await.unwrap()).await;
    assert_eq!(rig.server.with(|target| target.accepted()), 1);
    rig.assert_clean();
}

#[tokio::test]
async fn one_connection_is_all_that_is_asked_for_by_default() {
    let rig = rig(|_| {}).await;
    let (session, disk) = whole_session(&rig, 1).await;
    assert_usable(&rig, &disk).await;
    assert_eq!(session.negotiated().max_connections, 1);
    assert_eq!(session.connections().to_string(), "1 of 1");
    assert_eq!(rig.server.with(|target| target.accepted()), 1);
}

#[tokio::test]
async fn a_number_of_connections_out_of_range_is_the_next_one_within() {
    let rig = rig(|config| config.keys.max_connections = 3).await;
    assert_eq!(rig.session(options(0)).await.connections().wanted, 1);
    assert_eq!(rig.session(options(99)).await.connections().wanted, 16);
    let mut options = options(1);
    options = options
        .with_advanced(Advanced::default().with_offer(Offer::default().with_max_connections(2)));
    let session = rig.session(options).await;
    assert_eq!(session.negotiated().max_connections, 2, "the larger proposal counts");
    assert_eq!(session.connections().to_string(), "1 of 1");
}

#[tokio::test]
async fn every_connection_proves_who_it_is_and_has_digests() {
    let rig = rig(|config| {
        config.chap = Some(Chap::new("me", "a long secret").mutual("you", "another secret"));
        config.keys.header_digest = DigestPolicy::Require;
        config.keys.data_digest = DigestPolicy::Require;
    })
    .await;
    let url = format!(
        "iscsi://me:a%20long%20secret@{}/{TARGET}/0?target_user=you&target_password=another%20secret\
         &header_digest=crc32c&data_digest=crc32c",
        rig.server.address()
    );
    let session = soon(initiator(options(3)).connect(url.as_str())).await.unwrap();
    until(|| session.connections().open == 3).await;
    assert_usable(&rig, &soon(session.disk_without_reconnect()).await.unwrap()).await;
    assert_eq!(writes_by_connection(&rig).len(), 3);
    rig.assert_clean();
}

#[tokio::test]
async fn connections_join_where_the_first_one_was_redirected_to() {
    let there = rig(|_| {}).await;
    let here = rig(|config| {
        config.login.redirect = Some(Redirect {
            address: there.server.address().to_string(),
            permanent: false,
            after_authentication: false,
        });
    })
    .await;
    let (session, disk) = whole_session(&here, 3).await;
    assert_usable(&there, &disk).await;
    assert_eq!(session.portal().unwrap().port, there.server.address().port());
    let accepted = |rig: &Rig| rig.server.with(|target| target.accepted());
    assert_eq!((accepted(&here), accepted(&there)), (1, 3));
    there.assert_clean();
}

#[tokio::test]
async fn discovery_takes_one_connection() {
    let rig = rig(|_| {}).await;
    let targets = soon(initiator(options(4)).discover(rig.url("/"))).await.unwrap();
    assert_eq!(targets.len(), 1);
    assert_eq!(rig.server.with(|target| target.accepted()), 1);
    rig.assert_clean();
}

/// MC-I-06: if the target refuses a connection, the session continues without it.
#[tokio::test]
async fn a_refused_connection_is_done_without() {
    // Status-Class 2, Status-Detail 6: too many connections.
    let refusal = Effect::SetWord { at: 36, value: 0x0206_0000 };
    let rig = rig(|config| {
        config.faults = vec![Fault::sending(Opcode::LoginResponse, 0, refusal).on_connection(1)];
    })
    .await;
    let session = rig.session(options(3)).await;
    until(|| session.connections().open == 2 && session.connections().note.is_some()).await;
    let note = session.connections().note.unwrap();
    assert!(note.contains("too many connections"), "{note}");
    assert_usable(&rig, &soon(session.disk_without_reconnect()).await.unwrap()).await;
    assert_eq!(session.connections().open, 2);
    soon(session.logout()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_connection_that_never_logs_in_is_done_without() {
    let rig = rig(|config| {
        let silence = Fault::sending(Opcode::LoginResponse, 0, Effect::Swallow);
        config.faults = vec![silence.on_connection(1)];
    })
    .await;
    let mut options = options(2);
    options = options.with_timeouts(Timeouts::default().with_login(Duration::from_secs(3)));
    let session = rig.session(options).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    assert_usable(&rig, &disk).await;
    until(|| session.connections().note.is_some()).await;
    let connections = session.connections();
    assert_eq!(connections.open, 1, "{connections}");
    assert_usable(&rig, &disk).await;
}

/// MC-I-04: if a connection is lost, the other connections continue. The disk sends the requests that
/// were in flight on the lost connection again over the others.
#[tokio::test]
async fn a_connection_lost_among_writes_costs_no_byte() {
    for lost in 0..3 {
        let rig = rig(|_| {}).await;
        let (session, disk) = whole_session(&rig, 3).await;
        rig.server.with(|target| target.hold());
        let writes = tokio::spawn({
            let disk = disk.clone();
            async move { write_all(&disk, 0).await }
        });
        until(|| writes_by_connection(&rig).get(&lost).is_some_and(|count| *count > 3)).await;
        rig.server.with(|target| {
            target.drop_connection(ConnId(lost));
            target.release();
        });
        let ends = soon(writes).await.unwrap();
        for (number, end) in &ends {
            assert!(end.is_ok(), "{end:?}");
            let data = pattern(CHUNK, *number as u8);
            assert!(rig.disk.holds(number * CHUNK as u64, &data), "chunk {number}");
        }
        let connections = session.connections();
        assert_eq!(connections.open, 2, "{connections}");
        assert!(connections.note.is_some());
        assert_usable(&rig, &disk).await;
        soon(session.logout()).await.unwrap();
        rig.assert_clean();
    }
}

/// Opens a session with a target through a proxy.
async fn session_through(proxy: &Proxy, options: Options) -> Session {
    let url = format!("iscsi://{}/{TARGET}/0", proxy.address);
    soon(initiator(options).connect(url.as_str())).await.unwrap()
}

#[tokio::test]
async fn a_connection_that_finds_no_listener_is_done_without() {
    let rig = rig(|_| {}).await;
    let proxy = Proxy::start(rig.server.address(), Way { connections: 1, stop: None });
    let session = session_through(&proxy, options(2)).await;
    until(|| session.connections().note.is_some()).await;
    let connections = session.connections();
    assert_eq!(connections.open, 1, "{connections}");
    assert!(connections.to_string().contains("nothing listens"), "{connections}");
    assert_usable(&rig, &soon(session.disk_without_reconnect()).await.unwrap()).await;
    rig.assert_clean();
}

/// If one connection of a session accepts no more bytes, the other connection continues.
#[tokio::test]
async fn a_connection_that_is_stuck_holds_up_no_other() {
    const PARTS: usize = 4;
    let rig = rig(|config| {
        config.keys.initial_r2t = true;
        config.keys.immediate_data = false;
    })
    .await;
    let way = Way { connections: 2, stop: Some((1, 64 << 10)) };
    let proxy = Proxy::start(rig.server.address(), way);
    let mut options = options(2);
    options = options.with_tuning(Tuning::default().with_send_buffer(Some(64 << 10)));
    let session = session_through(&proxy, options).await;
    until(|| session.connections().open == 2).await;
    let disk =
        soon(session.disk_without_reconnect()).await.unwrap().with_max_transfer((2 << 20) / PARTS);
    let long = pattern(2 << 20, 1);
    let stuck = tokio::spawn({
        let (disk, long) = (disk.clone(), long.clone());
        async move { disk.write_at(0, long).await }
    });
    // The other connection has executed its share of the requests.
    let left = || rig.server.with(|target| target.active_tasks());
    let sent = || writes_by_connection(&rig).values().sum::<usize>();
    until(|| proxy.has_stopped() && sent() == PARTS && left() == writes_by_connection(&rig)[&1])
        .await;
    for number in CHUNKS / 2..CHUNKS {
        let (offset, data) = (number * CHUNK as u64, pattern(CHUNK, number as u8));
        soon(disk.write_at(offset, data.clone())).await.unwrap();
        assert_eq!(soon(disk.read_at(offset, CHUNK)).await.unwrap(), data);
    }
    assert!(!stuck.is_finished(), "the test is about a connection that is stuck");
    proxy.open();
    soon(stuck).await.unwrap().unwrap();
    assert!(rig.disk.holds(0, &long));
    soon(session.logout()).await.unwrap();
    rig.assert_clean();
}

/// MC-I-05: one logout closes all connections.
#[tokio::test]
async fn a_logout_closes_all_connections() {
    let rig = rig(|_| {}).await;
    let (session, disk) = whole_session(&rig, 4).await;
    let writes = tokio::spawn(async move { write_all(&disk, 0).await });
    until(|| !writes_by_connection(&rig).is_empty()).await;
    assert!(soon(writes).await.unwrap().values().all(Result::is_ok));
    soon(session.logout()).await.unwrap();
    until(|| {
        rig.server.with(|target| (0..target.accepted()).all(|id| target.is_closed(ConnId(id))))
    })
    .await;
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
    assert_eq!(session.connections().open, 0);
    rig.assert_clean();
}

/// Dropping the last handle closes all connections.
#[tokio::test]
async fn dropping_a_session_closes_all_connections() {
    let rig = rig(|_| {}).await;
    drop(whole_session(&rig, 2).await);
    until(|| rig.server.with(|target| target.sessions()) == 0).await;
    rig.assert_clean();
}
