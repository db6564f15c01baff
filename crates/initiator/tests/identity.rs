//! One unit behind several disks, and a unit that becomes another one under a disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;

use iscsi_initiator::scsi::Lun;
use iscsi_initiator::{Disk, Initiator, Options, Sessions};
use iscsi_testkit::scsi::Unit;
use support::{Rig, initiator, soon};

const BLOCKS: u64 = 4096;
const SERIAL_NUMBER: u8 = 0x80;
const IDENTIFICATION: u8 = 0x83;

fn fixed(count: u32) -> Options {
    let mut options = Options::default();
    options.sessions = Sessions::Fixed(count);
    options
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

/// Halves of a block, written at once over two disks.
async fn assert_no_write_is_undone(rig: &Rig, one: &Disk, other: &Disk) {
    for round in 0..100u8 {
        let half = || vec![round + 1; 256];
        let writes = async { tokio::join!(one.write_at(0, half()), other.write_at(256, half())) };
        let (first, second) = soon(writes).await;
        first.and(second).unwrap();
        assert!(rig.disk.holds(0, &[round + 1; 512]), "an acknowledged write was undone");
    }
}

/// Reading a block and writing it back is kept apart from writes of all disks of an initiator, however
/// they came about.
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
        assert_no_write_is_undone(&rig, &first, &soon(session.disk()).await.unwrap()).await;
        let unit = session.logical_unit(Lun::ZERO);
        assert_no_write_is_undone(&rig, &second, &soon(unit.disk()).await.unwrap()).await;
        rig.assert_clean();
    }
}
