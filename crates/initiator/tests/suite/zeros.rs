//! Tests of writing zeros to units that deallocate blocks by UNMAP only, which a unit need not execute (SBC-3
//! §4.7.3.4).

use crate::support::{Rig, initiator, pattern, soon, until};
use iscsi_initiator::{Advice, Disk, ErrorKind, Options, Sessions};
use iscsi_testkit::disk::Cache;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::{Access, Sense, Unit};
use iscsi_testkit::target::Outcome;

const BLOCKS: usize = 4096;
const GET_LBA_STATUS: u8 = 0x9e;
const UNMAP: u8 = 0x42;
const WRITE_SAME: u8 = 0x93;
const WRITE: u8 = 0x8a;

/// Starts a full unit with LBPU and LBPRZ, and without LBPWS and LBPWS10.
async fn start(sessions: u32, mut change: impl FnMut(&mut Unit)) -> (Rig, Disk) {
    let rig = Rig::start(512, BLOCKS as u64, |config| {
        config.keys.default_time2wait = 0;
        config.units.values_mut().for_each(|unit| {
            unit.behavior.provisioning = Some(0x84);
            change(unit);
        });
    })
    .await;
    rig.disk.fill(1);
    let options = Options::default().with_sessions(Sessions::Fixed(sessions));
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    until(|| disk.sessions().len() == sessions as usize).await;
    (rig, disk)
}

/// Returns how many commands with this operation code have arrived. Of commands with a service action, only
/// GET LBA STATUS counts.
fn count(rig: &Rig, code: u8) -> usize {
    rig.server.with(|target| {
        let is_one = |cdb: &[u8]| cdb[0] == code && (code != GET_LBA_STATUS || cdb[1] == 0x12);
        target.commands().iter().filter(|command| is_one(&command.cdb)).count()
    })
}

/// Makes a range zero, and compares all bytes with the expected data.
async fn zero(rig: &Rig, disk: &Disk, offset: usize, len: usize) {
    let mut content = rig.disk.read(0, usize::MAX).to_vec();
    content[offset..offset + len].fill(0);
    soon(disk.write_zeroes(offset as u64, len as u64)).await.unwrap();
    assert!(rig.disk.holds(0, &content));
    rig.assert_clean();
}

#[tokio::test]
async fn whole_granules_are_given_back_and_the_rest_is_written() {
    let (rig, disk) = start(1, |unit| {
        unit.behavior.unmap_granularity = Some((8, 3));
        unit.behavior.max_unmap_blocks = Some(100);
    })
    .await;
    // Blocks 2 to 1017, and parts of the blocks beside them. The first granule begins at block 3, and the
    // last one ends before block 1011.
    zero(&rig, &disk, 1000, 1018 * 512 - 900).await;
    assert_eq!(rig.disk.mapped_blocks(), BLOCKS - 1008);
    assert_eq!((count(&rig, UNMAP), count(&rig, GET_LBA_STATUS)), (11, 3));
    assert_eq!((count(&rig, WRITE_SAME), count(&rig, WRITE)), (2, 2));
    // Blocks that are already deallocated need no write, even if they do not fill a granule.
    zero(&rig, &disk, 5 * 512, 15 * 512).await;
    assert_eq!((count(&rig, UNMAP), count(&rig, WRITE_SAME)), (12, 2));
    // A range without a whole granule is written immediately.
    zero(&rig, &disk, 2000 * 512, 8 * 512).await;
    assert_eq!((count(&rig, UNMAP), count(&rig, WRITE_SAME)), (12, 3));
    assert_eq!(rig.disk.mapped_blocks(), BLOCKS - 1008);
}

#[tokio::test]
async fn allocated_zeros_are_given_no_block_back_and_get_theirs() {
    for provisioning in [0x84, 0xe4] {
        let (rig, disk) = start(1, |unit| unit.behavior.provisioning = Some(provisioning)).await;
        zero(&rig, &disk, 0, 64 * 512).await;
        assert_eq!(rig.disk.mapped_blocks(), BLOCKS - 64);
        let mut content = rig.disk.read(0, usize::MAX).to_vec();
        content[100..200 * 512 - 100].fill(0);
        soon(disk.write_allocated_zeroes(100, 200 * 512 - 200)).await.unwrap();
        assert!(rig.disk.holds(0, &content));
        // The edges are data. All blocks have storage, including blocks that were deallocated before.
        assert_eq!((rig.disk.mapped_blocks(), count(&rig, WRITE)), (BLOCKS, 2));
        rig.assert_clean();
    }
}

#[tokio::test]
async fn what_unmap_leaves_is_written() {
    for (kept, given_back) in [(0..u64::MAX, 0), (100..300, 824), (0..1, 1023)] {
        let (rig, disk) = start(1, |unit| unit.behavior.kept_by_unmap = kept.clone()).await;
        zero(&rig, &disk, 0, 1024 * 512).await;
        assert_eq!(rig.disk.mapped_blocks(), BLOCKS - given_back);
        assert_eq!((count(&rig, UNMAP), count(&rig, WRITE_SAME), count(&rig, WRITE)), (1, 1, 0));
    }
}

/// If the unit refuses GET LBA STATUS, the result of UNMAP is unknown. So zeros are written, and no second UNMAP
/// is sent.
#[tokio::test]
async fn a_unit_that_does_not_tell_gets_zeros_and_no_more_unmap() {
    let (rig, disk) = start(1, |unit| {
        unit.behavior.kept_by_unmap = 0..u64::MAX;
        unit.behavior.refuses_lba_status = true;
        unit.behavior.refused = vec![0x93, 0x41];
    })
    .await;
    zero(&rig, &disk, 0, 1024 * 512).await;
    zero(&rig, &disk, 2048 * 512, 1024 * 512).await;
    assert_eq!((count(&rig, UNMAP), count(&rig, GET_LBA_STATUS)), (1, 1));
    assert!(count(&rig, WRITE) > 0);
}

