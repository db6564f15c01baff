//! Tests many concurrent requests through a write-behind window (its writes are answered before the device has
//! them) and a cache, in front of a slow device. A third of the runs has no window. Checks what reads return,
//! and what a flush guarantees.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use block_serve::cache::Cache;
use block_serve::write_behind::WriteBehind;
use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::{Device, DeviceFuture, DeviceLimits};
use tokio::time::sleep;

const BLOCK: usize = 512;
/// Number of writers. Each writes only its own blocks.
const WRITERS: u64 = 3;
const READERS: u64 = 3;
/// Number of blocks that the clients write. Another host changes the blocks after them.
const OWN: u64 = 48;
const BLOCKS: u64 = OWN + 16;
const STEPS: usize = 150;

/// A generator of pseudo-random numbers. Each run has the same numbers.
#[derive(Debug)]
struct Numbers(AtomicU64);

impl Numbers {
    fn below(&self, end: u64) -> u64 {
        let next =
            |it: u64| it.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| Some(next(it)));
        (before.unwrap() >> 33) % end
    }
}

/// A slow device. Each block holds the number of its last write, repeated.
#[derive(Debug)]
struct Slow {
    blocks: Mutex<Vec<u64>>,
    attentions: AtomicU64,
    numbers: Numbers,
}

impl Slow {
    fn blocks(&self) -> MutexGuard<'_, Vec<u64>> {
        self.blocks.lock().unwrap()
    }

    async fn pause(&self) {
        sleep(Duration::from_micros(self.numbers.below(900))).await;
    }
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        BLOCKS * BLOCK as u64
    }

    fn limits(&self) -> DeviceLimits {
        let mut limits = DeviceLimits::default();
        limits.block_size = BLOCK as u32;
        limits
    }

    fn attentions(&self) -> u64 {
        self.attentions.load(Ordering::SeqCst)
    }

    /// Reads one block after the other. Concurrent writes may change any block before the next one is read.
    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            self.pause().await;
            for (at, block) in buffer.chunks_mut(BLOCK).enumerate() {
                if self.numbers.below(4) == 0 {
                    self.pause().await;
                }
                let number = self.blocks()[offset as usize / BLOCK + at];
                block.copy_from_slice(&number.to_be_bytes().repeat(BLOCK / 8));
            }
            self.pause().await;
            Ok(buffer)
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            self.pause().await;
            for (at, block) in pages.concat().chunks(BLOCK).enumerate() {
                if self.numbers.below(4) == 0 {
                    self.pause().await;
                }
                self.blocks()[offset as usize / BLOCK + at] = number_of(block).unwrap();
            }
            self.pause().await;
            Ok(())
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            self.pause().await;
            Ok(())
        })
    }
}

/// Returns the number that a block holds. It is an error if the block has parts of two writes.
fn number_of(block: &[u8]) -> io::Result<u64> {
    let number = u64::from_be_bytes(block[..8].try_into().unwrap());
    let is_whole = block == number.to_be_bytes().repeat(BLOCK / 8);
    is_whole.then_some(number).ok_or_else(|| io::Error::other("a block of two writes"))
}

/// For each block, the oldest and the newest write that it may hold.
#[derive(Debug)]
struct Oracle(Mutex<Vec<(u64, u64)>>);

impl Oracle {
    fn each<T>(&self, blocks: std::ops::Range<u64>, look: impl Fn(&mut (u64, u64)) -> T) -> Vec<T> {
        self.0.lock().unwrap()[blocks.start as usize..blocks.end as usize]
            .iter_mut()
            .map(look)
            .collect()
    }
}

struct World {
    slow: Arc<Slow>,
    oracle: Oracle,
    next: AtomicU64,
}

impl World {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs one writer: it writes its blocks, and flushes from time to time.
    async fn write(&self, writer: u64, device: &dyn Device) {
        for _ in 0..STEPS {
            let numbers = &self.slow.numbers;
            if numbers.below(12) == 0 {
                let least = self.oracle.each(0..OWN, |it| it.0);
                device.flush().await.unwrap();
                let there = self.slow.blocks().clone();
                assert!(least.iter().zip(&there).all(|(least, there)| there >= least));
                continue;
            }
            // A chunk of the cache has eight blocks, so the writers write to the same chunks.
            let group = OWN / WRITERS;
            let len = 1 + numbers.below(6);
            let start = writer * group + numbers.below(group - len);
            let number = self.number();
            self.oracle.each(start..start + len, |it| it.1 = number);
            let data = Bytes::from(number.to_be_bytes().repeat(len as usize * BLOCK / 8));
            device.write_at(start * BLOCK as u64, vec![data]).await.unwrap();
            self.oracle.each(start..start + len, |it| it.0 = number);
        }
    }

    async fn read(&self, device: &dyn Device) {
        for _ in 0..STEPS * 3 {
            let numbers = &self.slow.numbers;
            let len = 1 + numbers.below(12);
            let start = numbers.below(BLOCKS - len);
            let least = self.oracle.each(start..start + len, |it| it.0);
            let data = device.read_at(start * BLOCK as u64, len as usize * BLOCK).await.unwrap();
            let most = self.oracle.each(start..start + len, |it| it.1);
            for (at, block) in data.chunks(BLOCK).enumerate() {
                let number = number_of(block).unwrap();
                assert!(
                    (least[at]..=most[at]).contains(&number),
                    "block {}: {number}",
                    start + at as u64
                );
            }
        }
    }

    /// Acts as another host: changes the blocks that the clients only read, and makes the device report a
    /// change.
    async fn interfere(&self) {
        for _ in 0..STEPS / 3 {
            sleep(Duration::from_micros(self.slow.numbers.below(3000))).await;
            let number = self.number();
            self.slow.blocks()[OWN as usize..].fill(number);
            self.oracle.each(OWN..BLOCKS, |it| it.1 = number);
            // The report of a change may come some time after the change.
            self.slow.pause().await;
            self.slow.attentions.fetch_add(1, Ordering::SeqCst);
            self.oracle.each(OWN..BLOCKS, |it| it.0 = number);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reads_see_what_was_answered_before_and_flushes_bring_it_to_the_device() {
    for seed in 0..60_u64 {
        let (numbers, blocks) =
            (Numbers(AtomicU64::new(seed)), Mutex::new(vec![0; BLOCKS as usize]));
        let slow = Arc::new(Slow { blocks, attentions: AtomicU64::new(0), numbers });
        let device = || Arc::<Slow>::clone(&slow) as Arc<dyn Device>;
        // Cache and window are small, so that chunks are evicted, and writes wait for room.
        let cache = Cache::new(device(), 24 << 10);
        let cached = || Arc::new(cache.handle(device())) as Arc<dyn Device>;
        let behind = WriteBehind::new(cached(), 16 << 10);
        let client: &dyn Fn() -> Arc<dyn Device> = match seed % 3 {
            0 => &cached,
            _ => &|| Arc::new(behind.handle(cached())),
        };
        let oracle = Oracle(Mutex::new(vec![(0, 0); BLOCKS as usize]));
        let world = Arc::new(World { slow: Arc::clone(&slow), oracle, next: AtomicU64::new(1) });
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (world, client) = (Arc::clone(&world), client());
            tasks.spawn(async move { world.write(writer, &*client).await });
        }
        for _ in 0..READERS {
            let (world, client) = (Arc::clone(&world), client());
            tasks.spawn(async move { world.read(&*client).await });
        }
        let others = Arc::clone(&world);
        tasks.spawn(async move { others.interfere().await });
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        assert!(cache.stats().found > 0, "nothing was kept");
    }
}
