//! Tests with logical units of the test target.

use std::sync::Arc;

use iscsi_copy::{CopyJob, CopyOptions, Destination, Device, Identity, Source};
use iscsi_initiator::{Disk, Initiator};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::scsi::Unit;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

const TARGET: &str = "iqn.2026-01.org.example:disk";
const BLOCKS: u64 = 16 << 10;
const LEN: u64 = BLOCKS * 512;

/// A target whose checker runs when this is dropped: the target tolerates some protocol errors that only the
/// checker reports.
struct Watched(Server);

impl Drop for Watched {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let violations = self.0.with(|target| target.violations().to_vec());
            assert!(violations.is_empty(), "{violations:#?}");
        }
    }
}

async fn unit(disk: &RamDisk, is_thin: bool) -> (Watched, Disk) {
    changed_unit(disk, |unit| unit.thin = is_thin).await
}

async fn changed_unit(disk: &RamDisk, change: impl FnMut(&mut Unit)) -> (Watched, Disk) {
    let mut config = TargetConfig::new(TARGET, disk.clone());
    config.units.values_mut().for_each(change);
    let server = Server::start(Target::new(config)).await.unwrap();
    let options = iscsi_initiator::Options::default().with_use_environment(false);
    let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap();
    let url = format!("iscsi://{}/{TARGET}/0", server.address());
    let disk = initiator.disk(url.as_str()).await.unwrap();
    (Watched(server), disk)
}

/// Returns a disk with 64 KiB of data at its beginning and before its end, and zeros between.
fn sparse() -> RamDisk {
    let disk = RamDisk::new(512, BLOCKS);
    disk.write(0, &[1; 64 << 10]);
    disk.write(LEN - (128 << 10), &[2; 64 << 10]);
    disk
}

#[tokio::test]
async fn a_thin_unit_gives_and_gets_its_holes() {
    let (from, to) = (sparse(), RamDisk::new(512, BLOCKS));
    let ((_one, source), (_two, destination)) = (unit(&from, true).await, unit(&to, true).await);
    let copy = CopyJob::new(Source::device(source), Destination::device(destination));
    let progress = copy.run().await.unwrap().progress;
    assert_eq!(from.first_difference(&to), None);
    assert_eq!((progress.read, progress.written), (128 << 10, 128 << 10));
    assert_eq!((progress.skipped, progress.zeroed), (LEN - (128 << 10), 0));
}

#[tokio::test]
async fn a_thin_unit_gives_back_what_becomes_a_hole() {
    let (from, to) = (sparse(), RamDisk::new(512, BLOCKS));
    to.fill(7);
    let ((_one, source), (_two, destination)) = (unit(&from, false).await, unit(&to, true).await);
    let copy = CopyJob::new(Source::device(source), Destination::device(destination));
    let progress = copy.run().await.unwrap().progress;
    assert_eq!(from.first_difference(&to), None);
    assert_eq!((progress.read, progress.written), (LEN, 128 << 10));
    assert_eq!(progress.zeroed, LEN - (128 << 10));
}

/// A unit that frees blocks only by UNMAP (LBPU without LBPWS), in granules of 64 KiB. After the copy, only
/// the blocks with data are allocated, even if all blocks were allocated before, and only the data was sent.
#[tokio::test]
async fn thin_stays_thin_by_unmap_alone() {
    const DATA: usize = (128 << 10) / 512;
    for is_full in [false, true] {
        let (from, to) = (sparse(), RamDisk::new(512, BLOCKS));
        if is_full {
            to.fill(7);
        }
        let change = |unit: &mut Unit| {
            unit.behavior.provisioning = Some(0x84);
            unit.behavior.unmap_granularity = Some((128, 0));
        };
        let ((_one, source), (_two, destination)) =
            (unit(&from, true).await, changed_unit(&to, change).await);
        let copy = CopyJob::new(Source::device(source), Destination::device(destination));
        let progress = copy.run().await.unwrap().progress;
        assert_eq!(from.first_difference(&to), None);
        assert_eq!((progress.written, to.mapped_blocks()), (128 << 10, DATA));
    }
}

#[tokio::test]
async fn a_cache_that_is_lost_costs_what_was_not_flushed() {
    let (from, to) = (RamDisk::new(512, BLOCKS), RamDisk::new(512, BLOCKS));
    from.fill(3);
    to.set_cache(Cache::Volatile);
    let ((_one, source), (_two, destination)) = (unit(&from, false).await, unit(&to, false).await);
    let options = CopyOptions::default().with_io_size(4096).with_flush_bytes(1 << 20);
    let copy = CopyJob::new(Source::device(source), Destination::device(destination));
    let copy = copy.with_options(options);
    let control = copy.control();
    let running = tokio::spawn(copy.run());
    while control.progress().flushed < LEN / 2 {
        tokio::task::yield_now().await;
    }
    to.lose_power();
    let progress = running.await.unwrap().unwrap().progress;
    assert_eq!(from.first_difference(&to), None);
    assert!(progress.lost <= LEN / 2, "{progress:?}");
    to.lose_power();
    assert_eq!(from.first_difference(&to), None, "all of it was flushed");
}

/// The text form of an identity must not change, because checkpoints and digests of earlier runs contain it.
#[tokio::test]
async fn a_unit_is_recognized_by_its_name_however_it_is_held() {
    let (_server, disk) = unit(&sparse(), true).await;
    let expected = format!("logical unit naa.3000000000000001, {LEN} bytes");
    let named = |device: &dyn Device| Identity::of_device(device).unwrap().unwrap().to_string();
    assert_eq!(named(&disk), expected);
    let shared: Arc<dyn Device> = Arc::new(disk);
    assert_eq!(named(&shared), expected);
}
