//! Tests of one unit behind several disks, and of a unit that is replaced by another one while its disk is
//! open.

use crate::support::{Rig, initiator, notes_of, pattern, soon, until};
use iscsi_initiator::scsi::Lun;
use iscsi_initiator::{Advice, Disk, Error, ErrorKind, Initiator, Options, Sessions};
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::scsi::{Sense, Unit};
use iscsi_testkit::target::{ConnId, Outcome, Target};
use tokio::task::JoinSet;

const BLOCKS: u64 = 4096;
/// Length of each of the concurrent writes, in bytes.
const PART: usize = 8192;
const SERIAL_NUMBER: u8 = 0x80;
const IDENTIFICATION: u8 = 0x83;

fn fixed(count: u32) -> Options {
    Options::default().with_sessions(Sessions::Fixed(count))
}

async fn start(change: impl FnMut(&mut Unit)) -> Rig {
    Rig::start(512, BLOCKS, |config| {
        config.keys.default_time2wait = 0;
        config.units.values_mut().for_each(change);
    })
    .await
}

async fn open_with(initiator: &Initiator, rig: &Rig) -> Disk {
    soon(initiator.disk(rig.unit_url(0, ""))).await.unwrap()
}

/// Writes the halves of a block concurrently over two disks. No write may undo the other one.
async fn assert_no_write_is_undone(rig: &Rig, one: &Disk, other: &Disk) {
    for round in 0..100u8 {
        let half = || vec![round + 1; 256];
        let writes = async { tokio::join!(one.write_at(0, half()), other.write_at(256, half())) };
        let (first, second) = soon(writes).await;
        first.and(second).unwrap();
        assert!(rig.disk.holds(0, &[round + 1; 512]), "an acknowledged write was undone");
    }
}

/// A read-modify-write of a block excludes writes of all disks of an initiator, in whatever way the disks
/// were opened.
#[tokio::test]
async fn disks_of_one_initiator_share_the_ranges_of_a_unit() {
    let nameless =
        |unit: &mut Unit| unit.behavior.refused_pages = vec![SERIAL_NUMBER, IDENTIFICATION];
    let numbered = |unit: &mut Unit| unit.behavior.refused_pages = vec![IDENTIFICATION];
    for change in [|_: &mut Unit| {}, nameless, numbered] {
        let rig = start(change).await;
        let initiator = initiator(fixed(1));
        let first = open_with(&initiator, &rig).await;
        let second = open_with(&initiator, &rig).await;
        assert_no_write_is_undone(&rig, &first, &second).await;
        let session = soon(initiator.connect(rig.unit_url(0, ""))).await.unwrap();
        assert_no_write_is_undone(
            &rig,
            &first,
            &soon(session.disk_without_reconnect()).await.unwrap(),
        )
        .await;
        let unit = session.logical_unit(Lun::ZERO);
        assert_no_write_is_undone(
            &rig,
            &second,
            &soon(unit.disk_without_reconnect()).await.unwrap(),
        )
        .await;
        rig.assert_clean();
    }
}

/// Returns another unit of the same size.
fn another() -> Unit {
    Unit::new(RamDisk::new(512, BLOCKS)).with_identity("0002", 0x3000_0000_0000_0002)
}

/// Returns the same unit with blocks of 4096 bytes.
fn with_long_blocks() -> Unit {
    Unit::new(RamDisk::new(4096, BLOCKS / 8))
}

fn check(key: u8, asc: u8, ascq: u8) -> Outcome {
    Outcome::check(Sense::new(key, asc, ascq))
}

/// Replaces the unit behind the LUN by another one. The next command ends with `told`, if it is set.
fn exchange(rig: &Rig, unit: Unit, told: Option<Outcome>) -> RamDisk {
    let disk = unit.disk.clone();
    rig.server.with(|target| {
        target.config_mut().units.insert(0, unit);
        told.into_iter().for_each(|outcome| target.end_next_with(outcome));
    });
    disk
}

/// Makes the unit refuse these pages in later commands.
fn refuse(rig: &Rig, pages: Vec<u8>) {
    rig.server.with(|target| {
        for unit in target.config_mut().units.values_mut() {
            unit.behavior.refused_pages.clone_from(&pages);
        }
    });
}

