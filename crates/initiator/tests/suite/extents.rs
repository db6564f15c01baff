//! Tests of the extents of a disk that hold data, as the test target reports them, and of the disk as a
//! device of bytes.

use std::sync::Arc;

use crate::support::{Rig, initiator, pattern, soon};
use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::{Device, Extent, ExtentState};
use iscsi_initiator::{Disk, Error, ErrorKind, Options, Sessions};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::{Sense, Unit, status};
use iscsi_testkit::target::{ConnId, Outcome};

const BLOCKS: u64 = 4096;
const CAPACITY: u64 = BLOCKS * 512;
const GET_LBA_STATUS: [u8; 2] = [0x9e, 0x12];

/// Starts a unit whose blocks 2 to 9 and 100 to 101 hold data.
async fn start(change: impl FnMut(&mut Unit)) -> (Rig, Disk) {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.keys.default_time2wait = 0;
        config.units.values_mut().for_each(change);
    })
    .await;
    rig.disk.write(1024, &pattern(4096, 1));
    rig.disk.write(51_200, &pattern(1024, 2));
    let options = Options::default().with_sessions(Sessions::Fixed(1));
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    (rig, disk)
}

/// Returns all extents of a range. Each query continues where the result of the previous one has ended.
async fn extents(disk: &Disk, offset: u64, len: u64) -> Vec<Extent> {
    let (mut at, mut all) = (offset, Vec::<Extent>::new());
    while at < offset + len {
        for extent in soon(disk.extents(at, offset + len - at)).await.unwrap() {
            assert_eq!(extent.offset, at);
            at = extent.end();
            match all.last_mut() {
                Some(last) if last.state == extent.state => last.len += extent.len,
                _ => all.push(extent),
            }
        }
    }
    all
}

/// Returns the extents that begin at these offsets. The last one ends at `end`.
fn row(starts: &[(u64, ExtentState)], end: u64) -> Vec<Extent> {
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([end]);
    starts.iter().zip(ends).map(|((at, state), end)| Extent::new(*at, end - at, *state)).collect()
}

/// Returns how often the extents of the unit were queried.
fn questions(rig: &Rig) -> usize {
    rig.server.with(|target| {
        let is_one = |cdb: &[u8]| cdb[0] == GET_LBA_STATUS[0] && cdb[1] == GET_LBA_STATUS[1];
        target.commands().iter().filter(|command| is_one(&command.cdb)).count()
    })
}

/// SBC-3 §5.3: a unit decides how many blocks it reports in one response. This unit reports a single run of
/// blocks. The extents still cover the whole range.
#[tokio::test]
async fn extents_cover_the_range_without_a_gap() {
    use ExtentState::{Data, Deallocated};
    let (rig, disk) = start(|_| {}).await;
    let all = [
        (0, Deallocated),
        (1024, Data),
        (5120, Deallocated),
        (51_200, Data),
        (52_224, Deallocated),
    ];
    assert_eq!(extents(&disk, 0, CAPACITY).await, row(&all, CAPACITY));
    assert_eq!(questions(&rig), 5);
    // The range begins and ends within blocks.
    let part = [(5000, Data), (5120, Deallocated), (51_200, Data)];
    assert_eq!(extents(&disk, 5000, 46_201).await, row(&part, 51_201));
    assert_eq!(extents(&disk, 1025, 3).await, row(&[(1025, Data)], 1028));
    assert_eq!(
        extents(&disk, CAPACITY - 1, 1).await,
        row(&[(CAPACITY - 1, Deallocated)], CAPACITY)
    );
    assert_eq!(questions(&rig), 5 + 3 + 1 + 1);
    assert!(extents(&disk, 700, 0).await.is_empty());
    assert!(extents(&disk, CAPACITY, 0).await.is_empty());
    assert_eq!(
        disk.extents(1, CAPACITY).await.as_ref().err().map(Error::kind),
        Some(ErrorKind::InvalidInput)
    );
    assert_eq!(questions(&rig), 10);
    // The result includes blocks that were written or deallocated since.
    soon(disk.write_at(0, pattern(512, 3))).await.unwrap();
    soon(disk.discard(1024, 4096)).await.unwrap();
    assert_eq!(extents(&disk, 0, 2048).await, row(&[(0, Data), (512, Deallocated)], 2048));
    rig.assert_clean();
}

