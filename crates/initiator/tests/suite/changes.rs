//! Tests of a unit that changes while its disk is open: what the disk reports, and what happens to requests.

use std::time::Duration;

use crate::support::{Rig, initiator, pattern, shown, soon, unit_change, until};
use iscsi_initiator::{Disk, DiskEvent, ErrorKind, Options, Sessions};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::{Sense, Unit};
use iscsi_testkit::target::{ConnId, Outcome, Target};

const BLOCKS: u64 = 1024;
const BYTES: u64 = BLOCKS * 512;

async fn start() -> Rig {
    Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await
}

async fn open(rig: &Rig, sessions: u32) -> Disk {
    let options = Options::default()
        .with_sessions(Sessions::Fixed(sessions))
        .with_retry_timeout(Duration::from_secs(5));
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    until(|| disk.sessions().len() == sessions as usize).await;
    disk
}

fn unit(target: &mut Target) -> Unit {
    target.config_mut().units[&0].clone()
}

/// UCH-01: SBC-3 §4.7: the unit reports its growth at the next command of each session, and the disk uses the
/// new capacity.
#[tokio::test]
async fn a_unit_that_has_grown_is_used_to_its_new_end() {
    for sessions in [1, 3] {
        let rig = start().await;
        let disk = open(&rig, sessions).await;
        let mut changes = disk.events();
        let beyond = soon(disk.write_at(BYTES, vec![7; 512])).await.unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::InvalidInput, "{beyond}");
        assert!(beyond.to_string().ends_with(&format!("a disk of {BYTES} bytes")), "{beyond}");
        rig.server.with(|target| unit(target).disk.resize(2 * BLOCKS));
        soon(disk.read_at(0, 512)).await.unwrap();
        let told = DiskEvent::CapacityChanged { before: BYTES, now: 2 * BYTES };
        assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&told)));
        assert_eq!((disk.capacity(), disk.profile().capacity.blocks), (2 * BYTES, BLOCKS));
        let data = pattern(4096, 3);
        soon(disk.write_at(2 * BYTES - 4096, data.clone())).await.unwrap();
        // Requests use all sessions, some of which have not received the report yet.
        for _ in 0..8 {
            assert_eq!(soon(disk.read_at(2 * BYTES - 4096, 4096)).await.unwrap(), data);
        }
        soon(disk.flush()).await.unwrap();
        drop(disk);
        while let Some(event) = soon(changes.next()).await {
            assert!(!matches!(event, DiskEvent::CapacityChanged { .. }), "{event}");
        }
        rig.assert_clean();
    }
}

/// UCH-01: if the unit has shrunk, nothing is written across the new end.
#[tokio::test]
async fn a_unit_that_has_shrunk_keeps_what_it_has_and_says_what_is_gone() {
    let rig = start().await;
    let disk = open(&rig, 2).await;
    let mut changes = disk.events();
    let data = pattern(8192, 5);
    soon(disk.write_at(0, data.clone())).await.unwrap();
    rig.server.with(|target| unit(target).disk.resize(BLOCKS / 2));
    // The disk has not received the report yet, so the unit itself refuses the write.
    let error = soon(disk.write_at(BYTES - 4096, vec![1; 4096])).await.unwrap_err();
    let is_told =
        error.to_string() == format!("the unit has {} bytes now, and had {BYTES}", BYTES / 2);
    assert!(is_told && error.kind() == ErrorKind::UnitChanged, "{error}");
    let told = DiskEvent::CapacityChanged { before: BYTES, now: BYTES / 2 };
    assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&told)));
    // A write that begins before the end fails as well, and is not sent at all.
    let left = |rig: &Rig| rig.server.with(|target| unit(target).disk.read(0, BYTES as usize / 2));
    let before = left(&rig);
    let across = soon(disk.write_at(BYTES / 2 - 512, vec![2; 1024])).await.unwrap_err();
    assert_eq!(across.kind(), ErrorKind::UnitChanged, "{across}");
    assert_eq!(left(&rig), before);
    let never = soon(disk.read_at(BYTES, 512)).await.unwrap_err();
    assert_eq!(never.kind(), ErrorKind::InvalidInput, "{never}");
    assert_eq!(soon(disk.read_at(0, 8192)).await.unwrap(), data);
    soon(disk.write_at(BYTES / 2 - 512, vec![3; 512])).await.unwrap();
    soon(disk.flush()).await.unwrap();
}

#[tokio::test]
async fn a_session_that_comes_back_finds_the_size_that_the_unit_has_by_then() {
    let rig = start().await;
    let disk = open(&rig, 1).await;
    let mut changes = disk.events();
    rig.server.with(|target| {
        unit(target).disk.resize(2 * BLOCKS);
        target.drop_connections();
    });
    soon(disk.read_at(0, 512)).await.unwrap();
    let told = DiskEvent::CapacityChanged { before: BYTES, now: 2 * BYTES };
    assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&told)));
    soon(disk.write_at(2 * BYTES - 512, vec![9; 512])).await.unwrap();
}

