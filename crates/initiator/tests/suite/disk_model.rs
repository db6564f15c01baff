//! Tests that a disk after any mix of requests equals an array of bytes after the same requests.

use crate::support::{Rig, pattern, soon};
use bytes::Bytes;
use iscsi_initiator::{Disk, Options};
use proptest::prelude::*;
use tokio::task::JoinSet;

const CAPACITY: usize = 64 * 512;

/// A request for a range of bytes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write {
        seed: u8,
        page: usize,
    },
    Zero,
    /// Reads the bytes while the bytes beside them are changed.
    Read,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<u8>(), 1..3000usize).prop_map(|(seed, page)| Change::Write { seed, page }),
        1 => Just(Change::Zero),
        1 => Just(Change::Read),
    ]
}

/// Returns rounds of concurrent changes. Each change applies to the bytes between two cuts, so that no byte
/// belongs to two changes, but many blocks do.
fn rounds() -> impl Strategy<Value = Vec<(Vec<usize>, Vec<Change>)>> {
    let cuts = prop::collection::vec(0..=CAPACITY, 2..12);
    let changes = prop::collection::vec(change(), 11);
    prop::collection::vec((cuts, changes), 1..5)
}

async fn apply(disk: Disk, offset: usize, len: usize, change: Change) -> Option<Bytes> {
    match change {
        Change::Write { seed, page } => {
            let pages: Vec<_> =
                pattern(len, seed).chunks(page).map(Bytes::copy_from_slice).collect();
            disk.write_at(offset as u64, pages).await.unwrap();
        }
        Change::Zero => disk.write_zeroes(offset as u64, len as u64).await.unwrap(),
        Change::Read => return Some(disk.read_at(offset as u64, len).await.unwrap()),
    }
    None
}

async fn play(block_size: u32, max_transfer: usize, rounds: Vec<(Vec<usize>, Vec<Change>)>) {
    let blocks = CAPACITY as u64 / u64::from(block_size);
    let rig = Rig::start(block_size, blocks, |config| config.window = 8).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap().with_max_transfer(max_transfer);
    let mut model = vec![0; CAPACITY];
    for (mut cuts, changes) in rounds {
        cuts.sort_unstable();
        let mut requests = JoinSet::new();
        for (range, change) in cuts.windows(2).zip(changes) {
            let (start, end) = (range[0], range[1]);
            let unchanged = model[start..end].to_vec();
            match change {
                Change::Write { seed, .. } => {
                    model[start..end].copy_from_slice(&pattern(end - start, seed));
                }
                Change::Zero => model[start..end].fill(0),
                Change::Read => {}
            }
            let disk = disk.clone();
            requests.spawn(async move {
                let read = apply(disk, start, end - start, change).await;
                assert!(read.is_none_or(|read| read == unchanged));
            });
        }
        soon(requests.join_all()).await;
        assert!(rig.disk.holds(0, &model));
        assert!(soon(disk.read_at(0, CAPACITY)).await.unwrap() == model);
    }
    rig.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_disk_equals_its_model(
        block_size in prop_oneof![Just(512u32), Just(4096)],
        max_transfer in 1..20_000usize,
        rounds in rounds(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(block_size, max_transfer, rounds));
    }
}
