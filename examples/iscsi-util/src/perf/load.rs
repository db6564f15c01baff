//! Runs a load: a number of concurrent requests to a disk, for a given time.

use std::hash::{BuildHasher, RandomState};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::{Disk, Error as InitiatorError};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::error::Error;
use crate::stop::Stop;

/// The offsets that requests use: the unit is divided into places of equal length.
#[derive(Debug)]
pub(super) struct Places {
    /// Number of places. It is not 0.
    count: u64,
    /// Length of a place in bytes.
    size: u64,
    random: bool,
    next: AtomicU64,
}

/// A load of reads or writes.
#[derive(Debug)]
pub(super) struct Load {
    /// Places that the requests use.
    pub(super) places: Places,
    /// Bytes of a request.
    pub(super) size: usize,
    /// Whether the requests are writes.
    pub(super) write: bool,
}

impl Places {
    /// Creates `count` places of `size` bytes. Requests use them in order, or with `random` in a random
    /// sequence that differs in each run. Returns `None` if `count` is 0.
    pub(super) fn new(count: u64, size: u64, random: bool) -> Option<Self> {
        let seed = if random { RandomState::new().hash_one(count) } else { 0 };
        (count > 0).then(|| Self { count, size, random, next: AtomicU64::new(seed) })
    }

    /// Returns the offset of the next request.
    fn next(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = if self.random { mixed(number) } else { number };
        place % self.count * self.size
    }
}

impl Load {
    /// Sends requests until the deadline, or until one fails, then waits for those in flight. After a request
    /// to stop, it waits only a moment for them.
    ///
    /// # Errors
    /// The first error of a request, or [`Error::Abandoned`] if writes are still in flight.
    pub(super) async fn run(
        self,
        disk: &Disk,
        depth: u32,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(), Error> {
        let write = self.write;
        let mut requests = JoinSet::new();
        let load = Arc::new(self);
        let data = if write { noise(load.size) } else { Bytes::new() };
        for _ in 0..depth {
            let (load, disk, stop, data) =
                (Arc::clone(&load), disk.clone(), stop.clone(), data.clone());
            requests.spawn(async move {
                let mut buffer = BytesMut::zeroed(if write { 0 } else { load.size });
                while Instant::now() < deadline && !stop.is_requested() {
                    let offset = load.places.next();
                    if write {
                        disk.write_at(offset, data.clone()).await?;
                    } else {
                        buffer = disk.read_into(offset, buffer).await?;
                    }
                }
                Ok::<_, InitiatorError>(())
            });
        }
        let all = async {
            while let Some(result) = requests.join_next().await {
                match result.map_err(JoinError::try_into_panic) {
                    Ok(result) => result?,
                    Err(Ok(panic)) => resume_unwind(panic),
                    // A cancelled task cannot occur: no task is cancelled.
                    Err(Err(_)) => {}
                }
            }
            Ok(())
        };
        match stop.hurry(all).await {
            Some(result) => result,
            None if write => Err(Error::Abandoned("writes")),
            None => Err(ProgramError::Interrupted.into()),
        }
    }
}

/// Returns bytes for writes. No target can compress them, or deduplicate blocks within one write. All writes
/// have the same bytes.
fn noise(len: usize) -> Bytes {
    (0..).flat_map(|number| mixed(number).to_le_bytes()).take(len).collect()
}

/// Returns a pseudo-random number for each argument; different arguments have different results (SplitMix64, by
/// G. Steele, D. Lea and C. Flood).
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_one_after_the_other_and_again() {
        let places = Places::new(3, 512, false).unwrap();
        let offsets: Vec<_> = (0..4).map(|_| places.next()).collect();
        assert_eq!(offsets, [0, 512, 1024, 0]);
        assert!(Places::new(0, 512, false).is_none());
    }

    #[test]
    fn random_places_are_whole_and_all_over_the_unit() {
        let places = Places::new(8, 4096, true).unwrap();
        let mut offsets: Vec<_> = (0..1000).map(|_| places.next()).collect();
        let is_in_order = offsets.is_sorted();
        offsets.sort_unstable();
        offsets.dedup();
        let all: Vec<_> = (0..8).map(|place| place * 4096).collect();
        assert_eq!((offsets, is_in_order), (all, false));
    }
}