fn is_untouched(disk: &RamDisk) -> bool {
    disk.holds(0, &vec![0; BLOCKS as usize * 512])
}

/// Writes parts concurrently, each with its own pattern.
async fn write_parts(disk: &Disk, count: usize, seed: u8) -> Vec<Result<(), Error>> {
    let mut writes = JoinSet::new();
    for part in 0..count {
        let disk = disk.clone();
        let data = pattern(PART, seed ^ part as u8);
        writes.spawn(async move { disk.write_at((part * PART) as u64, data).await });
    }
    soon(writes.join_all()).await
}

/// Number of queries that identify a unit: INQUIRY, VPD page 83 and READ CAPACITY.
const QUESTIONS: usize = 3;

/// Returns how often the identifier of the unit was queried (VPD page 83).
fn questions(rig: &Rig) -> usize {
    let is_question = |cdb: &[u8]| cdb[0] == 0x12 && cdb[2] == IDENTIFICATION;
    rig.server
        .with(|target| target.commands().iter().filter(|command| is_question(&command.cdb)).count())
}

/// SPC-4 §5.14: each of these unit attentions may mean that another unit is behind the LUN. Nothing is written to
/// the other unit, even over sessions that have received no report, and all later requests fail.
#[tokio::test]
async fn an_exchanged_unit_gets_nothing() {
    for (asc, ascq) in
        [(0x3f, 0x0e), (0x3f, 0x03), (0x3f, 0x05), (0x29, 0), (0x29, 1), (0x29, 7), (0x2a, 9)]
    {
        for sessions in [1, 2] {
            let rig = start(|_| {}).await;
            let disk = open_with(&initiator(fixed(sessions)), &rig).await;
            soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
            let other = exchange(&rig, another(), Some(check(6, asc, ascq)));
            for _ in 0..3 {
                let error = soon(disk.write_at(0, pattern(PART, 2))).await.unwrap_err();
                assert_eq!(error.advice(), Some(Advice::OneUnit), "{error:?}");
            }
            let read = soon(disk.read_at(0, PART)).await;
            assert_eq!(
                read.as_ref().err().and_then(Error::advice),
                Some(Advice::OneUnit),
                "{read:?}"
            );
            assert!(soon(disk.flush()).await.is_err());
            assert!(is_untouched(&other), "{asc:02x}/{ascq:02x}");
            rig.assert_clean();
        }
    }
}

/// Additional sense 25/00: the unit is gone. A unit that takes its place is identified before anything is sent to
/// it.
#[tokio::test]
async fn a_unit_in_place_of_one_that_was_removed_gets_nothing() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    rig.server.with(|target| target.end_next_with(check(5, 0x25, 0)));
    let error = soon(disk.write_at(0, pattern(PART, 1))).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::RestoreUnit), "{error:?}");
    let unit = rig.server.with(|target| target.config_mut().units.remove(&0).unwrap());
    let error = soon(disk.write_at(0, pattern(PART, 1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    exchange(&rig, unit, None);
    soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
    rig.server.with(|target| target.end_next_with(check(5, 0x25, 0)));
    assert!(soon(disk.write_at(0, pattern(PART, 1))).await.is_err());
    let other = exchange(&rig, another(), None);
    let error = soon(disk.write_at(0, pattern(PART, 1))).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::OneUnit), "{error:?}");
    assert!(is_untouched(&other));
}

/// If INQUIRY also ends with additional sense 25/00, the unit is gone and requests fail immediately. The next
/// request identifies the unit again.
#[tokio::test]
async fn a_unit_whose_questions_end_with_25_00_is_gone_at_once() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    rig.server.with(|target| target.end_next_with(check(5, 0x25, 0)));
    assert!(soon(disk.write_at(0, pattern(PART, 1))).await.is_err());
    for _ in 0..QUESTIONS {
        rig.server.with(|target| target.end_next_with(check(5, 0x25, 0)));
    }
    let error = soon(disk.write_at(0, pattern(PART, 1))).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::RestoreUnit), "{error:?}");
    soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
}

