//! Tests of disks that share a rate.

use std::sync::atomic::{AtomicU64, Ordering};

use iscsi_shaper::{Class, RateLimit};
use tokio::task::JoinSet;

use super::*;
use crate::error::{Advice, Error, ErrorKind};
use crate::scheduler::{Charge, Granting, Scheduler};
use crate::{Disk, Shaper, TrafficClass};

fn network() -> Simulated {
    let mut properties = Properties::default();
    properties.latency = ROUND_TRIP / 2;
    let target = Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 16384)));
    Simulated::new([Arc::new(Mutex::new(target))], properties)
}

async fn open_in(network: &Simulated, class: &TrafficClass) -> Disk {
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let options = Options { use_environment: false, ..Options::default() };
    let options = options.with_class(Some(class.clone()));
    let node = Node::over(Arc::new(network.clone()), name, options).unwrap();
    open::open(&node, Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0")).unwrap()).await.unwrap()
}

/// Creates a shaper of 8 Mbit/s, a megabyte per second.
fn shaper() -> Shaper {
    Shaper::new(Class::new("8mbit".parse().unwrap())).unwrap()
}

/// Writes pieces of 64 KiB from `offset` on, eight at a time, until `time` is over; returns the number of bytes
/// written.
async fn write_for(disk: &Disk, offset: u64, time: Duration) -> u64 {
    let (begun, mut writers) = (Instant::now(), JoinSet::new());
    for part in 0..8 {
        let disk = disk.clone();
        writers.spawn(async move {
            let data = Bytes::from(vec![1; 64 << 10]);
            let mut sent = 0;
            while begun.elapsed() < time {
                disk.write_at(offset + (part << 16), data.clone()).await.unwrap();
                sent += data.len() as u64;
            }
            sent
        });
    }
    writers.join_all().await.iter().sum()
}

/// A query of extents takes from its traffic class the bytes of its response: here one run of blocks, although
/// the buffer has room for thousands.
#[tokio::test(start_paused = true)]
async fn a_question_pays_for_what_its_answer_brings() {
    let shaper = shaper();
    let class = shaper.traffic_class(shaper.default_class());
    let mut config = TargetConfig::new(TARGET, RamDisk::new(512, 16384));
    config.units.get_mut(&0).unwrap().thin = true;
    let target = Simulated::new([Arc::new(Mutex::new(Target::new(config)))], Properties::default());
    let disk = open_in(&target, &class).await;
    disk.extents(0, 16384 * 512).await.unwrap();
    let sent = shaper.statistics(shaper.default_class()).unwrap().sent;
    assert_eq!((sent.requests, sent.bytes), (1, 8 + 16));
}

#[tokio::test(start_paused = true)]
async fn a_disk_reads_and_writes_at_the_rate_of_its_class() {
    let shaper = shaper();
    let class = shaper.traffic_class(shaper.default_class());
    let disk = open_in(&network(), &class).await;
    assert_eq!(disk.queue_depth(1 << 20), 2, "what would wait is not asked for");
    let data = Bytes::from(vec![0x5a; 2_000_000]);
    // Two seconds, less the burst, plus the time of a response.
    let expected = Duration::from_millis(1900)..Duration::from_millis(2300);
    let begun = Instant::now();
    disk.write_at(0, data.clone()).await.unwrap();
    assert!(expected.contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(disk.read_at(0, data.len()).await.unwrap(), data);
    assert!(expected.contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let statistics = shaper.statistics(shaper.default_class()).unwrap();
    // The write ends within a block, which is read first.
    assert_eq!(statistics.sent.bytes, 2 * 2_000_384 + 512);
    let slice = 8_000_000 / 8 / 20;
    assert!(statistics.sent.requests >= 2 * 2_000_384 / slice, "no longer than 50 ms each");

    // The rate changes while a write is in flight.
    let begun = Instant::now();
    let (written, ()) = tokio::join!(disk.write_at(0, data), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        shaper.change(shaper.root(), Class::new(RateLimit::Unlimited)).unwrap();
    });
    written.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(1000), "{:?}", begun.elapsed());
    assert!(disk.queue_depth(1 << 20) > 2);
    disk.logout().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn disks_share_a_rate_by_their_classes_and_lend_each_other_what_they_do_not_need() {
    let (shaper, network) = (shaper(), network());
    let ceil = "8mbit".parse().unwrap();
    let [small, large] = ["2mbit", "6mbit"].map(|rate| {
        let class = Class::new(rate.parse().unwrap()).with_ceil(ceil);
        shaper.add(shaper.root(), class).unwrap()
    });
    let [first, second] = [small, large].map(|id| shaper.traffic_class(id));
    let disks = [open_in(&network, &first).await, open_in(&network, &second).await];
    let time = Duration::from_secs(20);
    let (few, many) =
        tokio::join!(write_for(&disks[0], 0, time), write_for(&disks[1], 4 << 20, time));
    let (few, many) = (few as f64 / 20e6, many as f64 / 20e6);
    assert!((0.24..0.28).contains(&few) && (0.73..0.80).contains(&many), "{few} {many}");
    let alone = write_for(&disks[0], 0, time).await as f64 / 20e6;
    assert!((0.97..1.05).contains(&alone), "{alone}");
    let lent = shaper.statistics(shaper.root()).unwrap().lent;
    assert_eq!(
        lent.bytes,
        shaper.statistics(small).unwrap().borrowed.bytes + {
            shaper.statistics(large).unwrap().borrowed.bytes
        }
    );
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_its_class_ends_with_the_disk() {
    let shaper = Shaper::new(Class::new("1kbit".parse().unwrap())).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    let disk = open_in(&network(), &class).await;
    let write = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, vec![Bytes::from(vec![1; 1 << 20])]).await }
    });
    tokio::time::sleep(ROUND_TRIP * 3).await;
    let begun = Instant::now();
    disk.logout().await.unwrap();
    assert!(begun.elapsed() < ROUND_TRIP * 3);
    assert_eq!(write.await.unwrap().as_ref().err().map(Error::kind), Some(ErrorKind::Closed));
    assert_eq!(shaper.statistics(shaper.default_class()).unwrap().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_a_class_ends_when_that_is_closed_and_a_flush_goes_out() {
    let shaper = Shaper::new(Class::new("1kbit".parse().unwrap())).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    let disk = open_in(&network(), &class).await;
    disk.write_at(0, Bytes::from(vec![1; 4096])).await.unwrap();
    let waiting = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(4096, Bytes::from(vec![2; 4096])).await }
    });
    tokio::time::sleep(ROUND_TRIP * 3).await;
    let begun = Instant::now();
    class.close();
    assert_eq!(
        waiting.await.unwrap().as_ref().err().and_then(Error::advice),
        Some(Advice::UseOtherClass)
    );
    assert_eq!(
        disk.read_at(0, 4096).await.as_ref().err().and_then(Error::advice),
        Some(Advice::UseOtherClass)
    );
    disk.flush().await.unwrap();
    assert!(begun.elapsed() <= ROUND_TRIP * 2);
    disk.logout().await.unwrap();
}

/// A scheduler that lets every request pass, and counts the requests.
#[derive(Debug, Default)]
struct Counter(Arc<AtomicU64>);

impl Scheduler for Counter {
    fn grant(&self, bytes: u64) -> Granting<'_> {
        let moved = Arc::clone(&self.0);
        let settle = move |bytes| _ = moved.fetch_add(bytes, Ordering::Relaxed);
        Box::pin(async move { Charge::new(bytes, settle) })
    }

    fn ceil(&self) -> RateLimit {
        "8mbit".parse().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_may_be_of_a_scheduler_of_the_callers() {
    let counter = Counter::default();
    let moved = Arc::clone(&counter.0);
    let disk = open_in(&network(), &TrafficClass::new(Arc::new(counter))).await;
    assert_eq!(disk.queue_depth(1 << 20), 2, "its ceil counts");
    disk.write_at(0, Bytes::from(vec![1; 1 << 20])).await.unwrap();
    disk.read_at(0, 4096).await.unwrap();
    assert_eq!(moved.load(Ordering::Relaxed), (1 << 20) + 4096);
    disk.logout().await.unwrap();
}
