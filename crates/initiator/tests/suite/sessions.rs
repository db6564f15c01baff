//! Tests of disks with several sessions, against the test target over TCP.

use std::time::Duration;

use crate::support::{Rig, TARGET, Watched, initiator, let_pass, notes_of, pattern, soon, until};
use iscsi_initiator::scsi::Lun;
use iscsi_initiator::{Advice, Disk, Error, ErrorKind, Options, Sessions};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::fault::{Effect, Fault, Trigger};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::{Access, Sense, Unit};
use iscsi_testkit::target::{ConnId, Outcome};
use tokio::task::JoinSet;

const BLOCKS: u64 = 16_384;
const PART: usize = 64 << 10;

fn fixed(count: u32) -> Options {
    Options::default().with_sessions(Sessions::Fixed(count))
}

async fn open(rig: &Rig, options: Options, query: &str) -> Result<Disk, Error> {
    soon(initiator(options).disk(rig.unit_url(0, query))).await
}

/// Writes the whole disk in concurrent parts.
async fn write_all(disk: &Disk, seed: u8) -> Vec<Result<(), Error>> {
    let parts = disk.capacity() as usize / PART;
    let mut writes = JoinSet::new();
    for part in 0..parts {
        let disk = disk.clone();
        let data = pattern(PART, seed ^ part as u8);
        writes.spawn(async move { disk.write_at((part * PART) as u64, data).await });
    }
    soon(writes.join_all()).await
}

fn assert_holds(rig: &Rig, seed: u8) {
    for part in 0..(BLOCKS as usize * 512) / PART {
        let data = pattern(PART, seed ^ part as u8);
        assert!(rig.disk.holds((part * PART) as u64, &data), "part {part}");
    }
}

#[tokio::test]
async fn several_sessions_are_one_disk() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = open(&rig, fixed(4), "").await.unwrap();
    until(|| disk.sessions().len() == 4).await;
    assert_eq!(disk.status().sessions, 4);
    assert!(write_all(&disk, 1).await.iter().all(Result::is_ok));
    assert_holds(&rig, 1);
    soon(disk.flush()).await.unwrap();
    let data = soon(disk.read_at(PART as u64, 2 * PART)).await.unwrap();
    assert_eq!(data[..PART], pattern(PART, 1 ^ 1));
    // Each session has its own ISID, and each has carried some of the data.
    let sessions = disk.sessions();
    let mut isids: Vec<_> = sessions.iter().map(|session| session.isid().to_bytes()).collect();
    isids.sort_unstable();
    isids.dedup();
    assert_eq!(isids.len(), 4);
    assert!(sessions.iter().all(|session| session.stats().data_out_bytes > 0));
    assert_eq!(rig.server.with(|target| target.sessions()), 4);
    soon(disk.logout()).await.unwrap();
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
    assert_eq!(
        disk.write_at(0, vec![0; 512]).await.as_ref().err().map(Error::kind),
        Some(ErrorKind::Closed)
    );
    rig.assert_clean();
}

/// The disk wants four sessions. One gets no response to its login and one loses its connection, so neither
/// is counted.
#[tokio::test]
async fn sessions_that_are_not_there_are_not_claimed() {
    let login = |connection, effect| {
        Fault::sending(Opcode::LoginResponse, 0, effect).on_connection(connection)
    };
    let rig = Rig::start(512, BLOCKS, |config| {
        config.faults = vec![login(1, Effect::Swallow), login(2, Effect::Close)];
    })
    .await;
    let disk = open(&rig, fixed(4), "").await.unwrap();
    let status = disk.status();
    assert_eq!((status.sessions, status.peak, disk.sessions().len()), (2, 2, 2));
    let reason = "4 asked for; 1 not open yet, 1 not to be had (lost ";
    assert!(status.explain().starts_with(reason), "{}", status.explain());
}

