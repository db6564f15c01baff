//! Tests of what a flush guarantees: every write that had ended when the flush was called is on the medium,
//! or the flush reports a loss, to every handle.

use std::io::SeekFrom;
use std::time::Duration;

use crate::support::{Rig, initiator, pattern, soon, until};
use bytes::Bytes;
use iscsi_initiator::device::Device as _;
use iscsi_initiator::{Disk, DiskStream, Error, ErrorKind, Options, Sessions};
use iscsi_testkit::disk::Cache;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::{Access, Sense};
use iscsi_testkit::target::{ConnId, Outcome};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const BLOCKS: u64 = 4096;
const LEN: usize = 16 << 10;
const FAR: u64 = 1 << 20;

/// Starts a target whose disk has a volatile cache.
async fn cached_rig() -> Rig {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await;
    rig.disk.set_cache(Cache::Volatile);
    rig
}

async fn open(rig: &Rig, sessions: u32) -> Disk {
    let options = Options::default().with_sessions(Sessions::Fixed(sessions));
    soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap()
}

fn end_next_with(rig: &Rig, sense: Sense) {
    rig.server.with(|target| target.end_next_with(Outcome::check(sense)));
}

/// Sends a read of one block, without waiting for it.
fn unanswered_read(disk: &Disk, offset: u64) -> JoinHandle<Result<Bytes, Error>> {
    let disk = disk.clone();
    tokio::spawn(async move { disk.read_at(offset, 512).await })
}

