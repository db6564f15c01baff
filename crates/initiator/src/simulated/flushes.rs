//! Tests of flushes that take long.

use std::pin::Pin;

use iscsi_shaper::Class;
use iscsi_testkit::disk::Cache;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::{Access, Sense};
use iscsi_testkit::target::Outcome;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::{Error, ErrorKind, Shaper};

const LEN: usize = 4096;
/// Longer than a short flush: such a flush gets the path to itself.
const SLOW: Duration = Duration::from_secs(1);
/// Longer than the time limit of a flush.
const VERY_SLOW: Duration = Duration::from_secs(1000);
/// Longer than the whole test takes in virtual time.
const LONG: Duration = Duration::from_secs(60);

/// Opens a disk with one session and a budget of two requests, whose flushes the fault makes slow. Returns the
/// disk and its target.
async fn slow_disk(slow: Fault) -> (Disk, Arc<Mutex<Target>>) {
    let slow = slow.on_access(Access::SynchronizeCache);
    let options = Options::default().with_max_requests(2);
    cached_disk(&cached_unit(), [slow], options, ROUND_TRIP).await
}

fn cached_unit() -> RamDisk {
    let unit = RamDisk::new(512, 8192);
    unit.set_cache(Cache::Volatile);
    unit
}

/// Opens a disk with one session, whose unit has these faults. Returns the disk and its target.
async fn cached_disk(
    unit: &RamDisk,
    faults: impl IntoIterator<Item = Fault>,
    options: Options,
    round_trip: Duration,
) -> (Disk, Arc<Mutex<Target>>) {
    let mut config = TargetConfig::new(TARGET, unit.clone());
    config.faults.extend(faults);
    let target = Arc::new(Mutex::new(Target::new(config)));
    let mut properties = Properties::default();
    properties.latency = round_trip / 2;
    let network = Simulated::new([Arc::clone(&target)], properties);
    let options = options.with_sessions(Sessions::Fixed(1));
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let node = Node::over(Arc::new(network), name, options.with_use_environment(false)).unwrap();
    let url = Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0")).unwrap();
    (open::open(&node, url).await.unwrap(), target)
}

/// A flush that holds the only path must not wait for the budget, because writes that hold the whole budget wait
/// for the path.
#[tokio::test(start_paused = true)]
async fn a_slow_flush_ends_also_where_writes_have_all_of_the_budget() {
    let (disk, _) = slow_disk(Fault::delay(.., SLOW)).await;
    let page = Bytes::from_static(&[7; LEN]);
    disk.write_at(0, page.clone()).await.unwrap();
    disk.flush().await.unwrap();
    // After this write the next flush has data to flush, and is expected to take as long as the first flush.
    disk.write_at(0, page.clone()).await.unwrap();
    let mut requests = JoinSet::new();
    for at in 0..6 {
        let (writer, page) = (disk.clone(), page.clone());
        requests.spawn(async move { writer.write_at(at * LEN as u64, page).await });
        if at == 1 {
            // Two writes are in flight; the other requests queue behind the flush.
            tokio::task::yield_now().await;
            let flusher = disk.clone();
            requests.spawn(async move { flusher.flush().await });
        }
    }
    let all = timeout(LONG, requests.join_all()).await.expect("nothing waits for ever");
    all.into_iter().for_each(|ended| ended.unwrap());
}

/// With TAS of zero, another initiator's reset ends a flush without a status. The flush is the only command, so
/// the initiator must send another command. At the end of that command, the unit reports the reset.
#[tokio::test(start_paused = true)]
async fn a_flush_that_another_initiator_has_cleared_does_not_wait_for_its_time_limit() {
    let (disk, target) = slow_disk(Fault::delay(.., VERY_SLOW).times(1)).await;
    disk.write_at(0, Bytes::from_static(&[7; LEN])).await.unwrap();
    let flusher = disk.clone();
    let flush = tokio::spawn(async move { flusher.flush().await });
    tokio::time::sleep(SLOW).await;
    target.lock().unwrap().reset_by_another(0);
    let ended = timeout(2 * LONG, flush).await.expect("well before ten minutes").unwrap();
    assert_eq!(
        ended.as_ref().err().map(Error::kind),
        Some(ErrorKind::UnflushedWritesLost),
        "{ended:?}"
    );
}

/// Length of a long write, in bytes. In a traffic class of a megabyte per second, the parts of the write are
/// sent one after the other.
const LONG_WRITE: usize = 2 << 20;

