//! Tests of units that are reserved for one disk only, and of registrations that a killed process has left at
//! the unit.

use std::time::Duration;

use crate::reservations::{
    BLOCKS, KEY, OTHER, WRITE_EXCLUSIVE_REGISTRANTS, open, options, reservations, start,
};
use crate::support::{Rig, let_pass, soon, until};
use iscsi_initiator::scsi::ReservationKey;
use iscsi_initiator::{Advice, Disk, Error, Options};
use iscsi_testkit::scsi::Sense;
use iscsi_testkit::target::{Outcome, Target};
use tokio::task::JoinHandle;

const LEFT_BEHIND: u64 = 0xa1;

/// Returns whether a key belongs to an earlier process of the same host.
fn is_left_behind(key: ReservationKey) -> bool {
    key.0 & !0xf == LEFT_BEHIND & !0xf
}

/// Reserves the unit in the background.
fn reserve(disk: &Disk) -> JoinHandle<Result<(), Error>> {
    let disk = disk.clone();
    tokio::spawn(async move { disk.reserve_exclusively(is_left_behind).await })
}

/// Lets time pass until the reservation has succeeded or failed. Returns its result.
async fn reserved(reserving: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
    while !reserving.is_finished() {
        let_pass(Duration::from_secs(1)).await;
    }
    reserving.await.unwrap()
}

/// PRS-19: the registrations of a killed process are taken over, and its commands in flight are aborted.
#[tokio::test]
async fn prs_19_what_is_left_behind_is_taken_over() {
    for holds in [false, true] {
        let rig = start().await;
        let reservations = reservations(&rig);
        reservations.register_by_another(LEFT_BEHIND);
        assert_eq!(holds && reservations.reserve_by_another(WRITE_EXCLUSIVE_REGISTRANTS), holds);
        let disk = open(&rig, options(4)).await;
        soon(disk.reserve_exclusively(is_left_behind)).await.unwrap();
        let ours = (vec![KEY; 4], Some((WRITE_EXCLUSIVE_REGISTRANTS, KEY)));
        assert_eq!((reservations.keys(), reservations.holder()), ours);
        let aborts = |target: &Target| {
            target.commands().iter().any(|it| (it.cdb[0], it.cdb[1] & 0x1f) == (0x5f, 5))
        };
        assert!(rig.server.with(|target| aborts(target)), "PREEMPT AND ABORT");
        soon(disk.reserve_exclusively(is_left_behind)).await.expect("once more changes nothing");
        assert_eq!((reservations.keys(), reservations.holder()), ours);
        soon(disk.write_at(0, vec![1; 512 << 10])).await.unwrap();
        soon(disk.logout()).await.unwrap();
        assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));
        rig.assert_clean();
    }
}

/// PRS-19: if the unit does not support PREEMPT AND ABORT, the disk sends PREEMPT.
#[tokio::test]
async fn prs_19_a_unit_without_preempt_and_abort() {
    let rig = start().await;
    let reservations = reservations(&rig);
    reservations.register_by_another(LEFT_BEHIND);
    let disk = open(&rig, options(1)).await;
    let asked = |target: &mut Target| {
        target.commands().iter().filter(|it| (it.cdb[0], it.cdb[1] & 0x1f) == (0x5e, 0)).count()
    };
    let before = rig.server.with(|target| {
        target.hold();
        asked(target)
    });
    let reserving = reserve(&disk);
    until(|| rig.server.with(asked) > before).await;
    // Refuses the command after READ KEYS.
    rig.server.with(|target| {
        target.end_next_with(Outcome::check(Sense::new(5, 0x24, 0)));
        target.resume();
        target.release();
    });
    soon(reserving).await.unwrap().unwrap();
    let ours = (vec![KEY], Some((WRITE_EXCLUSIVE_REGISTRANTS, KEY)));
    assert_eq!((reservations.keys(), reservations.holder()), ours);
}

/// PRS-10, PRS-12, PRS-16: LIO without a place to store registrations executes each REGISTER, and reports an
/// error. So a change that ends with an error may have been made.
#[tokio::test]
async fn prs_10_a_change_that_ends_with_an_error_may_be_made() {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.keys.default_time2wait = 0;
        config.units.get_mut(&0).unwrap().behavior.forgetful_registrations = true;
    })
    .await;
    let reservations = reservations(&rig);
    reservations.register_by_another(LEFT_BEHIND);
    let disk = open(&rig, options(4)).await;
    soon(disk.reserve_exclusively(is_left_behind)).await.unwrap();
    let ours = (vec![KEY; 4], Some((WRITE_EXCLUSIVE_REGISTRANTS, KEY)));
    assert_eq!((reservations.keys(), reservations.holder()), ours);
    rig.server.with(Target::drop_connections);
    soon(disk.write_at(0, vec![7; 64 << 10])).await.unwrap();
    until(|| disk.status().sessions == 4).await;
    soon(disk.logout()).await.unwrap();
    assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));
}

/// PRS-19: another registered host could write, so the reservation fails. The registration and the
/// reservation of that host remain.
#[tokio::test]
async fn prs_19_another_that_is_registered_keeps_the_unit() {
    for holds in [None, Some(1), Some(WRITE_EXCLUSIVE_REGISTRANTS), Some(7)] {
        let rig = start().await;
        let reservations = reservations(&rig);
        reservations.register_by_another(OTHER);
        assert!(holds.is_none_or(|kind| reservations.reserve_by_another(kind)));
        let disk = open(&rig, options(2)).await;
        let error = reserved(reserve(&disk)).await.unwrap_err();
        let another = ReservationKey(OTHER);
        assert_eq!(error.advice(), Some(Advice::StopOtherHost), "{error}");
        assert!(error.to_string().contains(&another.to_string()), "{error}");
        soon(disk.logout()).await.unwrap();
        let as_before = (vec![OTHER], holds.map(|kind| (kind, OTHER)));
        assert_eq!((reservations.keys(), reservations.holder()), as_before);
    }
}

/// PRS-19: two hosts may want a unit at the same time. One is refused and unregisters; the other one waits for that.
#[tokio::test]
async fn prs_19_one_that_leaves_is_waited_for() {
    let rig = start().await;
    let reservations = reservations(&rig);
    let other = open(&rig, options(1).with_reservation_key(ReservationKey(OTHER))).await;
    let disk = open(&rig, options(1)).await;
    let reserving = reserve(&disk);
    let_pass(Duration::from_secs(1)).await;
    assert!(!reserving.is_finished());
    soon(other.logout()).await.unwrap();
    reserved(reserving).await.unwrap();
    let ours = (vec![KEY], Some((WRITE_EXCLUSIVE_REGISTRANTS, KEY)));
    assert_eq!((reservations.keys(), reservations.holder()), ours);
}

/// PRS-19: a disk without a reservation key cannot reserve its unit.
#[tokio::test]
async fn prs_19_a_disk_without_a_key() {
    let rig = start().await;
    let disk = open(&rig, Options::default()).await;
    let reserved = soon(disk.reserve_exclusively(is_left_behind)).await;
    assert_eq!(reserved.as_ref().err().and_then(Error::advice), Some(Advice::GiveKey));
}