/// If the only session reconnects to another unit, it is lost for good, and the disk does not count it as a
/// session.
#[tokio::test]
async fn a_session_that_is_lost_for_good_is_not_claimed_either() {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await;
    let disk = open(&rig, fixed(1), "").await.unwrap();
    assert_eq!(disk.status().explain(), "as asked for");
    rig.server.with(|target| {
        let unit = target.config_mut().units.get_mut(&0).unwrap();
        (unit.serial, unit.naa) = ("0002".into(), 0x3000_0000_0000_0002);
        target.drop_connection(ConnId(0));
    });
    until(|| disk.status().explain().starts_with("1 asked for; 1 not to be had (")).await;
    assert_eq!((disk.status().sessions, disk.status().peak), (0, 1));
}

#[tokio::test]
async fn overlapping_writes_keep_their_order_over_all_sessions() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = open(&rig, fixed(4), "").await.unwrap();
    let mut last = Vec::new();
    let mut writes = Vec::new();
    for n in 0..200u64 {
        last = pattern(3000, n as u8);
        writes.push(Box::pin(disk.write_at(n % 7, last.clone())));
    }
    // The writes are executed in the order in which they are first polled.
    let mut pending = futures_in_order(writes);
    soon(&mut pending).await;
    assert!(rig.disk.holds(199 % 7, &last));
    rig.assert_clean();
}

/// Polls all futures, in their order, until every one has succeeded.
fn futures_in_order<F>(mut futures: Vec<F>) -> impl Future<Output = ()> + Unpin
where
    F: Future<Output = Result<(), Error>> + Unpin,
{
    std::future::poll_fn(move |context| {
        futures.retain_mut(|future| match std::pin::Pin::new(future).poll(context) {
            std::task::Poll::Ready(result) => {
                result.unwrap();
                false
            }
            std::task::Poll::Pending => true,
        });
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
}

#[tokio::test]
async fn a_session_that_is_lost_costs_no_byte_and_comes_back() {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.keys.default_time2wait = 0;
        config
            .faults
            .push(Fault::receiving(Opcode::ScsiCommand, 9, Effect::Close).on_connection(1));
    })
    .await;
    let disk = open(&rig, fixed(3), "").await.unwrap();
    let results = write_all(&disk, 3).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_holds(&rig, 3);
    soon(disk.flush()).await.unwrap();
    until(|| disk.status().reconnects == 1).await;
    assert_eq!(disk.sessions().len(), 3);
    assert!(notes_of(&disk).iter().any(|note| note.contains("was lost")), "{:?}", disk.status());
    assert!(write_all(&disk, 4).await.iter().all(Result::is_ok));
    assert_holds(&rig, 4);
    rig.assert_clean();
}

/// The target may still execute writes of a lost session. So other data for the same blocks waits until the
/// login that reconnects the session has made the target drop it.
#[tokio::test]
async fn other_data_waits_until_a_lost_session_is_settled() {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 5).await;
    let disk = open(&rig, fixed(2), "").await.unwrap();
    rig.server.with(|target| target.hold());
    let first = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, pattern(PART, 1)).await }
    });
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    let carried = disk.sessions().iter().position(|session| session.stats().data_out_bytes > 0);
    rig.server.with(|target| {
        target.drop_connection(ConnId(carried.unwrap()));
        target.release();
    });
    soon(first).await.unwrap().unwrap();
    assert!(rig.disk.holds(0, &pattern(PART, 1)));
    let accepted = || rig.server.with(|target| target.accepted());
    assert_eq!(accepted(), 2, "the session is opened anew after DefaultTime2Wait");
    soon(disk.write_at(PART as u64, pattern(PART, 2))).await.unwrap();
    assert_eq!(accepted(), 2, "other blocks are free");
    soon(disk.write_at(512, pattern(512, 3))).await.unwrap();
    assert_eq!(accepted(), 3);
    assert!(rig.disk.holds(512, &pattern(512, 3)));
    rig.assert_clean();
}

