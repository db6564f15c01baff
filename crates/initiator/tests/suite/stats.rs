//! Tests of the statistics of a disk, against the test target over TCP.

use std::time::Duration;

use crate::support::{Rig, initiator, pattern, soon, until, without_wait};
use iscsi_initiator::{Disk, DiskStats, Options, RequestStats, Sessions};
use iscsi_testkit::scsi::status;
use iscsi_testkit::target::{ConnId, Outcome};

const MIB: u64 = 1 << 20;

async fn open(rig: &Rig, sessions: u32) -> Disk {
    let options = Options::default()
        .with_sessions(Sessions::Fixed(sessions))
        .with_advanced(without_wait())
        .with_max_transfer(256 << 10)
        .with_max_bytes_in_flight(512 << 10);
    soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap()
}

async fn rig() -> Rig {
    Rig::start(512, 8192, |config| config.keys.default_time2wait = 0).await
}

/// Returns requests, bytes and errors of each kind.
fn counts(stats: &RequestStats) -> [(u64, u64, u64); 4] {
    let RequestStats { reads, writes, flushes, others, .. } = stats;
    [reads, writes, flushes, others].map(|kind| (kind.requests, kind.bytes, kind.errors))
}

#[tokio::test]
async fn requests_are_counted_by_kind_for_callers_and_for_sessions() {
    let rig = rig().await;
    let disk = open(&rig, 1).await;
    assert_eq!(disk.stats().requests, RequestStats::default(), "questions are not requests");
    soon(disk.write_at(0, pattern(MIB as usize, 1))).await.unwrap();
    soon(disk.read_at(0, 512)).await.unwrap();
    // The write covers a part of a block, so the block is read first, once for each of its edges.
    soon(disk.write_at(1000, vec![7; 10])).await.unwrap();
    soon(disk.flush()).await.unwrap();
    soon(disk.discard(0, 4096)).await.unwrap();
    assert!(soon(disk.read_at(u64::MAX, 1)).await.is_err());

    let stats = disk.stats();
    let [reads, writes, flushes, others] = counts(&stats.requests);
    assert_eq!((reads, writes, flushes), ((3, 1536, 0), (5, MIB + 512, 0), (1, 0, 0)));
    assert_eq!((others.0, others.2), (1, 0));
    assert_eq!(counts(&stats.sessions[0].commands), counts(&stats.requests));
    for (name, kind) in stats.requests.kinds() {
        assert_eq!(kind.latency.count(), kind.requests, "{name}");
        assert!(kind.latency.quantile(0.5) <= kind.latency.max(), "{name}");
    }
    assert!(stats.budget_waits > 0 && stats.budget_wait_time > Duration::ZERO);
    assert_eq!((stats.requests.requests_in_flight, stats.requests.bytes_in_flight), (0, 0));
    assert_eq!(stats.sessions[0].key, disk.sessions()[0].key());
    let reading = soon(disk.sessions()[0].reading()).await.unwrap();
    assert_eq!(reading.session(), stats.sessions[0].key);

    soon(disk.read_at(0, 4096)).await.unwrap();
    let difference = disk.stats().since(&stats);
    assert_eq!(counts(&difference.requests)[0], (1, 4096, 0));
    assert_eq!(difference.requests.requests(), 1);
    assert_eq!(difference.sessions[0].commands.reads.latency.count(), 1);
    let text = disk.stats().to_string();
    assert!(text.contains("read: 4 requests, 5.5 KiB;"), "{text}");
    rig.assert_clean();
}

/// Asserts that no count decreases from one snapshot to the next.
fn assert_grown(before: &DiskStats, after: &DiskStats) {
    let pairs = [
        (&before.requests, &after.requests),
        (&before.commands(), &after.commands()),
        (&before.closed_sessions, &after.closed_sessions),
    ];
    for (before, after) in pairs {
        for (before, after) in counts(before).iter().zip(counts(after)) {
            assert!(before.0 <= after.0 && before.1 <= after.1 && before.2 <= after.2);
        }
    }
    assert!(before.sessions_lost <= after.sessions_lost);
}

#[tokio::test]
async fn what_a_session_has_counted_is_told_also_after_its_end() {
    let rig = rig().await;
    let session = rig.session(Options::default()).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let before = session.stats().data_out_bytes;
    soon(disk.write_at(0, pattern(MIB as usize, 1))).await.unwrap();
    assert_eq!(session.stats().data_out_bytes, before + MIB);
    soon(session.logout()).await.unwrap();
    assert_eq!(session.stats().data_out_bytes, before + MIB);
    rig.assert_clean();
}