/// Commands that wait in the session when a unit attention reports another unit are not sent.
#[tokio::test]
async fn commands_that_wait_are_not_sent_to_an_exchanged_unit() {
    let rig = Rig::start(512, BLOCKS, |config| config.window = 1).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
    let other = another();
    let content = other.disk.clone();
    rig.server.with(|target| target.replace_unit(0, other));
    for result in write_parts(&disk, 16, 2).await {
        assert_eq!(
            result.as_ref().err().and_then(Error::advice),
            Some(Advice::OneUnit),
            "{result:?}"
        );
    }
    assert!(is_untouched(&content));
    rig.assert_clean();
}

/// Commands that were already sent to an exchanged unit cannot be withdrawn, so their results are not trusted.
#[tokio::test]
async fn the_answers_of_an_exchanged_unit_are_not_believed() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
    exchange(&rig, another(), Some(check(6, 0x3f, 0x0e)));
    for result in write_parts(&disk, 16, 2).await {
        assert_eq!(
            result.as_ref().err().and_then(Error::advice),
            Some(Advice::OneUnit),
            "{result:?}"
        );
    }
}

/// An aborted command may have received the report that the unit was exchanged, so the unit is identified
/// again.
#[tokio::test]
async fn an_exchange_told_to_an_aborted_command_is_not_forgotten() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    let active = || rig.server.with(|target| target.active_tasks());
    let other = another();
    let content = other.disk.clone();
    rig.server.with(|target| {
        target.hold();
        target.replace_unit(0, other);
    });
    let read = tokio::spawn({
        let disk = disk.clone();
        async move { disk.read_at(0, PART).await }
    });
    until(|| active() == 1).await;
    read.abort();
    until(|| active() == 0).await;
    rig.server.with(|target| target.release());
    for result in write_parts(&disk, 16, 2).await {
        assert_eq!(
            result.as_ref().err().and_then(Error::advice),
            Some(Advice::OneUnit),
            "{result:?}"
        );
    }
    assert!(is_untouched(&content));
    rig.assert_clean();
}

/// Another unit may have replaced the unit for a time. The results of that time are not trusted, although the
/// original unit is there again when it is identified.
#[tokio::test]
async fn the_answers_of_a_unit_that_has_come_and_gone_are_not_believed() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    rig.disk.write(0, &pattern(4 * PART, 1));
    let original = rig.server.with(|target| target.config_mut().units[&0].clone());
    rig.server.with(|target| {
        target.hold();
        target.replace_unit(0, another());
    });
    let requests = async {
        let (read, other_read, write, other_write) = tokio::join!(
            disk.read_at(0, PART),
            disk.read_at(PART as u64, PART),
            disk.write_at(2 * PART as u64, pattern(PART, 2)),
            disk.write_at(3 * PART as u64, pattern(PART, 3)),
        );
        write.and(other_write).unwrap();
        [read.unwrap(), other_read.unwrap()].concat()
    };
    let comes_and_goes = async {
        until(|| rig.server.with(|target| target.active_tasks()) == 4).await;
        rig.server.with(|target| {
            target.replace_unit(0, original);
            target.release();
        });
    };
    let (bytes, ()) = soon(Box::pin(async { tokio::join!(requests, comes_and_goes) })).await;
    assert!(bytes == pattern(4 * PART, 1)[..2 * PART], "another unit has been read");
    assert!(rig.disk.holds(2 * PART as u64, &pattern(PART, 2)), "another unit has been written");
    assert!(rig.disk.holds(3 * PART as u64, &pattern(PART, 3)), "another unit has been written");
    rig.assert_clean();
}

/// Waits until the initiator has received every earlier response: the target pings it, and the answer comes after
/// them.
async fn hears_all(rig: &Rig) {
    for connection in rig.server.with(|target| target.live_connections()) {
        rig.server.with(|target| target.ping(connection, 0));
        until(|| rig.server.with(|target| target.unanswered_pings(connection).is_empty())).await;
    }
}