async fn assert_lost(disk: &Disk) {
    let result = soon(disk.flush()).await;
    assert_eq!(
        result.as_ref().err().map(Error::kind),
        Some(ErrorKind::UnflushedWritesLost),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_loss_is_told_to_every_handle_once() {
    let rig = cached_rig().await;
    let one = open(&rig, 2).await;
    let other = one.clone();
    soon(one.write_at(0, pattern(LEN, 1))).await.unwrap();
    soon(other.write_at(FAR, pattern(LEN, 2))).await.unwrap();
    rig.disk.lose_power();
    assert_lost(&one).await;
    soon(one.write_at(0, pattern(LEN, 1))).await.unwrap();
    soon(one.flush()).await.unwrap();
    assert!(!rig.disk.holds(FAR, &pattern(LEN, 2)), "the other handle has written nothing again");
    assert_lost(&other).await;
    soon(other.flush()).await.unwrap();
    soon(one.clone().flush()).await.unwrap();
}

/// Each session receives the report of one reset at its next command. For handles that have reported the
/// loss, these reports are no new loss.
#[tokio::test]
async fn one_reset_is_one_loss_however_many_sessions_there_are() {
    let rig = cached_rig().await;
    let disk = open(&rig, 8).await;
    // Each session must have carried a request.
    let carried = || disk.stats().sessions.iter().all(|session| session.commands.requests() > 0);
    while !carried() {
        let parts = (0..64).map(|part| {
            let disk = disk.clone();
            tokio::spawn(async move { disk.write_at(part * LEN as u64, pattern(LEN, 1)).await })
        });
        for part in parts.collect::<Vec<_>>() {
            soon(part).await.unwrap().unwrap();
        }
    }
    rig.disk.lose_power();
    assert_lost(&disk).await;
    for seed in 2..20 {
        soon(disk.write_at(0, pattern(LEN, seed))).await.unwrap();
        soon(disk.flush()).await.unwrap();
    }
}

#[tokio::test]
async fn a_loss_is_told_to_every_stream() {
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    let mut streams = [disk.stream(0), disk.stream(FAR)];
    for stream in &mut streams {
        soon(stream.write_all(&pattern(LEN, 1))).await.unwrap();
        // The seek waits until the write has ended.
        soon(stream.seek(SeekFrom::Start(0))).await.unwrap();
    }
    rig.disk.lose_power();
    for stream in &mut streams {
        soon(stream.flush()).await.unwrap_err();
    }
    for stream in &mut streams {
        soon(stream.flush()).await.unwrap();
    }
}

/// Returns a stream whose writes are lost, and whose flush was dropped before its end. The flush has ended at
/// the target.
async fn stream_with_a_flush_that_was_dropped(rig: &Rig, disk: &Disk) -> DiskStream {
    let mut stream = disk.stream(0);
    soon(stream.write_all(&pattern(LEN, 1))).await.unwrap();
    // The seek waits until the write has ended.
    soon(stream.seek(SeekFrom::Start(0))).await.unwrap();
    rig.disk.lose_power();
    rig.server.with(|target| target.hold());
    timeout(Duration::ZERO, stream.flush()).await.expect_err("no answer comes");
    rig.server.with(|target| target.release());
    until(|| disk.stats().requests.flushes.errors == 1).await;
    stream
}

async fn assert_loss_is_told(stream: &mut DiskStream) {
    let error = soon(stream.flush()).await.unwrap_err();
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    assert_eq!(cause.map(Error::kind), Some(ErrorKind::UnflushedWritesLost), "{error}");
}

#[tokio::test]
async fn a_loss_that_a_dropped_flush_of_a_stream_has_found_is_told_by_the_next() {
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    let mut stream = stream_with_a_flush_that_was_dropped(&rig, &disk).await;
    soon(stream.write_all(&pattern(LEN, 2))).await.unwrap();
    assert_loss_is_told(&mut stream).await;
    soon(stream.flush()).await.unwrap();
}

#[tokio::test]
async fn a_loss_that_a_dropped_stream_has_found_is_told_by_another() {
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    drop(stream_with_a_flush_that_was_dropped(&rig, &disk).await);
    let mut stream = disk.stream(0);
    assert_loss_is_told(&mut stream).await;
    soon(stream.flush()).await.unwrap();
    soon(disk.stream(0).flush()).await.expect("somebody was told");
    assert_lost(&disk).await;
}

/// In a response to an unrelated command, the unit reports that an earlier write has failed although it had
/// ended successfully. The flush fails, and the unrelated command is retried.
#[tokio::test]
async fn a_deferred_error_fails_the_flush_and_not_the_command_that_is_told() {
    let rig = cached_rig().await;
    let disk = open(&rig, 2).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    end_next_with(&rig, Sense::WRITE_ERROR.deferred());
    assert_eq!(soon(disk.read_at(0, LEN)).await.unwrap(), pattern(LEN, 1));
    assert_lost(&disk).await;
    end_next_with(&rig, Sense::WRITE_ERROR.deferred());
    assert_lost(&disk).await;
    end_next_with(&rig, Sense::new(1, 0x0c, 1).deferred());
    soon(disk.flush()).await.expect("it was recovered");
}

/// SPC-4 §4.5.7: a unit reports a deferred error only once. The report counts even if a query during a
/// reconnect receives it.
#[tokio::test]
async fn a_deferred_error_is_heard_at_a_reopening() {
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    soon(disk.flush()).await.unwrap();
    end_next_with(&rig, Sense::WRITE_ERROR.deferred());
    rig.server.with(|target| target.drop_connection(ConnId(0)));
    soon(disk.read_at(0, LEN)).await.unwrap();
    assert_lost(&disk).await;
    soon(disk.flush()).await.unwrap();
}

/// After a flush that failed on the medium, the next flush must not succeed, because the unit may have dropped
/// the data.
#[tokio::test]
async fn a_flush_that_fails_on_the_medium_does_not_succeed_the_next_time() {
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    end_next_with(&rig, Sense::WRITE_ERROR);
    assert!(soon(disk.flush()).await.as_ref().is_err_and(|error| error.sense().is_some()));
    assert_lost(&disk).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    soon(disk.flush()).await.unwrap();
}

/// Two disks of one initiator have the same unit. If a flush of one disk fails, the cache may have lost
/// writes of both disks.
#[tokio::test]
async fn a_flush_that_fails_on_the_medium_is_told_to_other_disks_of_the_unit() {
    let rig = cached_rig().await;
    let initiator = initiator(Options::default().with_sessions(Sessions::Fixed(1)));
    let open = || soon(initiator.disk(rig.unit_url(0, "")));
    let (one, two) = (open().await.unwrap(), open().await.unwrap());
    soon(one.write_at(0, pattern(LEN, 1))).await.unwrap();
    soon(two.write_at(FAR, pattern(LEN, 2))).await.unwrap();
    let fails = Fault::flush_error(.., true).times(1);
    rig.server.with(|target| target.config_mut().faults.push(fails));
    let result = soon(one.flush()).await;
    assert!(result.as_ref().is_err_and(|error| error.sense().is_some()), "{result:?}");
    assert!(rig.disk.holds(FAR, &[0; LEN]), "the cache of both is lost");
    assert_lost(&two).await;
    assert_lost(&one).await;
    // Each disk reports the loss once. A disk that is opened later does not report it.
    soon(two.flush()).await.unwrap();
    soon(one.flush()).await.unwrap();
    soon(open().await.unwrap().flush()).await.unwrap();
}

/// A flush of another disk that is in flight may still fail, and lose writes of this disk. So a flush waits for
/// the result of that flush, and reports the loss.
#[tokio::test]
async fn a_flush_waits_for_that_of_another_disk_which_may_fail() {
    let rig = cached_rig().await;
    let initiator = initiator(Options::default().with_sessions(Sessions::Fixed(1)));
    let open = || soon(initiator.disk(rig.unit_url(0, "")));
    let (one, two) = (open().await.unwrap(), open().await.unwrap());
    soon(two.write_at(FAR, pattern(LEN, 2))).await.unwrap();
    let fails = Fault::flush_error(.., true).times(1);
    rig.server.with(|target| {
        target.config_mut().faults.push(fails);
        target.hold();
    });
    let first = tokio::spawn({
        let one = one.clone();
        async move { one.flush().await }
    });
    until(|| rig.disk.holds(FAR, &[0; LEN])).await;
    // Without the wait, the response to the second flush would arrive before the response to the first.
    rig.server.with(|target| target.resume());
    let second = tokio::spawn({
        let two = two.clone();
        async move { two.flush().await }
    });
    tokio::task::yield_now().await;
    // If the second flush had been sent, it would have arrived at the target before this read.
    soon(two.read_at(0, 512)).await.unwrap();
    let flushes = rig.server.with(|target| {
        target.commands().iter().filter(|command| [0x35, 0x91].contains(&command.cdb[0])).count()
    });
    assert_eq!(flushes, 1);
    rig.server.with(|target| target.release());
    assert!(soon(first).await.unwrap().is_err());
    let result = soon(second).await.unwrap();
    assert_eq!(
        result.as_ref().err().map(Error::kind),
        Some(ErrorKind::UnflushedWritesLost),
        "{result:?}"
    );
}

/// Flushes that are dropped before their turn are not sent.
#[tokio::test]
async fn a_flush_that_is_dropped_before_its_turn_is_not_sent() {
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    let flushes = rig.disk.flushes();
    rig.server.with(|target| target.hold());
    let first = tokio::spawn({
        let disk = disk.clone();
        async move { disk.flush().await }
    });
    until(|| rig.disk.flushes() > flushes).await;
    first.abort();
    for _ in 0..5 {
        let flush = timeout(Duration::ZERO, disk.flush());
        assert!(flush.await.is_err());
    }
    rig.server.with(|target| target.release());
    soon(disk.flush()).await.unwrap();
    assert_eq!(rig.disk.flushes(), flushes + 2, "the first one, which was sent, and the last");
}

/// The unit has answered the flush of another disk, which still waits for the response to a read over its own
/// session. A flush does not wait for that response.
#[tokio::test]
async fn a_flush_waits_for_that_of_another_disk_until_it_is_answered() {
    let rig = cached_rig().await;
    let initiator = initiator(Options::default().with_sessions(Sessions::Fixed(1)));
    let open = || soon(initiator.disk(rig.unit_url(0, "")));
    let (one, two) = (open().await.unwrap(), open().await.unwrap());
    rig.server.with(|target| target.hold());
    let read = unanswered_read(&one, 0);
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    rig.server.with(|target| target.resume());
    let flushes = rig.disk.flushes();
    let first = tokio::spawn(async move { one.flush().await });
    until(|| rig.disk.flushes() > flushes).await;
    soon(two.flush()).await.unwrap();
    assert!(!first.is_finished());
    rig.server.with(|target| target.release());
    soon(first).await.unwrap().unwrap();
    soon(read).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_reset_told_to_an_aborted_command_is_not_forgotten() {
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    rig.disk.lose_power();
    rig.server.with(|target| target.hold());
    let active = || rig.server.with(|target| target.active_tasks());
    let read = unanswered_read(&disk, 0);
    until(|| active() == 1).await;
    read.abort();
    until(|| active() == 0).await;
    rig.server.with(|target| target.release());
    assert_lost(&disk).await;
}

/// TASK ABORTED may take the place of the unit's report of a reset, so the flush reports a loss.
#[tokio::test]
async fn a_reset_told_to_a_command_that_another_initiator_aborts_is_not_forgotten() {
    let rig = cached_rig().await;
    rig.server.with(|target| {
        target.config_mut().units.get_mut(&0).unwrap().behavior.task_aborted_status = true;
    });
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    rig.disk.lose_power();
    rig.server.with(|target| target.hold());
    let read = unanswered_read(&disk, 0);
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    rig.server.with(|target| {
        target.clear_by_another(0);
        target.release();
    });
    soon(read).await.unwrap().unwrap();
    assert_lost(&disk).await;
}

/// SAM-5 §5.13: a CHECK CONDITION comes with sense data. If they are missing, the status may have been a unit
/// attention, so the flush reports a loss.
#[tokio::test]
async fn a_status_without_sense_data_may_have_told_of_a_reset() {
    const CHECK_CONDITION: u8 = 2;
    let rig = cached_rig().await;
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    rig.server.with(|target| target.end_next_with(Outcome::status(CHECK_CONDITION)));
    assert!(soon(disk.read_at(0, 512)).await.is_err());
    assert_lost(&disk).await;
}

/// A command that was never sent cannot have received a report, so the flush succeeds.
#[tokio::test]
async fn a_command_that_is_dropped_before_it_is_sent_costs_no_flush() {
    const WINDOW: u32 = 8;
    let rig = cached_rig().await;
    rig.server.with(|target| target.set_window(WINDOW));
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    rig.server.with(|target| target.hold());
    // Held commands fill the command window. The remaining commands wait until the window has room.
    let mut reads: Vec<_> =
        (0..4 * u64::from(WINDOW)).map(|at| unanswered_read(&disk, at * 512)).collect();
    let active = || rig.server.with(|target| target.active_tasks());
    until(|| active() == WINDOW as usize).await;
    let dropped = reads.pop().unwrap();
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert_eq!(active(), WINDOW as usize, "the window is full");
    rig.server.with(|target| target.release());
    for read in reads {
        soon(read).await.unwrap().unwrap();
    }
    soon(disk.flush()).await.unwrap();
}

#[tokio::test]
async fn a_reset_told_over_a_lost_connection_is_not_forgotten() {
    let rig = cached_rig().await;
    let options = Options::default().with_sessions(Sessions::Fixed(1)).with_connections(2);
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    let session = disk.sessions().remove(0);
    until(|| session.connections().open == 2).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    rig.disk.lose_power();
    rig.server.with(|target| target.hold());
    let read = unanswered_read(&disk, 0);
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    rig.server.with(|target| {
        let carrier = target.commands().last().unwrap().connection;
        target.drop_connection(carrier);
        target.release();
    });
    soon(read).await.unwrap().unwrap();
    assert_eq!(disk.status().reconnects, 0, "the session goes on");
    assert_lost(&disk).await;
}

/// The response to a read carries the report of the reset. That response arrives after the response to the flush,
/// or is lost with the session. The flush must wait for the response to the read, and report the loss.
#[tokio::test]
async fn a_flush_does_not_overtake_what_the_unit_told_before() {
    for comes in [true, false] {
        let rig = cached_rig().await;
        let disk = open(&rig, 1).await;
        soon(disk.write_at(FAR, pattern(LEN, 1))).await.unwrap();
        rig.disk.lose_power();
        rig.server.with(|target| target.hold());
        let read = unanswered_read(&disk, 0);
        until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
        rig.server.with(|target| target.resume());
        let flushes = rig.disk.flushes();
        let flush = tokio::spawn(async move { disk.flush().await });
        until(|| rig.disk.flushes() > flushes).await;
        // When this ping is answered, the initiator has also received the response to the flush.
        let connection = rig.server.with(|target| target.live_connections()[0]);
        rig.server.with(|target| target.ping(connection, 0));
        until(|| rig.server.with(|target| target.unanswered_pings(connection).is_empty())).await;
        rig.server.with(|target| if comes { target.release() } else { target.drop_connections() });
        let result = soon(flush).await.unwrap();
        assert_eq!(
            result.as_ref().err().map(Error::kind),
            Some(ErrorKind::UnflushedWritesLost),
            "{result:?}"
        );
        soon(read).await.unwrap().unwrap();
    }
}

/// The unit had no cache when the disk was opened, and has a cache since a restart. A write that a second restart
/// loses from that cache must be reported.
#[tokio::test]
async fn a_cache_that_is_switched_on_at_a_restart_counts() {
    let rig = cached_rig().await;
    rig.disk.set_cache(Cache::WriteThrough);
    let disk = open(&rig, 1).await;
    let restart = async |count| {
        rig.server.with(|target| target.restart());
        until(|| disk.status().reconnects == count).await;
    };
    rig.disk.set_cache(Cache::Volatile);
    restart(1).await;
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    restart(2).await;
    assert!(!rig.disk.holds(0, &pattern(LEN, 1)));
    assert_lost(&disk).await;
}

/// A unit that loses power forgets its pending reports, and its cache may be off again when the disk flushes.
/// So the disk queries after a reset whether the cache is on.
#[tokio::test]
async fn a_cache_that_is_switched_on_before_a_reset_counts() {
    let rig = cached_rig().await;
    rig.disk.set_cache(Cache::WriteThrough);
    let disk = open(&rig, 1).await;
    assert!(!disk.limits().has_volatile_cache);
    rig.disk.switch_cache(Cache::Volatile);
    rig.disk.lose_power();
    soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
    assert!(disk.limits().has_volatile_cache);
    rig.disk.lose_power();
    rig.disk.set_cache(Cache::WriteThrough);
    rig.server.with(|target| target.restart());
    until(|| disk.status().reconnects == 1).await;
    assert!(!rig.disk.holds(0, &pattern(LEN, 1)));
    assert_lost(&disk).await;
}

/// A unit without a cache need not support SYNCHRONIZE CACHE. If it refuses the command, the flush succeeds only
/// if the unit then reports that it has no cache.
#[tokio::test]
async fn a_flush_that_is_refused_counts_where_the_unit_has_no_cache_by_now() {
    let rig = cached_rig().await;
    rig.disk.set_cache(Cache::WriteThrough);
    let disk = open(&rig, 1).await;
    for (cache, is_well) in [(Cache::WriteThrough, true), (Cache::Volatile, false)] {
        rig.disk.switch_cache(cache);
        soon(disk.write_at(0, pattern(LEN, 1))).await.unwrap();
        for sense in [Sense::INVALID_FIELD, Sense::INVALID_OPCODE] {
            end_next_with(&rig, sense);
            assert_eq!(soon(disk.flush()).await.is_ok(), is_well, "{cache:?}");
        }
        soon(disk.flush()).await.unwrap();
    }
    // The unit also refuses the query whether it has a cache, so the flush fails.
    end_next_with(&rig, Sense::INVALID_FIELD);
    end_next_with(&rig, Sense::INVALID_FIELD);
    assert!(soon(disk.flush()).await.is_err());
}

/// The unit never responds to one command, but to all others. The flush waits for that command only up to the
/// time limit.
#[tokio::test]
async fn a_command_that_is_never_answered_holds_up_a_flush_no_longer_than_patience_lasts() {
    let rig = cached_rig().await;
    let options = Options::default()
        .with_sessions(Sessions::Fixed(1))
        .with_retry_timeout(Duration::from_millis(100));
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    rig.server.with(|target| target.hold());
    let read = unanswered_read(&disk, 0);
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    rig.server.with(|target| target.resume());
    soon(disk.write_at(FAR, pattern(LEN, 1))).await.unwrap();
    assert_lost(&disk).await;
    soon(disk.write_at(FAR, pattern(LEN, 1))).await.unwrap();
    soon(disk.flush()).await.expect("that was told already");
    rig.server.with(|target| target.release());
    soon(read).await.unwrap().unwrap();
}

/// LIO ends a session whose flush takes longer than its ping timer. After that, only a session that was
/// already open can confirm that no write was lost. So a long flush on a single session waits for a second
/// one.
#[tokio::test]
async fn a_flush_that_ends_its_session_loses_nothing() {
    const MUCH: usize = 65 << 20;
    for sessions in [Sessions::Auto { max: 4 }, Sessions::Fixed(1)] {
        let rig = Rig::start(512, (MUCH as u64) / 512, |config| {
            config.keys.default_time2wait = 0;
            let ends = Fault::drop_connection(..).on_access(Access::SynchronizeCache).times(1);
            config.faults.push(ends);
        })
        .await;
        rig.disk.set_cache(Cache::Volatile);
        let options = Options::default().with_sessions(sessions);
        let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
        assert_eq!(disk.status().sessions, 1);
        for at in 0..MUCH as u64 >> 20 {
            soon(disk.write_at(at << 20, vec![7; 1 << 20])).await.unwrap();
        }
        let flushed = soon(disk.flush()).await;
        if let Sessions::Fixed(_) = sessions {
            assert_eq!(
                flushed.as_ref().err().map(Error::kind),
                Some(ErrorKind::UnflushedWritesLost),
                "{flushed:?}"
            );
        } else {
            flushed.unwrap();
            rig.disk.lose_power();
            assert!(rig.disk.holds((MUCH - LEN) as u64, &[7; LEN]));
        }
    }
}

/// If the target refuses a second session, a long flush uses the only session, and succeeds.
#[tokio::test]
async fn a_long_flush_does_not_wait_for_a_session_that_does_not_come() {
    const MUCH: usize = 65 << 20;
    let rig = Rig::start(512, (MUCH as u64) / 512, |_| {}).await;
    let options = Options::default().with_sessions(Sessions::Auto { max: 4 });
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    for at in 0..MUCH as u64 >> 20 {
        soon(disk.write_at(at << 20, vec![7; 1 << 20])).await.unwrap();
    }
    rig.server.with(|target| target.config_mut().login.refuse = Some((2, 6)));
    soon(disk.flush()).await.unwrap();
    assert_eq!(disk.status().sessions, 1);
}