/// The first parts of a write are lost while the write is in flight, and a flush of the same handle reports the
/// loss. When the write has returned and the next flush has succeeded, all data of the write must be on the
/// medium.
#[tokio::test(start_paused = true)]
async fn a_write_that_returns_after_a_loss_was_reported_is_not_lost() {
    for offset in [0, 100] {
        let shaper = Shaper::new(Class::new("8mbit".parse().unwrap())).unwrap();
        let class = shaper.traffic_class(shaper.default_class());
        let unit = cached_unit();
        let options = Options::default().with_class(Some(class));
        let (disk, target) = cached_disk(&unit, [], options, Duration::from_millis(2)).await;
        let disk = Arc::new(disk);
        // After this flush the disk expects the next one to be short.
        disk.write_at(0, Bytes::from(vec![1; LONG_WRITE])).await.unwrap();
        disk.flush().await.unwrap();
        let writer = Arc::clone(&disk);
        let write =
            tokio::spawn(
                async move { writer.write_at(offset, Bytes::from(vec![2; LONG_WRITE])).await },
            );
        tokio::time::sleep(Duration::from_millis(250)).await;
        unit.lose_power();
        lock(&target).end_next_with(Outcome::check(Sense::RESET));
        let reported = disk.flush().await;
        let kind = reported.as_ref().err().map(Error::kind);
        assert_eq!(kind, Some(ErrorKind::UnflushedWritesLost), "{reported:?}");
        assert!(!write.is_finished());
        write.await.unwrap().unwrap();
        disk.flush().await.unwrap();
        unit.lose_power();
        let read = disk.read_at(offset, LONG_WRITE).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 2), "what has returned and was flushed is lost");
    }
}

/// Future of a change of the first blocks: by the disk, or by its logical unit over one session.
type Change<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// The unit has executed a change, and its caller has not polled for the response yet. Then a flush of the same
/// handle reports a loss. The change must survive that loss.
#[tokio::test(start_paused = true)]
async fn a_change_whose_caller_looks_after_a_loss_was_reported_is_not_lost() {
    const ZEROS: Bytes = Bytes::from_static(&[0; LEN]);
    let kinds: [fn(&Disk) -> Change<'_>; 4] = [
        |disk| Box::pin(disk.write_at(0, ZEROS)),
        |disk| Box::pin(disk.write_zeroes(0, LEN as u64)),
        |disk| Box::pin(disk.write_allocated_zeroes(0, LEN as u64)),
        |disk| Box::pin(disk.discard(0, LEN as u64)),
    ];
    for (kind, change) in kinds.into_iter().enumerate() {
        let medium = RamDisk::holding(512, &[1; 1 << 20]);
        medium.set_cache(Cache::Volatile);
        let (disk, target) = cached_disk(&medium, [], Options::default(), ROUND_TRIP).await;
        let flush = || disk.flush();
        outlives_a_loss(kind, (&medium, &target), &disk, change(&disk), flush).await;
    }
    let medium = RamDisk::holding(512, &[1; 1 << 20]);
    medium.set_cache(Cache::Volatile);
    let (disk, target) = cached_disk(&medium, [], Options::default(), ROUND_TRIP).await;
    let unit = disk.unit();
    let change = Box::pin(unit.write(0, ZEROS));
    outlives_a_loss(4, (&medium, &target), &disk, change, || unit.flush()).await;
}

/// Checks that the zeros that `change` writes are on the medium in the end, although a flush reports a loss
/// before the caller of `change` polls for its response.
async fn outlives_a_loss<F: Future<Output = Result<(), Error>>>(
    kind: usize,
    (medium, target): (&RamDisk, &Mutex<Target>),
    disk: &Disk,
    mut change: Change<'_>,
    flush: impl Fn() -> F,
) {
    // The unit executes the change, and its caller does not poll for the response.
    _ = timeout(Duration::ZERO, &mut change).await.unwrap_err();
    tokio::time::sleep(SLOW).await;
    medium.lose_power();
    lock(target).end_next_with(Outcome::check(Sense::RESET));
    let reported = flush().await;
    let error = reported.as_ref().err().map(Error::kind);
    assert_eq!(error, Some(ErrorKind::UnflushedWritesLost), "{kind}: {reported:?}");
    change.await.unwrap();
    flush().await.unwrap();
    medium.lose_power();
    let read = disk.read_at(0, LEN).await.unwrap();
    assert!(
        read.iter().all(|byte| *byte == 0),
        "{kind}: what has returned and was flushed is lost"
    );
}