/// UCH-02: if the unit reports other changes, the disk confirms the unit and detects another identifier.
#[tokio::test]
async fn other_changes_are_told_and_the_unit_is_asked_which_one_it_is() {
    let rig = start().await;
    let disk = open(&rig, 1).await;
    let mut changes = disk.events();
    for (sense, change) in [
        (Sense::INQUIRY_CHANGED, DiskEvent::InquiryDataChanged),
        (Sense::LUNS_CHANGED, DiskEvent::ReportedLunsChanged),
        (Sense::new(6, 0x2a, 0x06), DiskEvent::AccessStatesChanged),
        (Sense::new(6, 0x2a, 0x07), DiskEvent::AccessStatesChanged),
    ] {
        rig.server.with(|target| {
            let unit = unit(target);
            target.replace_unit_with_attention(0, unit, sense);
        });
        soon(disk.write_at(0, vec![1; 512])).await.unwrap();
        assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&change)));
    }
    rig.server.with(|target| {
        let unit = unit(target).with_identity("another", 0x3000_0000_0000_0009);
        target.replace_unit_with_attention(0, unit, Sense::INQUIRY_CHANGED);
    });
    let error = soon(disk.write_at(0, vec![2; 512])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnitChanged, "{error}");
    assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&DiskEvent::InquiryDataChanged)));
}

/// Unit attention NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
const MEDIUM_MAY_HAVE_CHANGED: Sense = Sense::new(6, 0x28, 0);

async fn start_removable() -> Rig {
    Rig::start(512, BLOCKS, |config| {
        config.keys.default_time2wait = 0;
        config.units.values_mut().for_each(|unit| unit.behavior.removable = true);
    })
    .await
}

/// Inserts another medium of `blocks` blocks into the same drive.
fn exchange(target: &mut Target, blocks: u64) -> RamDisk {
    let (mut unit, medium) = (unit(target), RamDisk::new(512, blocks));
    unit.disk = medium.clone();
    target.replace_unit_with_attention(0, unit, MEDIUM_MAY_HAVE_CHANGED);
    medium
}

async fn assert_is_of_no_use(disk: &Disk) {
    for at in 0..8 {
        let error = soon(disk.write_at(at * 4096, pattern(4096, 1))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnitChanged, "{error}");
        assert!(!error.may_have_executed() && !error.is_transient(), "{error}");
    }
    let error = soon(disk.read_at(0, 512)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnitChanged, "{error}");
}

/// UCH-03: no identifier distinguishes two media, so nothing is written after a medium may have been
/// exchanged.
#[tokio::test]
async fn nothing_is_written_to_a_medium_that_may_have_taken_the_place_of_another() {
    for sessions in [1, 3] {
        let rig = start_removable().await;
        let disk = open(&rig, sessions).await;
        soon(disk.write_at(0, pattern(4096, 1))).await.unwrap();
        let medium = rig.server.with(|target| exchange(target, BLOCKS));
        assert_is_of_no_use(&disk).await;
        assert!(medium.holds(0, &vec![0; BYTES as usize]), "something was written");
        let anew = open(&rig, sessions).await;
        soon(anew.write_at(0, pattern(4096, 2))).await.unwrap();
        assert!(medium.holds(0, &pattern(4096, 2)));
        assert_is_of_no_use(&disk).await;
        assert!(medium.holds(4096, &vec![0; BYTES as usize - 4096]));
        rig.assert_clean();
    }
}

/// UCH-03: a medium may have been exchanged while no session existed. The session that reconnects receives
/// the report, and the disk then fails all requests.
#[tokio::test]
async fn a_medium_that_may_have_changed_while_no_session_was_there_counts_as_well() {
    let rig = start_removable().await;
    let disk = open(&rig, 1).await;
    rig.server.with(|target| {
        target.drop_connection(ConnId(0));
        target.end_next_with(Outcome::check(MEDIUM_MAY_HAVE_CHANGED));
    });
    assert!(soon(disk.read_at(0, 512)).await.is_err());
    assert_is_of_no_use(&disk).await;
    assert_eq!(disk.stats().sessions_reopened, 1);
    assert!(rig.disk.holds(0, &vec![0; BYTES as usize]));
}

/// UCH-03: a report that arrives before the unit is identified does not concern a known medium, so the disk
/// opens.
#[tokio::test]
async fn a_medium_that_has_changed_before_the_disk_was_opened_is_the_one_to_use() {
    let rig = start_removable().await;
    rig.server.with(|target| target.end_next_with(Outcome::check(MEDIUM_MAY_HAVE_CHANGED)));
    let disk = open(&rig, 1).await;
    assert!(disk.unit_attention_count() > 0, "it was told");
    soon(disk.write_at(0, pattern(4096, 1))).await.unwrap();
    assert_eq!(soon(disk.read_at(0, 4096)).await.unwrap(), pattern(4096, 1));
}

/// UCH-04: if a unit whose medium is not removable has become ready again, its identity and capacity are
/// queried again.
#[tokio::test]
async fn a_unit_that_has_become_ready_is_asked_which_one_it_is_and_how_large() {
    for sessions in [1, 3] {
        let rig = start().await;
        let disk = open(&rig, sessions).await;
        let mut changes = disk.events();
        let medium = rig.server.with(|target| exchange(target, 2 * BLOCKS));
        soon(disk.write_at(0, pattern(4096, 1))).await.unwrap();
        let told = DiskEvent::CapacityChanged { before: BYTES, now: 2 * BYTES };
        assert_eq!(soon(unit_change(&mut changes)).await, Some(shown(&told)));
        assert!(medium.holds(0, &pattern(4096, 1)));
        rig.assert_clean();
    }
}
