//! Tests of the events that a unit reports, as a program that caches data receives them.

use std::time::Duration;

use crate::support::{Rig, initiator, pattern, soon, until};
use iscsi_initiator::{Disk, Options, Sessions};
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::{Sense, Unit};
use iscsi_testkit::target::{ConnId, Target};

const BLOCKS: u64 = 4096;

async fn start() -> Rig {
    Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await
}

async fn open(rig: &Rig, sessions: u32) -> Disk {
    let options = Options::default()
        .with_sessions(Sessions::Fixed(sessions))
        .with_retry_timeout(Duration::from_secs(5));
    soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap()
}

/// Waits until all sessions of a disk are open.
async fn gather(disk: &Disk, sessions: usize) {
    until(|| disk.sessions().len() == sessions).await;
}

/// Makes the unit report `sense` to each session, without any other change.
fn report_change(target: &mut Target, sense: Sense) {
    let unit = target.config_mut().units[&0].clone();
    target.replace_unit_with_attention(0, unit, sense);
}

/// SAM-5 §5.14: each unit attention is reported instead of executing a command, and is counted before that
/// command ends.
#[tokio::test]
async fn every_unit_attention_counts_before_the_command_ends_that_was_told() {
    let rig = start().await;
    let disk = open(&rig, 1).await;
    let tells: [fn(&mut Target); 6] = [
        |target| target.reset_by_another(0),
        |target| report_change(target, Sense::CAPACITY_CHANGED),
        |target| report_change(target, Sense::INQUIRY_CHANGED),
        |target| report_change(target, Sense::LUNS_CHANGED),
        |target| report_change(target, Sense::MODE_CHANGED),
        // NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
        |target| report_change(target, Sense::new(6, 0x28, 0)),
    ];
    for tells in tells {
        let before = disk.unit_attention_count();
        rig.server.with(tells);
        assert_eq!(disk.unit_attention_count(), before, "nothing was asked of the unit");
        soon(disk.read_at(0, 512)).await.unwrap();
        assert!(disk.unit_attention_count() > before);
    }
    rig.assert_clean();
}

#[tokio::test]
async fn what_ends_well_or_fails_by_itself_does_not_count() {
    let rig = start().await;
    let disk = open(&rig, 2).await;
    gather(&disk, 2).await;
    let before = disk.unit_attention_count();
    rig.server.with(|target| target.config_mut().faults.push(Fault::medium_error(8..9).times(1)));
    for at in 0..20 {
        soon(disk.write_at(at * 8192, pattern(8192, at as u8))).await.unwrap();
        soon(disk.flush()).await.unwrap();
    }
    assert!(soon(disk.read_at(4096, 512)).await.is_err());
    soon(disk.read_at(0, 1 << 20)).await.unwrap();
    assert_eq!(disk.unit_attention_count(), before);
}

#[tokio::test]
async fn a_reset_counts_over_whichever_session_it_is_told() {
    let rig = start().await;
    let disk = open(&rig, 3).await;
    gather(&disk, 3).await;
    for session in 0..3 {
        let before = disk.unit_attention_count();
        rig.server.with(|target| target.reset_by_another(0));
        // TEST UNIT READY is sent over this session only.
        let unit = disk.sessions()[session].logical_unit(disk.unit().lun());
        soon(unit.test_unit_ready()).await.unwrap();
        assert_eq!(disk.unit_attention_count(), before + 1);
    }
}

/// RFC 7143 §6.3.5: a report that was pending for a lost session is not sent to any other session. So a
/// reconnect counts as a possible report.
#[tokio::test]
async fn a_session_that_is_opened_anew_counts_though_the_target_tells_nothing() {
    let rig = start().await;
    let disk = open(&rig, 1).await;
    let before = disk.unit_attention_count();
    rig.server.with(|target| target.drop_connection(ConnId(0)));
    soon(disk.read_at(0, 512)).await.unwrap();
    assert!(disk.stats().sessions_reopened == 1 && disk.unit_attention_count() > before);
    let before = disk.unit_attention_count();
    soon(disk.read_at(0, 512)).await.unwrap();
    assert_eq!(disk.unit_attention_count(), before);
}

#[tokio::test]
async fn another_unit_counts_also_where_the_target_does_not_tell() {
    let rig = start().await;
    let disk = open(&rig, 1).await;
    let before = disk.unit_attention_count();
    let other = Unit::new(RamDisk::new(512, BLOCKS)).with_identity("0002", 0x3000_0000_0000_0002);
    rig.server.with(|target| target.config_mut().units.insert(0, other));
    assert!(soon(disk.confirm_unit()).await.is_err());
    assert!(disk.unit_attention_count() > before);
}

/// SPC-4 §4.5.5: a deferred error is about an earlier command that ended with success. It counts as a report.
#[tokio::test]
async fn what_a_volatile_cache_has_lost_counts() {
    let rig = start().await;
    rig.disk.set_cache(Cache::Volatile);
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(4096, 1))).await.unwrap();
    let before = disk.unit_attention_count();
    assert_eq!(rig.disk.fail_write_back(0..8), 8);
    soon(disk.read_at(1 << 20, 512)).await.unwrap();
    assert!(disk.unit_attention_count() > before, "a deferred error");
    soon(disk.write_at(0, pattern(4096, 1))).await.unwrap();
    let before = disk.unit_attention_count();
    rig.server
        .with(|target| target.config_mut().faults.push(Fault::flush_error(.., true).times(1)));
    assert!(soon(disk.flush()).await.is_err());
    assert!(disk.unit_attention_count() > before, "a flush that failed on the medium");
}

/// SAM-5 §5.6: TASK ABORTED may take the place of the report of a reset, so it counts as one.
#[tokio::test]
async fn a_command_that_ends_without_its_status_counts() {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.units.values_mut().for_each(|unit| unit.behavior.task_aborted_status = true);
    })
    .await;
    let disk = open(&rig, 1).await;
    let before = disk.unit_attention_count();
    rig.server.with(Target::hold);
    let reader = disk.clone();
    let read = tokio::spawn(async move { reader.read_at(0, 512).await });
    until(|| rig.server.with(|target| target.active_tasks()) == 1).await;
    rig.server.with(|target| {
        target.clear_by_another(0);
        target.release();
    });
    soon(read).await.unwrap().unwrap();
    assert!(disk.unit_attention_count() > before);
}