/// A part of a block is read from another unit over one connection, while the unit attention is delayed on
/// another connection. That part is not written back to the original unit.
#[tokio::test]
async fn the_edges_of_a_write_are_not_those_of_a_unit_that_has_come_and_gone() {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.max_connections = 2).await;
    let disk = open_with(&initiator(fixed(1).with_connections(2)), &rig).await;
    let session = disk.sessions().remove(0);
    until(|| session.connections().open == 2).await;
    rig.disk.write(0, &pattern(PART, 1));
    let original = rig.server.with(|target| target.config_mut().units[&0].clone());
    let reads = |rig: &Rig| {
        let is_read = |cdb: &[u8]| matches!(cdb[0], 0x28 | 0x88);
        let commands = |target: &mut Target| {
            target.commands().iter().filter(|command| is_read(&command.cdb)).count()
        };
        rig.server.with(commands)
    };
    rig.server.with(|target| {
        target.hold();
        target.replace_unit(0, another());
    });
    let told = tokio::spawn({
        let disk = disk.clone();
        async move { disk.read_at(2 * PART as u64, PART).await }
    });
    until(|| reads(&rig) == 1).await;
    rig.server.with(|target| target.resume());
    let write = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(256, pattern(1024, 2)).await }
    });
    until(|| reads(&rig) == 3).await;
    hears_all(&rig).await;
    rig.server.with(|target| {
        target.replace_unit(0, original);
        target.release();
    });
    soon(write).await.unwrap().unwrap();
    soon(told).await.unwrap().unwrap();
    let mut expected = pattern(PART, 1);
    expected[256..1280].copy_from_slice(&pattern(1024, 2));
    assert!(rig.disk.holds(0, &expected), "what another unit holds was written back");
    rig.assert_clean();
}

/// A flush is executed by another unit over one connection, while the unit attention is delayed on another
/// connection. The flush does not count.
#[tokio::test]
async fn a_flush_by_a_unit_that_has_come_and_gone_does_not_count() {
    let rig = Rig::start(512, BLOCKS, |config| config.keys.max_connections = 2).await;
    rig.disk.set_cache(Cache::Volatile);
    let disk = open_with(&initiator(fixed(1).with_connections(2)), &rig).await;
    let session = disk.sessions().remove(0);
    until(|| session.connections().open == 2).await;
    let original = rig.server.with(|target| target.config_mut().units[&0].clone());
    disk.write_at(0, pattern(PART, 1)).await.unwrap();
    assert!(rig.disk.unflushed_blocks() > 0);
    let sent = |code: &'static [u8]| {
        let is_it = move |cdb: &[u8]| code.contains(&cdb[0]);
        let count = move |target: &mut Target| {
            target.commands().iter().filter(|command| is_it(&command.cdb)).count()
        };
        rig.server.with(count)
    };
    let other = another();
    let elsewhere = other.disk.clone();
    rig.server.with(|target| {
        target.hold();
        target.replace_unit(0, other);
    });
    let told = tokio::spawn({
        let disk = disk.clone();
        async move { disk.read_at(2 * PART as u64, PART).await }
    });
    until(|| sent(&[0x28, 0x88]) == 1).await;
    rig.server.with(|target| target.resume());
    let flush = tokio::spawn(async move { disk.flush().await });
    until(|| elsewhere.flushes() == 1).await;
    hears_all(&rig).await;
    rig.server.with(|target| {
        target.replace_unit(0, original);
        target.release();
    });
    soon(told).await.unwrap().unwrap();
    soon(flush).await.unwrap().unwrap();
    assert_eq!(rig.disk.unflushed_blocks(), 0, "another unit was flushed in its place");
    rig.assert_clean();
}

/// SPC-4 §5.14: a unit reports an event once. The report counts even if a query during a reconnect receives
/// it. Results of earlier queries may be those of another unit.
#[tokio::test]
async fn what_a_unit_tells_while_it_is_asked_at_a_reopening_is_heard() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    let asked = questions(&rig);
    rig.server.with(|target| {
        target.end_next_with(Outcome::GOOD);
        target.end_next_with(check(6, 0x3f, 0x0e));
        target.drop_connection(ConnId(0));
    });
    soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
    assert_eq!(questions(&rig), asked + 2, "once at the reopening, and once after what was told");
}

