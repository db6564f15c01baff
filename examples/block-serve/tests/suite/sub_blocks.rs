//! Tests of requests for parts of blocks. The server reads the rest of a block and writes it back, which must
//! not change the data of any client.

use std::sync::Arc;

use crate::support::{FUA, LEN, MEMORY, Raw, Rig, WINDOW, bytes, kind, soon};
use iscsi_copy::{Device, NbdDevice};
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::target::Target;
use tokio::task::JoinSet;

const BLOCK: u32 = 4096;
const SECTOR: u64 = 512;

async fn rig(window: u32, memory: u64) -> Rig {
    Rig::before(RamDisk::new(BLOCK, LEN as u64 / u64::from(BLOCK)), window, memory, false).await
}

async fn raw(rig: &Rig) -> Raw {
    soon(Raw::shake_hands(rig.raw().await)).await
}

/// Eight clients each write a sector of the same blocks, concurrently and repeatedly, while sessions are lost.
/// If a block were written back with old data of a neighbour sector, an answered write to that sector would be
/// undone.
#[tokio::test(flavor = "multi_thread")]
async fn writers_of_one_block_undo_nothing_of_each_other() {
    const BLOCKS: u64 = 4;
    const ROUNDS: usize = 40;
    for (window, memory) in [(0, 0), (WINDOW, MEMORY)] {
        let rig = Arc::new(rig(window, memory).await);
        let mut writers = JoinSet::new();
        for sector in 0..8 {
            let rig = Arc::clone(&rig);
            writers.spawn(async move {
                let mut client = raw(&rig).await;
                for round in 0..ROUNDS {
                    let at = (round as u64 % BLOCKS) * u64::from(BLOCK) + sector * SECTOR;
                    let data = bytes(round * 8 + sector as usize, SECTOR as usize);
                    // Writes zeros and data alternately. The last write is data.
                    assert_eq!(client.ask(0, kind::WRITE_ZEROES, at, 512).await, 0);
                    assert_eq!(client.write(0, at, &data).await, 0);
                    let is_there = client.read(at, 512).await == Ok(data.to_vec());
                    assert!(is_there, "{round} {sector}");
                    if sector == 0 && round % 10 == 5 && window == 0 {
                        rig.target.with(Target::drop_connections);
                    }
                }
            });
        }
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
        let mut client = raw(&rig).await;
        // The first flush reports the lost session, so its result is ignored.
        client.flush().await;
        assert_eq!(client.flush().await, 0);
        for sector in 0..8 {
            for round in ROUNDS - BLOCKS as usize..ROUNDS {
                let at = (round as u64 % BLOCKS) * u64::from(BLOCK) + sector * SECTOR;
                let data = bytes(round * 8 + sector as usize, SECTOR as usize);
                assert!(rig.disk.holds(at, &data), "{round} {sector} of {window} {memory}");
            }
        }
    }
}

/// TRIM does not change the blocks at its edges. WRITE_ZEROES zeroes exactly its bytes.
#[tokio::test(flavor = "multi_thread")]
async fn trims_are_rounded_inwards_and_zeros_are_exact() {
    for (window, memory) in [(0, 0), (WINDOW, MEMORY)] {
        let rig = rig(window, memory).await;
        let mut client = raw(&rig).await;
        let data = bytes(1, 5 * BLOCK as usize);
        assert_eq!(client.write(FUA, 0, &data).await, 0);
        // Ranges within one block, across the edge of a block, and around a whole block.
        for (offset, length) in [(100, 1000), (4000, 200), (4095, 4098)] {
            assert_eq!(client.ask(FUA, kind::TRIM, offset, length).await, 0, "{offset}");
        }
        let mut wanted = data.to_vec();
        wanted[4096..8192].fill(0);
        assert!(rig.disk.holds(0, &wanted));
        assert_eq!(rig.disk.mapped_blocks(), 4);
        for (offset, length) in [(100_u32, 1000_u32), (12_000, 900), (8195, 1)] {
            assert_eq!(client.ask(FUA, kind::WRITE_ZEROES, offset.into(), length).await, 0);
            wanted[offset as usize..(offset + length) as usize].fill(0);
            assert!(rig.disk.holds(0, &wanted), "{offset}");
        }
        assert_eq!(client.read(0, 5 * BLOCK).await, Ok(wanted));
    }
}

/// The part of a block that the server writes back is covered by FUA and flushes like the requested part, and
/// can be lost like it.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_and_fua_cover_parts_of_blocks() {
    for window in [0, WINDOW] {
        let rig = rig(window, 0).await;
        rig.disk.switch_cache(Cache::Volatile);
        let mut client = raw(&rig).await;
        client.flush().await;
        assert_eq!(client.write(0, 1000, &bytes(1, 700)).await, 0);
        assert_eq!(client.flush().await, 0);
        assert_eq!(client.write(FUA, 5, &bytes(2, 100)).await, 0);
        assert_eq!(client.ask(FUA, kind::WRITE_ZEROES, 1100, 50).await, 0);
        rig.disk.lose_power();
        let mut wanted = vec![0; BLOCK as usize];
        wanted[1000..1700].copy_from_slice(&bytes(1, 700));
        wanted[5..105].copy_from_slice(&bytes(2, 100));
        wanted[1100..1150].fill(0);
        assert!(rig.disk.holds(0, &wanted), "with a window of {window}");
    }
}

/// The unit has blocks of 520 bytes, which NBD cannot express, and a size that is not a multiple of 512 bytes.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_may_be_of_any_size() {
    const BLOCKS: u64 = 1001;
    let rig = Rig::before(RamDisk::new(520, BLOCKS), WINDOW, MEMORY, false).await;
    let uri = format!("nbd+unix:///disk?socket={}&patience=0", rig.socket.display());
    let client = soon(NbdDevice::open(&uri.parse().unwrap())).await.unwrap();
    assert_eq!(client.capacity(), 520 * BLOCKS);
    let data = bytes(3, 1000);
    let at = client.capacity() - 1000;
    soon(client.write_at(at, vec![data.clone()])).await.unwrap();
    soon(client.flush()).await.unwrap();
    assert!(rig.disk.holds(at, &data));
    assert_eq!(soon(client.read_at(at, 1000)).await.unwrap(), data);
    soon(client.write_at(at + 1, vec![data])).await.unwrap_err();
}