/// The counts of a lost session stay in the sum of all sessions. The session that replaces it has the same
/// ISID, and counts from zero.
#[tokio::test]
async fn what_a_lost_session_has_counted_stays_in_the_sum() {
    let rig = rig().await;
    let disk = open(&rig, 1).await;
    let first = disk.sessions()[0].key();
    let mut before = disk.stats();
    for round in 1..4u64 {
        for _ in 0..5 {
            soon(disk.write_at(0, vec![round as u8; 4096])).await.unwrap();
        }
        let connection = ConnId(round as usize - 1);
        rig.server.with(|target| target.drop_connection(connection));
        until(|| disk.status().reconnects == round && disk.sessions().len() == 1).await;
        let stats = disk.stats();
        assert_grown(&before, &stats);
        let written = round * 5;
        assert_eq!(counts(&stats.requests)[1], (written, written * 4096, 0));
        assert_eq!(counts(&stats.commands())[1], (written, written * 4096, 0));
        assert_eq!(stats.closed_sessions.writes.requests, written);
        assert_eq!((stats.sessions_lost, stats.sessions_reopened), (round, round));
        assert_eq!(stats.sessions[0].commands, RequestStats::default());
        let key = stats.sessions[0].key;
        assert_eq!((key.isid, u64::from(key.reopened)), (first.isid, round));
        let difference = stats.since(&before);
        assert_eq!(counts(&difference.commands())[1], (5, 5 * 4096, 0));
        before = stats;
    }
}

/// A request that the unit refuses for good is an error of its session and of the caller. A request that the
/// unit accepts at the second try is an error of its session only.
#[tokio::test]
async fn what_ends_with_an_error_is_counted_as_one() {
    let rig = rig().await;
    let disk = open(&rig, 1).await;
    for refusal in [status::RESERVATION_CONFLICT, status::BUSY] {
        rig.server.with(|target| target.end_next_with(Outcome::status(refusal)));
        let result = soon(disk.write_at(0, vec![0; 512])).await;
        assert_eq!(result.is_ok(), refusal == status::BUSY);
    }
    let stats = disk.stats();
    assert_eq!(counts(&stats.requests)[1], (1, 512, 1));
    assert_eq!(counts(&stats.sessions[0].commands)[1], (1, 512, 2));
    assert_eq!((stats.retries, stats.sessions[0].retries), (1, 1));

    soon(disk.logout()).await.unwrap();
    assert!(soon(disk.read_at(0, 512)).await.is_err());
    assert_eq!(disk.stats().requests.errors(), 2);
    assert_eq!(disk.stats().commands().errors(), 2, "no session had that");
}

#[tokio::test]
async fn the_sessions_add_up_to_what_callers_see() {
    let rig = rig().await;
    let disk = open(&rig, 4).await;
    assert_eq!(disk.stats().sessions.len(), 4);
    for at in 0..8 {
        soon(disk.write_at(at * MIB / 2, pattern(MIB as usize / 2, at as u8))).await.unwrap();
    }
    let stats = disk.stats();
    let tries = stats.requests.writes.requests + stats.duplicates;
    assert_eq!(stats.requests.writes.bytes, 4 * MIB);
    // Hedged copies are counted when they end.
    until(|| disk.stats().commands().writes.requests == tries).await;
    let samples: Vec<_> = disk.stats().samples().collect();
    let sessions = |name| samples.iter().filter(move |sample| sample.name == name);
    let written = |name| sessions(name).map(|sample| sample.value).sum::<f64>();
    assert_eq!(sessions("iscsi_session_written_bytes_total").count(), 4);
    assert!(written("iscsi_session_written_bytes_total") >= (4 * MIB) as f64);
    assert!((written("iscsi_disk_written_bytes_total") - (4 * MIB) as f64).abs() < 0.5);
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn snapshots_can_be_serialized() {
    let rig = rig().await;
    let disk = open(&rig, 1).await;
    soon(disk.read_at(0, 512)).await.unwrap();
    let json = serde_json::to_value(disk.stats()).unwrap();
    assert_eq!((&json["target"], &json["lun"]), (&crate::support::TARGET.into(), &"0".into()));
    let reads = &json["requests"]["reads"];
    assert_eq!((&reads["requests"], &reads["bytes"]), (&1.into(), &512.into()));
    assert_eq!(reads["latency"]["count"], 1);
    assert!(reads["latency"]["p99"].as_f64().unwrap() > 0.0);
    assert_eq!(reads["latency"]["buckets"][0][1], 1);
    let isid = disk.sessions()[0].isid().to_string();
    assert_eq!(json["sessions"][0]["key"]["isid"], isid);
    assert_eq!(serde_json::to_value(disk.status()).unwrap()["sessions"], 1);
    let connections = serde_json::to_value(disk.sessions()[0].connections()).unwrap();
    assert_eq!(connections["open"], 1);
}
