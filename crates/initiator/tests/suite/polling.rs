//! Tests of polls of an idle disk's unit, by which it can report changes (`Options::with_poll`).

use std::time::Duration;

use crate::reservations::{KEY, OTHER, WRITE_EXCLUSIVE_REGISTRANTS, reservations};
use crate::support::{Rig, initiator, let_pass, shown, soon, unit_change, until};
use iscsi_initiator::scsi::ReservationKey;
use iscsi_initiator::{Disk, DiskEvent, ErrorKind, Options, Sessions};
use iscsi_testkit::scsi::{Sense, Unit};
use iscsi_testkit::target::Target;

const BLOCKS: u64 = 1024;
const BYTES: u64 = BLOCKS * 512;
const INTERVAL: Duration = Duration::from_secs(30);
const TEST_UNIT_READY: u8 = 0;

async fn start() -> Rig {
    Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await
}

fn options(poll: Option<Duration>, sessions: u32) -> Options {
    Options::default().with_sessions(Sessions::Fixed(sessions)).with_poll(poll)
}

async fn open(rig: &Rig, options: Options, parameters: &str) -> Disk {
    soon(initiator(options).disk(rig.unit_url(0, parameters))).await.unwrap()
}

fn commands(rig: &Rig) -> usize {
    rig.server.with(|target| target.commands().len())
}

fn questions(rig: &Rig) -> usize {
    let is_question = |cdb: [u8; 16]| cdb[0] == TEST_UNIT_READY;
    rig.server.with(|target| target.commands().iter().filter(|it| is_question(it.cdb)).count())
}

fn resize(rig: &Rig, blocks: u64) {
    rig.server.with(|target| target.config_mut().units[&0].disk.resize(blocks));
}

/// SAM-5 §5.14: a unit reports a change at the next command. An idle disk sends a command only if it polls.
#[tokio::test]
async fn an_idle_disk_hears_of_a_resize_where_it_is_to_ask() {
    for (poll, parameters, hears) in [
        (Some(INTERVAL), "", true),
        (None, "?poll=30", true),
        (None, "", false),
        (Some(INTERVAL), "?poll=0", false),
    ] {
        let rig = start().await;
        let disk = open(&rig, options(poll, 2), parameters).await;
        let mut changes = disk.events();
        let before = commands(&rig);
        resize(&rig, 2 * BLOCKS);
        let_pass(3 * INTERVAL).await;
        if hears {
            let told = DiskEvent::CapacityChanged { before: BYTES, now: 2 * BYTES };
            assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&told)));
        } else {
            assert_eq!(commands(&rig), before, "nobody has asked for a question");
        }
        assert_eq!(disk.capacity(), if hears { 2 * BYTES } else { BYTES });
        rig.assert_clean();
    }
}

/// A poll is one command for each interval, over one session, and is not counted as a request.
#[tokio::test]
async fn a_question_is_one_command_over_one_session_and_counts_as_no_request() {
    let rig = start().await;
    let disk = open(&rig, options(Some(INTERVAL), 3), "").await;
    let (sent, asked, before) = (commands(&rig), questions(&rig), disk.stats());
    rig.server.with(|target| {
        let unit = target.config_mut().units[&0].clone();
        target.replace_unit_with_attention(0, unit, Sense::LUNS_CHANGED);
    });
    let_pass(10 * INTERVAL + INTERVAL / 2).await;
    let after = disk.stats();
    let counted = |stats: &iscsi_initiator::DiskStats| {
        (stats.requests.clone(), stats.retries, stats.duplicates, stats.budget_waits)
    };
    assert_eq!(counted(&after), counted(&before));
    for (session, earlier) in after.sessions.iter().zip(&before.sessions) {
        assert_eq!(session.commands, earlier.commands);
    }
    // After the first interval the disk only records the numbers of its commands, to compare them later. Of the
    // 9 polls that follow, one received a report in place of its response, and was sent again.
    assert_eq!(questions(&rig) - asked, 10);
    let asks = rig.server.with(|target| {
        let of_now = target.commands()[sent..].iter();
        of_now.map(|command| command.connection).collect::<std::collections::BTreeSet<_>>()
    });
    assert_eq!(asks.len(), 1);
}