/// A further session joins only if its blocks have the same size as over the first one.
#[tokio::test]
async fn a_further_session_with_blocks_of_another_size_does_not_join() {
    let rig = start(|_| {}).await;
    let twin = Rig::start(512, BLOCKS, |config| {
        config.units.insert(0, with_long_blocks());
    })
    .await;
    let url = rig.unit_url(0, &format!("?portal={}", twin.server.address()));
    match soon(initiator(fixed(2)).disk(url)).await {
        Err(error) => assert_eq!(error.advice(), Some(Advice::Reopen), "{error:?}"),
        Ok(disk) => {
            assert!(write_parts(&disk, 8, 0x55).await.iter().all(Result::is_ok));
            assert_eq!(disk.sessions().len(), 1);
            let notes = notes_of(&disk).join("\n");
            assert!(notes.contains("blocks of 4096 bytes"), "{notes}");
        }
    }
    let other = twin.server.with(|target| target.disk(0).unwrap());
    assert!(is_untouched(&other));
}

/// One task identifies the unit for all waiting tasks. It needs no resource that the waiting tasks hold.
#[tokio::test]
async fn a_unit_that_is_still_the_same_goes_on() {
    for (asc, ascq) in [(0x3f, 0x0e), (0x29, 0), (0x2a, 1), (0x2a, 9)] {
        let rig = start(|_| {}).await;
        let mut options = fixed(1);
        options = options.with_max_requests(4).with_max_bytes_in_flight(4 * PART);
        let disk = open_with(&initiator(options), &rig).await;
        let asked = questions(&rig);
        rig.server.with(|target| target.end_next_with(check(6, asc, ascq)));
        assert!(write_parts(&disk, 32, 2).await.iter().all(Result::is_ok));
        assert_eq!(questions(&rig), asked + 1);
        for part in 0..32 {
            assert!(rig.disk.holds((part * PART) as u64, &pattern(PART, 2 ^ part as u8)));
        }
        rig.assert_clean();
    }
}

/// A failed query of the unit's identity confirms nothing: it is repeated, and meanwhile nothing is sent.
#[tokio::test]
async fn a_question_that_fails_is_asked_again() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    let asked = questions(&rig);
    refuse(&rig, vec![SERIAL_NUMBER, IDENTIFICATION]);
    rig.server.with(|target| target.end_next_with(check(6, 0x3f, 0x0e)));
    let write = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, pattern(PART, 1)).await }
    });
    until(|| questions(&rig) >= asked + 3).await;
    assert!(is_untouched(&rig.disk));
    refuse(&rig, Vec::new());
    soon(write).await.unwrap().unwrap();
    assert!(rig.disk.holds(0, &pattern(PART, 1)));
}

/// If the caller that began the check of the unit's identity does not poll its request for a while, the other
/// requests continue.
#[tokio::test]
async fn a_question_goes_on_without_the_request_that_asked() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    let asked = questions(&rig);
    rig.server.with(|target| target.end_next_with(check(6, 0x3f, 0x0e)));
    refuse(&rig, vec![SERIAL_NUMBER, IDENTIFICATION]);
    let mut left_alone = Box::pin(disk.write_at(0, pattern(PART, 1)));
    tokio::select! {
        _ = &mut left_alone => panic!("it was not asked"),
        () = until(|| questions(&rig) > asked) => {}
    }
    refuse(&rig, Vec::new());
    soon(disk.write_at(PART as u64, pattern(PART, 2))).await.unwrap();
    soon(left_alone).await.unwrap();
}