/// If a session is not reconnected, its writes may still be executed later, and the logout returns an error that
/// says so.
#[tokio::test]
async fn a_disk_of_a_lost_session_does_not_end_in_order() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = soon(rig.session(Options::default()).await.disk_without_reconnect()).await.unwrap();
    rig.server.with(|target| target.hold());
    let write = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, pattern(PART, 1)).await }
    });
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    rig.server.with(|target| target.drop_connection(ConnId(0)));
    assert!(soon(write).await.unwrap().unwrap_err().may_have_executed());
    let error = soon(disk.logout()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsettled, "{error}");
    assert!(!disk.is_settled());
}

/// LOG-12, LOG-14: if a target gives its sessions no TSIH, a reconnect does not show that the target drops
/// the lost session. So other data for the same blocks keeps waiting, and the disk reports it.
#[tokio::test]
async fn log_14_other_data_waits_longer_where_sessions_have_no_tsih() {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.login.tsih = Some(0);
        config.keys.default_time2wait = 0;
        config.keys.max_connections = 2;
    })
    .await;
    let mut options = fixed(2);
    options = options.with_connections(2);
    let disk = open(&rig, options, "").await.unwrap();
    let told = |note: &String| note.contains("no TSIH");
    assert!(notes_of(&disk).iter().any(told));
    assert!(disk.sessions()[0].connections().note.as_ref().is_some_and(told));
    rig.server.with(|target| target.hold());
    let first = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, pattern(PART, 1)).await }
    });
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    let carried = disk.sessions().iter().position(|session| session.stats().data_out_bytes > 0);
    rig.server.with(|target| {
        target.drop_connection(ConnId(carried.unwrap()));
        target.release();
    });
    soon(first).await.unwrap().unwrap();
    until(|| disk.status().reconnects == 1).await;
    let same = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(512, pattern(512, 3)).await }
    });
    for part in 1..50 {
        soon(disk.write_at((part * PART) as u64, pattern(PART, 2))).await.unwrap();
    }
    assert!(!same.is_finished());
    assert!(rig.disk.holds(0, &pattern(PART, 1)));
    rig.assert_clean();
}

/// A login that reached another unit does not show that the writes of the lost session have ended.
#[tokio::test]
async fn other_data_waits_longer_where_a_lost_session_does_not_come_back() {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await;
    let disk = open(&rig, fixed(2), "").await.unwrap();
    rig.server.with(|target| target.hold());
    let first = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, pattern(PART, 1)).await }
    });
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    let carried = disk.sessions().iter().position(|session| session.stats().data_out_bytes > 0);
    rig.server.with(|target| {
        let unit = target.config_mut().units.get_mut(&0).unwrap();
        (unit.serial, unit.naa) = ("0002".into(), 0x3000_0000_0000_0002);
        target.drop_connection(ConnId(carried.unwrap()));
        target.release();
    });
    soon(first).await.unwrap().unwrap();
    until(|| notes_of(&disk).iter().any(|note| note.contains("did not come back"))).await;
    let same = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(512, pattern(512, 3)).await }
    });
    for part in 1..50 {
        soon(disk.write_at((part * PART) as u64, pattern(PART, 2))).await.unwrap();
    }
    assert!(!same.is_finished());
    assert!(rig.disk.holds(0, &pattern(PART, 1)));
    rig.assert_clean();
}

#[tokio::test]
async fn when_all_are_lost_requests_wait_for_the_first_to_come_back() {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await;
    let disk = open(&rig, fixed(2), "").await.unwrap();
    rig.server.with(|target| target.hold());
    let writes = tokio::spawn({
        let disk = disk.clone();
        async move { write_all(&disk, 5).await }
    });
    until(|| rig.server.with(|target| target.active_tasks()) > 10).await;
    rig.server.with(|target| {
        target.release();
        for fault in 0..2 {
            let close = Fault::new(Trigger::Receiving(None, 0), Effect::Close);
            target.config_mut().faults.push(close.on_connection(fault));
        }
    });
    let results = soon(writes).await.unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_holds(&rig, 5);
}