#[tokio::test]
async fn a_disk_with_work_asks_nothing() {
    let rig = start().await;
    let disk = open(&rig, options(Some(INTERVAL), 1), "").await;
    let before = questions(&rig);
    for _ in 0..10 {
        let_pass(INTERVAL / 2).await;
        soon(disk.read_at(0, 512)).await.unwrap();
    }
    assert_eq!(questions(&rig), before);
    // While a request waits for its response, the disk is not idle, however long that takes.
    rig.server.with(Target::hold);
    let reads = tokio::spawn(async move { (disk.read_at(0, 512).await, disk) });
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    let_pass(INTERVAL + INTERVAL / 2).await;
    assert_eq!(questions(&rig), before);
    rig.server.with(Target::release);
    soon(reads).await.unwrap().0.unwrap();
}

#[tokio::test]
async fn questions_go_on_over_the_session_that_comes_back() {
    let rig = start().await;
    let disk = open(&rig, options(Some(INTERVAL), 1), "").await;
    let_pass(3 * INTERVAL).await;
    rig.server.with(Target::drop_connections);
    until(|| disk.stats().sessions_reopened == 1).await;
    let (mut changes, before) = (disk.events(), questions(&rig));
    resize(&rig, BLOCKS / 2);
    let_pass(3 * INTERVAL).await;
    let told = DiskEvent::CapacityChanged { before: BYTES, now: BYTES / 2 };
    assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&told)));
    assert!(questions(&rig) > before);
}

/// If a unit does not respond to a poll, no second poll is sent. The poll delays neither requests nor the end
/// of the disk.
#[tokio::test]
async fn a_question_without_an_answer_is_the_only_one_and_holds_nothing_up() {
    let rig = start().await;
    let options = options(Some(Duration::from_secs(5)), 2).with_max_requests(1);
    let disk = open(&rig, options, "?timeout=0").await;
    let before = questions(&rig);
    rig.server.with(Target::hold);
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(questions(&rig) - before, 1);
    // Commands that are already held stay held.
    rig.server.with(Target::resume);
    soon(disk.write_at(0, vec![7; 512])).await.unwrap();
    drop(disk);
    until(|| rig.server.with(|target| target.sessions()) == 0).await;
}

/// PRS-11: an idle disk that polls finds out without a request that it was fenced off.
#[tokio::test]
async fn an_idle_disk_hears_of_a_reset_and_that_it_was_fenced_off() {
    let rig = start().await;
    let key = ReservationKey(KEY);
    let disk = open(&rig, options(Some(INTERVAL), 1).with_reservation_key(key), "").await;
    let before = disk.unit_attention_count();
    rig.server.with(|target| target.reset_by_another(0));
    let_pass(3 * INTERVAL).await;
    assert!(disk.unit_attention_count() > before);
    let reservations = reservations(&rig);
    reservations.register_by_another(OTHER);
    assert!(reservations.preempt_by_another(KEY, WRITE_EXCLUSIVE_REGISTRANTS));
    let_pass(3 * INTERVAL).await;
    let before = commands(&rig);
    let error = soon(disk.write_at(0, vec![1; 512])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Preempted, "{error}");
    assert_eq!(commands(&rig), before, "it was known already");
}

/// While an idle disk polls, its unit is replaced by another one and its session is lost. The disk ends without
/// a request, and sends no more polls.
#[tokio::test]
async fn a_lost_disk_ends_though_it_is_to_ask() {
    let rig = start().await;
    let options =
        options(Some(Duration::from_secs(1)), 1).with_retry_timeout(Duration::from_secs(20));
    let disk = open(&rig, options, "").await;
    let_pass(Duration::from_secs(5)).await;
    rig.server.with(|target| {
        let other = Unit::new(iscsi_testkit::disk::RamDisk::new(512, BLOCKS));
        let other = other.with_identity("another", 0x3000_0000_0000_0009);
        target.replace_unit(0, other);
        target.drop_connections();
    });
    let_pass(Duration::from_secs(60)).await;
    let asked = questions(&rig);
    let error = soon(disk.read_at(0, 512)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnitChanged, "{error}");
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(questions(&rig), asked);
}
