//! Tests of the cost of many concurrent short requests: system calls, and turns of the event loop.

use iscsi_testkit::fault::Fault;

use super::*;

const LEN: usize = 4096;
/// Length of the basic header segment of a PDU.
const HEADER: usize = 48;
const DEPTH: usize = 32;
const ROUNDS: u32 = 4;
const SLOW: Duration = Duration::from_secs(1);

struct Rig {
    network: Simulated,
    disk: Disk,
}

impl Rig {
    /// Opens a disk whose responses arrive one by one, as from a target that sends each separately.
    async fn start() -> Self {
        let mut properties = Properties::default();
        properties.latency = ROUND_TRIP / 2;
        let (network, disk) = disk_over(properties).await;
        network.portals[0].change(|wire| wire.max_read = Some(HEADER + LEN));
        Self { network, disk }
    }

    /// Opens a disk over a short link, with responses one after the other, 30 per millisecond. The second half
    /// of the disk is slow.
    async fn near() -> Self {
        let config = TargetConfig::new(TARGET, RamDisk::new(512, 8192))
            .with_fault(Fault::delay(4096.., SLOW));
        let mut properties = Properties::default();
        (properties.latency, properties.rate) = (Duration::ZERO, Some(128_000_000));
        let (network, disk) = disk_of(config, properties).await;
        Self { network, disk }
    }

    fn writes(&self) -> u32 {
        self.wire(|wire| wire.writes)
    }

    fn wire<R>(&self, see: impl FnOnce(&Wire) -> R) -> R {
        super::see(&self.network, |wire| see(wire))
    }

    /// Runs `readers` concurrent readers, each of which submits again when it has its response.
    async fn read(&self, readers: usize) {
        self.read_for(readers, ROUNDS).await;
    }

    async fn read_for(&self, readers: usize, rounds: u32) {
        let read = |reader: usize| {
            let disk = self.disk.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    disk.read_at((reader * LEN) as u64, LEN).await.unwrap();
                }
            })
        };
        for reader in (0..readers).map(read).collect::<Vec<_>>() {
            reader.await.unwrap();
        }
    }
}

/// Responses that have arrived are read before requests are sent, so that one system call sends a quarter of the
/// requests while the target executes the others.
#[tokio::test(start_paused = true)]
async fn answers_that_are_there_are_taken_before_requests_are_sent() {
    let rig = Rig::start().await;
    let (before, begun) = (rig.writes(), Instant::now());
    rig.read(DEPTH).await;
    let writes = rig.writes() - before;
    assert!(writes <= 5 * ROUNDS, "{writes} writes in {ROUNDS} rounds of {DEPTH}");
    assert_eq!(begun.elapsed(), ROUND_TRIP * ROUNDS, "none of them waits for an answer to another");
}

/// A caller with a response submits again before all responses are read; otherwise the target would have no work
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn who_has_an_answer_asks_again_before_all_answers_are_read() {
    let rig = Arc::new(Rig::start().await);
    rig.network.portals[0].change(|wire| wire.max_read = None);
    let unread = |rig: &Rig| rig.wire(|wire| wire.inbox.len());
    let read = |reader: usize| {
        let rig = Arc::clone(&rig);
        tokio::spawn(async move {
            rig.disk.read_at((reader * LEN) as u64, LEN).await.unwrap();
            unread(&rig)
        })
    };
    let mut left = Vec::new();
    for reader in (0..DEPTH).map(read).collect::<Vec<_>>() {
        left.push(reader.await.unwrap());
    }
    assert!(left[0] >= DEPTH / 4 * (HEADER + LEN), "{left:?}");
    assert_eq!(left.last(), Some(&0));
}

/// Each request of a single reader is sent immediately, by a write of its own.
#[tokio::test(start_paused = true)]
async fn who_is_alone_is_sent_for_at_once() {
    let rig = Rig::start().await;
    let (before, begun) = (rig.writes(), Instant::now());
    rig.read(1).await;
    assert_eq!((rig.writes() - before, begun.elapsed()), (ROUNDS, ROUND_TRIP * ROUNDS));
}

/// While many responses arrive in a millisecond, the low-water mark lets the socket report several of them
/// together. After the last response it reports any byte.
#[tokio::test(start_paused = true)]
async fn answers_that_come_close_together_are_told_of_together() {
    let rig = Rig::near().await;
    let low_water = rig.network.clone();
    let seen = tokio::spawn(async move {
        let mut most = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            most = lock(&lock(&low_water.portals[0].connections)[0].wire).low_water.max(most);
            if most > 1 {
                return most;
            }
        }
    });
    rig.read_for(DEPTH, 200).await;
    let most = seen.await.unwrap();
    let (two, quarter) = (2 * (HEADER + LEN), DEPTH / 4 * (HEADER + LEN));
    assert!((two..=quarter).contains(&most), "{most} bytes");
    assert_eq!(rig.wire(|wire| wire.low_water), 1, "whatever comes next is told of");
}

/// The driver waits for several responses together. A single response is still read soon if no other follows.
#[tokio::test(start_paused = true)]
async fn an_answer_that_others_do_not_follow_is_found_soon() {
    let rig = Rig::near().await;
    let slow = || {
        let disk = rig.disk.clone();
        tokio::spawn(async move { disk.read_at(4096 * 512, LEN).await })
    };
    // The driver decides once a second whether to wait for several responses.
    rig.read_for(DEPTH, 200).await;
    let slow: Vec<_> = std::iter::repeat_with(slow).take(DEPTH).collect();
    rig.read_for(DEPTH, 5).await;
    assert!(rig.wire(|wire| wire.low_water) > HEADER + LEN, "more is waited for than one answer");
    let begun = Instant::now();
    rig.disk.read_at(0, LEN).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(4), "{:?}", begun.elapsed());
    assert_eq!(rig.wire(|wire| wire.low_water), 1, "the next one is told of");
    for read in slow {
        assert_eq!(read.await.unwrap().unwrap().len(), LEN);
    }
}
