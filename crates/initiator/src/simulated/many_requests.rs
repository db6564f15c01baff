//! What many short requests at once cost: system calls.

use super::*;

const LEN: usize = 4096;
/// As long as the basic header segment of a PDU.
const HEADER: usize = 48;
const DEPTH: usize = 32;
const ROUNDS: u32 = 4;

struct Rig {
    network: Simulated,
    disk: Disk,
}

impl Rig {
    /// A disk whose answers are there one by one, as those of a target that sends each by itself.
    async fn start() -> Self {
        let mut properties = Properties::default();
        properties.latency = ROUND_TRIP / 2;
        let (network, disk) = disk_over(properties).await;
        network.portals[0].change(|wire| wire.max_read = Some(HEADER + LEN));
        Self { network, disk }
    }

    fn writes(&self) -> u32 {
        let connections = lock(&self.network.portals[0].connections);
        lock(&connections[0].wire).writes
    }

    /// So many readers, each of which asks again when it has its answer.
    async fn read(&self, readers: usize) {
        let read = |reader: usize| {
            let disk = self.disk.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    disk.read_at((reader * LEN) as u64, LEN).await.unwrap();
                }
            })
        };
        for reader in (0..readers).map(read).collect::<Vec<_>>() {
            reader.await.unwrap();
        }
    }
}

/// Half of them are sent while the target has the other half.
#[tokio::test(start_paused = true)]
async fn answers_that_are_there_are_taken_before_requests_are_sent() {
    let rig = Rig::start().await;
    let (before, begun) = (rig.writes(), Instant::now());
    rig.read(DEPTH).await;
    let writes = rig.writes() - before;
    assert!(writes <= 3 * ROUNDS, "{writes} writes in {ROUNDS} rounds of {DEPTH}");
    assert_eq!(begun.elapsed(), ROUND_TRIP * ROUNDS, "none of them waits for an answer to another");
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_is_sent_for_at_once() {
    let rig = Rig::start().await;
    let (before, begun) = (rig.writes(), Instant::now());
    rig.read(1).await;
    assert_eq!((rig.writes() - before, begun.elapsed()), (ROUNDS, ROUND_TRIP * ROUNDS));
}