/// A unit that reports one block per response is queried 64 times at most. The state of the other blocks is
/// unknown, so they are written.
#[tokio::test]
async fn a_unit_that_tells_little_is_not_asked_without_end() {
    let (rig, disk) = start(1, |unit| unit.behavior.lba_status_blocks = Some(1)).await;
    zero(&rig, &disk, 0, 1024 * 512).await;
    assert_eq!((count(&rig, UNMAP), count(&rig, GET_LBA_STATUS)), (1, 64));
    assert_eq!(count(&rig, WRITE_SAME), 1);
}

/// LBPRZ is reported in two places. If it is missing in one of them, deallocated blocks may not read as
/// zeros, so zeros are written.
#[tokio::test]
async fn unmap_makes_no_zeros_where_the_unit_does_not_say_so_twice() {
    for (provisioning, capacity) in [(0x80, 0xc0), (0x84, 0x80), (0x84, 0)] {
        let (rig, disk) = start(1, |unit| {
            unit.behavior.provisioning = Some(provisioning);
            unit.behavior.capacity_provisioning = Some(capacity);
        })
        .await;
        zero(&rig, &disk, 0, 1024 * 512).await;
        assert_eq!((count(&rig, UNMAP), count(&rig, WRITE_SAME)), (0, 1));
    }
}

#[tokio::test]
async fn a_unit_that_refuses_its_unmap_gets_zeros() {
    let (rig, disk) = start(1, |_| {}).await;
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::INVALID_FIELD)));
    zero(&rig, &disk, 0, 1024 * 512).await;
    assert_eq!((count(&rig, GET_LBA_STATUS), count(&rig, WRITE_SAME)), (0, 1));
    // Any other error is returned.
    rig.server.with(|target| {
        let fault = Fault::sense(.., Sense::WRITE_ERROR).on_access(Access::Unmap);
        target.config_mut().faults.push(fault);
    });
    let error = soon(disk.write_zeroes(0, 4096)).await.unwrap_err();
    assert_eq!((error.command(), error.sense().is_some()), (Some("UNMAP"), true), "{error}");
}

/// A reset may undo an UNMAP that was not flushed. If it happens between the UNMAP and the query of the blocks'
/// state, the zeros are written.
#[tokio::test]
async fn a_reset_before_the_question_costs_a_write() {
    let (rig, disk) = start(1, |_| {}).await;
    rig.disk.set_cache(Cache::Volatile);
    rig.server.with(|target| target.hold());
    let zeroing = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_zeroes(0, 1024 * 512).await }
    });
    until(|| rig.disk.mapped_blocks() < BLOCKS).await;
    rig.disk.lose_power();
    assert_eq!(rig.disk.mapped_blocks(), BLOCKS);
    rig.server.with(|target| target.release());
    soon(zeroing).await.unwrap().unwrap();
    assert!(rig.disk.holds(0, &[0; 1024 * 512]));
    assert_eq!(count(&rig, WRITE_SAME), 1);
}

/// A reset after the query may undo the UNMAP, which no flush has covered. The next flush reports the loss.
#[tokio::test]
async fn a_reset_after_the_question_is_a_loss() {
    let (rig, disk) = start(1, |_| {}).await;
    rig.disk.set_cache(Cache::Volatile);
    zero(&rig, &disk, 0, 1024 * 512).await;
    rig.disk.lose_power();
    let error = soon(disk.flush()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnflushedWritesLost, "{error}");
}

/// The session that carried the UNMAP is lost before the query. The range still becomes zero, and blocks that
/// the UNMAP has deallocated stay deallocated.
#[tokio::test]
async fn a_lost_session_changes_nothing() {
    let (rig, disk) = start(3, |unit| unit.behavior.kept_by_unmap = 100..300).await;
    rig.server.with(|target| {
        let fault = Fault::drop_connection(..).on_access(Access::Unmap).times(1);
        target.config_mut().faults.push(fault);
    });
    zero(&rig, &disk, 1000, 1024 * 512).await;
    assert_eq!(rig.disk.mapped_blocks(), BLOCKS - 1023 + 200);
}

/// The range is locked from the UNMAP to the last zeros, so a concurrent write is executed after the zeros.
#[tokio::test]
async fn a_write_to_the_range_waits_for_all_of_it() {
    let (rig, disk) = start(2, |unit| unit.behavior.kept_by_unmap = 0..u64::MAX).await;
    rig.server.with(|target| target.hold());
    let zeroing = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_zeroes(0, 1024 * 512).await }
    });
    until(|| count(&rig, UNMAP) == 1).await;
    let data = pattern(4096, 7);
    let writing = tokio::spawn({
        let (disk, data) = (disk.clone(), data.clone());
        async move { disk.write_at(8192, data).await }
    });
    while !zeroing.is_finished() {
        rig.server.with(|target| {
            target.release();
            target.hold();
        });
        tokio::task::yield_now().await;
    }
    rig.server.with(|target| target.release());
    soon(zeroing).await.unwrap().unwrap();
    soon(writing).await.unwrap().unwrap();
    assert!(rig.disk.holds(0, &[0; 8192]) && rig.disk.holds(8192, &data));
    assert!(rig.disk.holds(8192 + 4096, &[0; 1024 * 512 - 8192 - 4096]));
}

#[tokio::test]
async fn a_unit_that_has_become_smaller_is_told_of() {
    let (rig, disk) = start(1, |_| {}).await;
    rig.disk.resize(BLOCKS as u64 / 2);
    let error = soon(disk.write_zeroes(0, disk.capacity())).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::AskForLess), "{error}");
}