#[tokio::test]
async fn a_target_that_takes_one_session_gets_one() {
    let rig = Rig::start(512, BLOCKS, |config| {
        for connection in 1..64 {
            let refusal = Effect::SetByte { at: 36, value: 3 };
            let fault = Fault::sending(Opcode::LoginResponse, 0, refusal);
            config.faults.push(fault.on_connection(connection));
        }
    })
    .await;
    let disk = open(&rig, fixed(3), "").await.unwrap();
    let status = disk.status();
    assert_eq!(status.sessions, 1);
    assert!(status.explain().starts_with("3 asked for; 2 not to be had ("), "{status}");
    assert!(status.notes[0].to_string().contains("cannot take the login"), "{status}");
    assert!(write_all(&disk, 6).await.iter().all(Result::is_ok));
    assert_holds(&rig, 6);
}

#[tokio::test]
async fn a_portal_that_does_not_answer_is_told() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let address = rig.server.address();
    // No process listens at the first and the third portal of the URL.
    let dead = format!("iscsi://127.0.0.2:1/{TARGET}/0?portal={address}&portal=127.0.0.3:1");
    let disk = soon(initiator(fixed(3)).disk(dead)).await.unwrap();
    until(|| disk.sessions().len() == 3).await;
    let status = disk.status();
    assert_eq!(status.sessions, 3);
    for dead in ["127.0.0.2:1", "127.0.0.3:1"] {
        let note = format!("portal {dead} was passed over: nothing listens at {dead}");
        assert!(
            status.notes.iter().any(|told| told.to_string().starts_with(&note)),
            "{:?}",
            status.notes
        );
    }
    assert!(write_all(&disk, 7).await.iter().all(Result::is_ok));
    assert_holds(&rig, 7);
    let all_dead = format!("iscsi://127.0.0.2:1/{TARGET}/0?portal=127.0.0.3:1");
    let error = soon(initiator(fixed(3)).disk(all_dead)).await.unwrap_err();
    assert!(error.to_string().contains("nothing listens at 127.0.0.2:1"), "{error}");
}

#[tokio::test]
async fn different_units_are_never_mixed() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let other = Rig::start(512, BLOCKS, |config: &mut TargetConfig| {
        let mut unit = Unit::new(RamDisk::new(512, BLOCKS));
        unit.naa = 0x3000_0000_0000_0002;
        config.units.insert(0, unit);
    })
    .await;
    let query = format!("?portal={}", other.server.address());
    let error = open(&rig, fixed(2), &query).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::OneUnit), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("naa.3000000000000001"), "{message}");
    assert!(message.contains("naa.3000000000000002"), "{message}");
    let written = other.server.with(|target| target.commands().len());
    assert!(written <= 32, "only questions: {written}");
}

#[tokio::test]
async fn a_reset_is_told_whichever_session_hears_of_it() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = open(&rig, fixed(2), "").await.unwrap();
    assert!(write_all(&disk, 8).await.iter().all(Result::is_ok));
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::RESET)));
    let error = soon(disk.flush()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnflushedWritesLost, "{error}");
    soon(disk.flush()).await.unwrap();
}

/// ER-I-17: units of some targets, such as tgt, report a reset to each new session. This must not hide a real
/// reset.
#[tokio::test]
async fn what_each_new_session_is_told_at_first_hides_no_reset() {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.units.values_mut().for_each(|unit| unit.unit_attention = true);
    })
    .await;
    let disk = open(&rig, fixed(3), "").await.unwrap();
    for seed in [10, 11] {
        assert!(write_all(&disk, seed).await.iter().all(Result::is_ok));
        soon(disk.flush()).await.unwrap();
    }
    soon(disk.write_at(0, vec![0; 512])).await.unwrap();
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::RESET)));
    let error = soon(disk.flush()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnflushedWritesLost, "{error}");
    soon(disk.flush()).await.unwrap();
}

/// ERR-05: a lost connection is replaced by a new session.
#[tokio::test]
async fn a_session_that_ends_unasked_comes_back() {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await;
    let disk = open(&rig, fixed(2), "").await.unwrap();
    rig.server.with(|target| {
        target.drop_connection(ConnId(0));
        target.drop_connection(ConnId(1));
    });
    until(|| disk.status().reconnects == 2).await;
    assert!(write_all(&disk, 12).await.iter().all(Result::is_ok));
    assert_holds(&rig, 12);
}