/// SBC-3: only LBPRZ says what deallocated blocks read as. It is reported in two places, which must agree.
#[tokio::test]
async fn holes_are_zeros_only_where_the_unit_says_so_twice() {
    use ExtentState::{Data, Unknown};
    for (provisioning, capacity) in [(0xe0, 0xc0), (0xe4, 0x80)] {
        let (_rig, disk) = start(|unit| {
            unit.behavior.provisioning = Some(provisioning);
            unit.behavior.capacity_provisioning = Some(capacity);
        })
        .await;
        let all = [(0, Unknown), (1024, Data), (5120, Unknown), (51_200, Data), (52_224, Unknown)];
        assert_eq!(extents(&disk, 0, CAPACITY).await, row(&all, CAPACITY));
    }
}

#[tokio::test]
async fn a_unit_that_does_not_tell_holds_data_everywhere() {
    let all_data = row(&[(0, ExtentState::Data)], CAPACITY);
    // The unit reports that it is fully provisioned, so it is not queried.
    let (rig, disk) = start(|unit| unit.behavior.capacity_provisioning = Some(0)).await;
    assert_eq!(extents(&disk, 0, CAPACITY).await, all_data);
    assert_eq!(questions(&rig), 0);
    // The unit does not support the command, or a field of it.
    for sense in [Sense::INVALID_OPCODE, Sense::INVALID_FIELD] {
        let (rig, disk) = start(|_| {}).await;
        rig.server.with(|target| target.end_next_with(Outcome::check(sense)));
        for _ in 0..10 {
            assert_eq!(extents(&disk, 0, CAPACITY).await, all_data);
        }
        assert_eq!(questions(&rig), 1, "it is asked once");
    }
    // An error for a block beyond the end of a shrunk unit counts for that query only.
    let (rig, disk) = start(|_| {}).await;
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::OUT_OF_RANGE)));
    assert_eq!(extents(&disk, 0, CAPACITY).await, all_data);
    assert_ne!(extents(&disk, 0, CAPACITY).await, all_data);
}

/// One result of `Disk::extents` has a limited number of extents, and costs one query of the unit.
#[tokio::test]
async fn one_answer_of_the_unit_is_one_answer_of_the_disk() {
    use ExtentState::{Data, Deallocated};
    let (rig, disk) = start(|_| {}).await;
    // Every second block from block 200 on.
    (201..BLOCKS).step_by(2).for_each(|lba| rig.disk.write(lba * 512, &pattern(512, 1)));
    for runs in [None, Some(1), Some(7), Some(usize::MAX)] {
        rig.server.with(|target| {
            let unit = target.config_mut().units.values_mut().next().unwrap();
            unit.behavior.lba_status_runs = runs;
        });
        let asked = questions(&rig);
        let told = soon(disk.extents(200 * 512, CAPACITY - 200 * 512)).await.unwrap();
        assert_eq!(questions(&rig), asked + 1);
        // The result has room for 2047 extents.
        assert_eq!(told.len(), runs.unwrap_or(1).min(2047));
        assert!(told.len() <= Extent::MAX_REPORTED);
    }
    // If a unit reports one block per response, all in one state, the disk still sends one query for one
    // result.
    rig.server.with(|target| {
        let unit = target.config_mut().units.values_mut().next().unwrap();
        (unit.behavior.lba_status_runs, unit.behavior.lba_status_blocks) = (None, Some(1));
    });
    let asked = questions(&rig);
    let told = soon(disk.extents(51_200 + 1024, 4096)).await.unwrap();
    assert_eq!(told, row(&[(52_224, Deallocated)], 52_736));
    assert_eq!(questions(&rig), asked + 1);
    // A caller that needs one extent requests only one.
    rig.server.with(|target| {
        let unit = target.config_mut().units.values_mut().next().unwrap();
        (unit.behavior.lba_status_runs, unit.behavior.lba_status_blocks) = (Some(usize::MAX), None);
    });
    let told = soon(disk.first_extent(0, CAPACITY)).await.unwrap();
    assert_eq!(told, Some(Extent::new(0, 1024, Deallocated)));
    let told = soon(disk.first_extent(1100, 10)).await.unwrap();
    assert_eq!(told, Some(Extent::new(1100, 10, Data)));
    assert_eq!(soon(disk.first_extent(1100, 0)).await.unwrap(), None);
    let room = rig.server.with(|target| {
        let last = target.commands().iter().rfind(|command| command.cdb[..2] == GET_LBA_STATUS);
        last.unwrap().cdb[10..14].to_vec()
    });
    assert_eq!(room, [0, 0, 0, 24]);
    rig.assert_clean();
}