/// A session that leads to another unit is set aside; the others continue.
#[tokio::test]
async fn a_session_that_leads_elsewhere_is_set_aside() {
    let rig = start(|_| {}).await;
    let twin = Rig::start(512, BLOCKS, |config| {
        config.units.insert(0, Unit::new(rig.disk.clone()));
    })
    .await;
    let url = rig.unit_url(0, &format!("?portal={}", twin.server.address()));
    let disk = soon(initiator(fixed(2)).disk(url)).await.unwrap();
    assert_eq!(disk.sessions().len(), 2);
    let other = another();
    let content = other.disk.clone();
    twin.server.with(|target| target.replace_unit(0, other));
    let mut seed = 0;
    // One write at a time, because commands that were already sent cannot be called back.
    while disk.sessions().len() == 2 {
        seed += 1;
        soon(disk.write_at(0, pattern(PART, seed))).await.unwrap();
    }
    assert!(write_parts(&disk, 8, 0x55).await.iter().all(Result::is_ok));
    for part in 0..8 {
        assert!(rig.disk.holds((part * PART) as u64, &pattern(PART, 0x55 ^ part as u8)));
    }
    assert!(is_untouched(&content));
    assert!(notes_of(&disk).join("\n").contains("leads to another unit"), "{}", disk.status());
}

/// Blocks of another size have other addresses. They are neither read nor written, whichever unit attention
/// reports the change, or if no unit attention does and only the reconnect of a session shows it.
#[tokio::test]
async fn blocks_of_another_size_are_neither_read_nor_written() {
    for told in [Some((0x2a, 0x01)), Some((0x2a, 0x09)), Some((0x29, 0x00)), None] {
        let rig = start(|_| {}).await;
        let disk = open_with(&initiator(fixed(1)), &rig).await;
        soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
        let outcome = told.map(|(asc, ascq)| check(6, asc, ascq));
        let other = exchange(&rig, with_long_blocks(), outcome);
        if told.is_none() {
            rig.server.with(|target| target.drop_connection(ConnId(0)));
        }
        let error = soon(disk.write_at(PART as u64, pattern(PART, 2))).await.unwrap_err();
        let text = "blocks of 4096 bytes now, and had 512";
        assert!(error.to_string().contains(text), "{told:?}: {error}");
        let error = soon(disk.read_at(PART as u64, PART)).await.unwrap_err();
        assert!(error.to_string().contains(text), "{told:?}: {error}");
        assert!(is_untouched(&other));
    }
}

/// If no unit attention reports the other block size, the unit moves more data than was requested. This is an
/// error for reads and writes.
#[tokio::test]
async fn an_overflow_of_blocks_is_an_error() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(1)), &rig).await;
    exchange(&rig, with_long_blocks(), None);
    let read = soon(disk.read_at(PART as u64, PART)).await;
    assert_eq!(read.as_ref().err().and_then(Error::advice), Some(Advice::ReportTarget), "{read:?}");
    let write = soon(disk.write_at(PART as u64, pattern(PART, 1))).await;
    assert_eq!(
        write.as_ref().err().and_then(Error::advice),
        Some(Advice::ReportTarget),
        "{write:?}"
    );
}

/// The blocks of a unit that has grown keep their addresses, so requests continue.
#[tokio::test]
async fn a_unit_that_grows_goes_on() {
    let rig = start(|_| {}).await;
    let disk = open_with(&initiator(fixed(2)), &rig).await;
    rig.disk.resize(2 * BLOCKS);
    assert!(write_parts(&disk, 8, 1).await.iter().all(Result::is_ok));
}

/// The unit is replaced while nothing is in flight, and no unit attention reports it. A request to confirm the
/// unit detects the other unit.
#[tokio::test]
async fn a_disk_that_is_asked_to_confirm_its_unit_finds_another_one() {
    for sessions in [1, 3] {
        let rig = start(|_| {}).await;
        let disk = open_with(&initiator(fixed(sessions)), &rig).await;
        let asked = questions(&rig);
        soon(disk.confirm_unit()).await.unwrap();
        assert_eq!(questions(&rig), asked + sessions as usize, "each session is asked");
        rig.server.with(|target| target.drop_connection(ConnId(0)));
        soon(disk.confirm_unit()).await.unwrap();
        soon(disk.write_at(0, pattern(PART, 1))).await.unwrap();
        let other = exchange(&rig, another(), None);
        let error = soon(disk.confirm_unit()).await.unwrap_err();
        assert_eq!(error.advice(), Some(Advice::OneUnit), "{error:?}");
        assert!(soon(disk.write_at(0, pattern(PART, 1))).await.is_err());
        assert!(is_untouched(&other));
    }
}