#[tokio::test]
async fn a_port_that_does_not_serve_the_unit_is_passed_over() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = open(&rig, fixed(2), "").await.unwrap();
    let standby = Sense::new(0x02, 0x04, 0x0b);
    rig.server.with(|target| target.end_next_with(Outcome::check(standby)));
    assert!(write_all(&disk, 13).await.iter().all(Result::is_ok));
    assert_holds(&rig, 13);
    until(|| disk.sessions().len() == 1).await;
    assert!(notes_of(&disk)[0].contains("a session was of no use"), "{}", disk.status());
    // There is no other path to the unit, so a refused request fails, and the session is kept.
    rig.server.with(|target| target.end_next_with(Outcome::check(standby)));
    let error = soon(disk.read_at(0, 512)).await.unwrap_err();
    assert!(error.sense().is_some(), "{error}");
    soon(disk.flush()).await.unwrap();
}

/// SPC-4 §5.15.2.4: a port in standby becomes active when the other port is not active. Requests wait for
/// that as long as another portal may serve the unit.
#[tokio::test]
async fn a_port_that_was_in_standby_is_used_when_it_serves_the_unit() {
    let standby = || Fault::sense(.., Sense::new(0x02, 0x04, 0x0b));
    let first = Rig::start(512, BLOCKS, |_| {}).await;
    let config = TargetConfig::new(TARGET, first.disk.clone());
    let second = Watched::start(config).await;
    let portal = format!("?portal={}", second.address());
    let disk = open(&first, fixed(2), &portal).await.unwrap();
    assert_eq!(disk.sessions().len(), 2);
    first.server.with(|target| target.config_mut().faults.push(standby()));
    assert!(write_all(&disk, 17).await.iter().all(Result::is_ok));
    until(|| disk.sessions().len() == 1).await;
    // The port that was active goes into standby.
    second.with(|target| target.config_mut().faults.push(standby()));
    let writing = tokio::spawn({
        let disk = disk.clone();
        async move { write_all(&disk, 18).await }
    });
    until(|| disk.status().waits.iter().any(|wait| wait.cause.to_string().contains("NOT READY")))
        .await;
    first.server.with(|target| target.config_mut().faults.clear());
    assert!(soon(writing).await.unwrap().iter().all(Result::is_ok));
    assert_holds(&first, 18);
}

/// Starts two ports of one unit with a volatile cache. The first port has gone into standby after writes over
/// it, and all requests use the second port.
async fn failed_over() -> (Rig, Watched, Disk) {
    let first = Rig::start(512, BLOCKS, |_| {}).await;
    first.disk.set_cache(Cache::Volatile);
    let second = Watched::start(TargetConfig::new(TARGET, first.disk.clone())).await;
    let disk = open(&first, fixed(1), &format!("?portal={}", second.address())).await.unwrap();
    soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
    let standby = Fault::sense(.., Sense::new(0x02, 0x04, 0x0b));
    first.server.with(|target| target.config_mut().faults.push(standby));
    soon(disk.write_at(PART as u64, pattern(PART, 2))).await.unwrap();
    // One more request over the first port takes its session out of use. Of many concurrent requests, some use
    // that port.
    while disk.sessions().len() > 1 {
        assert!(write_all(&disk, 2).await.iter().all(Result::is_ok));
    }
    (first, second, disk)
}

/// SAM-5 §5.14: a session with a port in standby also receives reports of resets. If it receives none, writes that
/// are older than the other sessions were not lost. The session is closed when the writes are flushed.
#[tokio::test]
async fn a_flush_after_a_failover_loses_nothing() {
    let (first, second, disk) = failed_over().await;
    assert_eq!(first.server.with(|target| target.sessions()), 1);
    let standby = Outcome::check(Sense::new(0x02, 0x04, 0x0b));
    first.server.with(|target| target.end_next_with(standby));
    soon(disk.flush()).await.unwrap();
    until(|| first.server.with(|target| target.sessions()) == 0).await;
    soon(disk.write_at(0, pattern(PART, 3))).await.unwrap();
    soon(disk.flush()).await.unwrap();
    soon(disk.logout()).await.unwrap();
    assert_eq!(second.with(|target| target.sessions()), 0);
    first.assert_clean();
}