/// A unit that always reports the blocks from 0 on, whichever were requested, is not trusted: all blocks
/// count as data.
#[tokio::test]
async fn a_unit_that_contradicts_itself_holds_data_everywhere() {
    let (rig, disk) = start(|_| {}).await;
    let mut answer = vec![0; 24];
    (answer[3], answer[19], answer[20]) = (20, 2, 1);
    let lie = |nth| Fault::sending(Opcode::DataIn, nth, Effect::SetData(answer.clone().into()));
    rig.server.with(|target| target.config_mut().faults.extend((0..100).map(lie)));
    assert_eq!(extents(&disk, 0, 1024).await, row(&[(0, ExtentState::Deallocated)], 1024));
    assert_eq!(questions(&rig), 1);
    assert_eq!(extents(&disk, 1024, 512).await, row(&[(1024, ExtentState::Data)], 1536));
    assert_eq!(questions(&rig), 2);
    // Later responses of the unit are not trusted, so it is not queried again.
    assert_eq!(extents(&disk, 0, 1536).await, row(&[(0, ExtentState::Data)], 1536));
    assert_eq!(questions(&rig), 2);
}

/// A query of extents is handled like a read: it is retried, and a lost session is replaced.
#[tokio::test]
async fn the_question_is_asked_again_where_a_read_would_be() {
    let (rig, disk) = start(|_| {}).await;
    let all = extents(&disk, 0, CAPACITY).await;
    rig.server.with(|target| {
        target.end_next_with(Outcome::status(status::BUSY));
        target.end_next_with(Outcome::check(Sense::RESET));
    });
    assert_eq!(extents(&disk, 0, CAPACITY).await, all);
    assert!(disk.retries() > 0);
    rig.server.with(|target| target.drop_connection(ConnId(0)));
    assert_eq!(extents(&disk, 0, CAPACITY).await, all);
    // An error is returned as an error, not as a hole.
    let medium_error = Sense::new(3, 0x11, 0);
    rig.server.with(|target| target.end_next_with(Outcome::check(medium_error)));
    assert!(
        soon(disk.extents(0, CAPACITY)).await.as_ref().is_err_and(|error| error.sense().is_some())
    );
}

#[tokio::test]
async fn a_disk_is_a_device_of_bytes() {
    let (rig, disk) = start(|unit| unit.physical_block_exponent = 3).await;
    let device: Arc<dyn Device> = Arc::new(disk.clone());
    let limits = device.limits();
    assert_eq!((device.capacity(), limits.block_size), (CAPACITY, 512));
    assert_eq!(limits.preferred_alignment, 4096);
    assert_eq!(limits.max_transfer, disk.max_transfer());
    assert!((1..=limits.max_transfer).contains(&limits.preferred_transfer));
    assert_eq!(limits.discard_granularity, Some(512));
    assert!(limits.has_fast_zeroes && limits.has_volatile_cache && !limits.is_read_only);
    assert_eq!(device.queue_depth(4096), disk.queue_depth(4096));
    assert_eq!(device.read_depth(4096), disk.read_depth(4096));

    let pages = vec![Bytes::from(pattern(700, 4)), Bytes::from(pattern(300, 5))];
    soon(device.write_at(10, pages.clone())).await.unwrap();
    assert!(rig.disk.holds(10, &pages.concat()));
    assert_eq!(soon(device.read_at(10, 1000)).await.unwrap(), pages.concat());
    assert_eq!(soon(device.read_into(10, BytesMut::zeroed(700))).await.unwrap(), pages[0]);
    soon(device.write_zeroes(10, 100)).await.unwrap();
    assert!(rig.disk.holds(10, &[0; 100]) && rig.disk.holds(110, &pages.concat()[100..]));
    soon(device.discard(512, 512)).await.unwrap();
    assert_eq!(soon(device.extents(512, 512)).await.unwrap()[0].state, ExtentState::Deallocated);
    soon(device.flush()).await.unwrap();
    assert_eq!(rig.disk.flushes(), 1);
    let error = soon(device.read_at(CAPACITY, 1)).await.unwrap_err();
    let inner = error.source_as::<Error>();
    assert_eq!(inner.map(Error::kind), Some(ErrorKind::InvalidInput));
    rig.assert_clean();
}

#[tokio::test]
async fn what_a_unit_lacks_shows_in_the_limits() {
    let (rig, _) = start(|unit| unit.thin = false).await;
    rig.disk.set_read_only(true);
    let disk = soon(initiator(Options::default()).disk(rig.unit_url(0, ""))).await.unwrap();
    let limits = disk.limits();
    assert_eq!(limits.discard_granularity, None);
    assert!(limits.is_read_only && !limits.has_fast_zeroes);
    let device: &dyn Device = &disk;
    let error = soon(device.write_at(0, vec![Bytes::from_static(&[0; 512])])).await.unwrap_err();
    let inner = error.source_as::<Error>();
    assert_eq!(inner.map(Error::kind), Some(ErrorKind::WriteProtected));
}
