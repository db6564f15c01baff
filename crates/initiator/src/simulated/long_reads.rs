//! Tests of the cost of a long read: turns of the event loop, and memory.

use std::pin::pin;

use tokio::time::timeout;

use super::*;

const LEN: usize = 256 << 10;

struct Rig {
    network: Simulated,
    disk: Disk,
}

impl Rig {
    /// Opens a disk over a link of `rate` bytes per second, with segments of Ethernet's length.
    async fn start(rate: u64) -> Self {
        Self::at(ROUND_TRIP / 2, rate).await
    }

    /// Opens a disk over a link of this latency and of `rate` bytes per second, with segments of Ethernet's
    /// length.
    async fn at(latency: Duration, rate: u64) -> Self {
        let mut properties = Properties::default();
        (properties.latency, properties.rate) = (latency, Some(rate));
        properties.segment = Some(1448);
        let (network, disk) = disk_over(properties).await;
        Self { network, disk }
    }

    fn wire<R>(&self, see: impl FnOnce(&Wire) -> R) -> R {
        super::see(&self.network, |wire| see(wire))
    }
}

/// The 182 segments of a Data-In PDU arrive one after the other, and need fewer than 10 reads.
#[tokio::test(start_paused = true)]
async fn a_long_data_segment_takes_few_turns() {
    let rig = Rig::start(12_500_000).await;
    let before = rig.wire(|wire| wire.reads);
    assert_eq!(rig.disk.read_at(0, LEN).await.unwrap(), vec![0; LEN]);
    let (reads, low_water) = rig.wire(|wire| (wire.reads - before, wire.low_water));
    assert!(reads < 10, "{reads} reads");
    assert_eq!(low_water, 1, "whatever comes next is told of");
}

/// A data segment of 256 KiB is read in several turns: the low-water mark stays at 160 KiB or below.
#[tokio::test(start_paused = true)]
async fn the_beginning_of_a_long_segment_is_read_while_the_rest_comes() {
    let round_trip = Duration::from_micros(100);
    let rig = Rig::at(round_trip / 2, 100_000_000).await;
    measure_round_trip(&rig.network, &rig.disk, round_trip).await;
    let begun = rig.wire(|wire| wire.reads);
    let mut read = pin!(rig.disk.read_at(0, LEN));
    let (mut most, mut reads) = (0, 0);
    while timeout(Duration::from_micros(100), read.as_mut()).await.is_err() {
        (most, reads) = rig.wire(|wire| (most.max(wire.low_water), wire.reads - begun));
    }
    assert_eq!(most, 160 << 10);
    assert!((1..10).contains(&reads), "{reads} reads before the end");
}

/// The response to a ping cannot overtake the data that arrive slowly before it. The session must not count as
/// dead meanwhile.
#[tokio::test(start_paused = true)]
async fn data_that_trickle_in_are_no_silence() {
    let rig = Rig::start(8_000).await;
    let begun = Instant::now();
    assert_eq!(rig.disk.read_at(0, LEN).await.unwrap(), vec![0; LEN]);
    assert!(begun.elapsed() > Duration::from_secs(30));
    assert_eq!(lock(&rig.network.portals[0].connections).len(), 1, "its session has stayed");
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_read_is_used_again_while_the_disk_is_busy() {
    let rig = Rig::start(12_500_000).await;
    let data = rig.disk.read_at(0, LEN).await.unwrap();
    let at = data.as_ptr();
    assert_eq!(rig.disk.read_memory(), 0);
    drop(data);
    assert_eq!(rig.disk.read_memory(), LEN as u64);
    assert_eq!(rig.disk.read_at(512, LEN).await.unwrap().as_ptr(), at);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(rig.disk.read_memory(), 0, "an idle disk keeps none");
    let held = rig.disk.read_at(0, LEN).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    drop(held);
    assert_eq!(rig.disk.read_memory(), 0, "nor what comes back late");
    drop(rig.disk.read_at(0, LEN).await.unwrap());
    assert_eq!(rig.disk.read_memory(), LEN as u64, "it is busy again");
}