/// A unit is reset before the session with the other port is opened, so only the older session receives the
/// report. The flush reports the loss.
#[tokio::test]
async fn a_reset_before_a_failover_is_told() {
    let (first, _second, disk) = failed_over().await;
    first.server.with(|target| target.end_next_with(Outcome::check(Sense::RESET)));
    let error = soon(disk.flush()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnflushedWritesLost, "{error}");
    soon(disk.flush()).await.unwrap();
}

/// No session is left that would have received the report of a reset, so the flush reports a loss.
#[tokio::test]
async fn a_flush_after_a_failover_whose_witness_is_lost_vouches_for_nothing() {
    let (first, _second, disk) = failed_over().await;
    first.server.with(|target| target.drop_connection(ConnId(0)));
    let error = soon(disk.flush()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnflushedWritesLost, "{error}");
    soon(disk.flush()).await.unwrap();
}

/// A session that is kept only to receive reports of resets is logged out with the disk.
#[tokio::test]
async fn a_witness_is_logged_out_with_its_disk() {
    let (first, _second, disk) = failed_over().await;
    soon(disk.logout()).await.unwrap();
    assert_eq!(first.server.with(|target| target.sessions()), 0);
    first.assert_clean();
}

/// A flush uses another path if the unit refuses it on one path, temporarily or permanently.
#[tokio::test]
async fn a_flush_goes_over_a_port_that_serves_the_unit() {
    const SYNCHRONIZE_CACHE: u8 = 0x91;
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = open(&rig, fixed(2), "").await.unwrap();
    assert!(write_all(&disk, 15).await.iter().all(Result::is_ok));
    // Only flushes are refused. A hedged copy of a write may still be in flight, and must not be refused in
    // their place.
    let refuse_next = |ascq| {
        let refusal = Fault::sense(.., Sense::new(0x02, 0x04, ascq)).times(1);
        let refusal = refusal.on_access(Access::SynchronizeCache);
        rig.server.with(|target| target.config_mut().faults.push(refusal));
    };
    refuse_next(0x0a);
    soon(disk.flush()).await.unwrap();
    let flushes: Vec<_> = rig.server.with(|target| {
        let flushes =
            target.commands().iter().filter(|command| command.cdb[0] == SYNCHRONIZE_CACHE);
        flushes.map(|command| command.connection).collect()
    });
    assert!(matches!(flushes[..], [first, second] if first != second), "{flushes:?}");
    assert!(write_all(&disk, 16).await.iter().all(Result::is_ok));
    refuse_next(0x0b);
    soon(disk.flush()).await.unwrap();
    until(|| disk.sessions().len() == 1).await;
    rig.assert_clean();
}

#[tokio::test]
async fn auto_is_one_session_where_round_trips_cost_nothing() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = open(&rig, Options::default(), "").await.unwrap();
    assert!(write_all(&disk, 9).await.iter().all(Result::is_ok));
    let status = disk.status();
    assert_eq!(status.sessions, 1, "{status}");
    assert!(!status.explain().is_empty());
    assert_eq!(disk.unit().lun(), Lun::ZERO);
}

#[tokio::test]
async fn sessions_end_with_the_last_handle() {
    let rig = Rig::start(512, BLOCKS, |_| {}).await;
    let disk = open(&rig, fixed(3), "").await.unwrap();
    let other = disk.clone();
    drop(disk);
    soon(other.write_at(0, vec![1; 512])).await.unwrap();
    drop(other);
    until(|| rig.server.with(|target| target.sessions()) == 0).await;
    // The same holds for a disk that was idle for so long that its supervisor sleeps.
    let idle = open(&rig, fixed(3), "").await.unwrap();
    let_pass(Duration::from_millis(1500)).await;
    drop(idle);
    until(|| rig.server.with(|target| target.sessions()) == 0).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    rig.assert_clean();
}
