//! Episodes of volumes: the requests of an episode go to several units as one. Each unit fails by itself: it
//! loses its cache, is late, refuses connections, or fails a flush. The oracle judges the whole volume.

use iscsi_testkit::disk::{Cache, RamDisk};

use crate::episode::{Report, episode_with};
use crate::rng::{Rng, mix};
use crate::settings::{Class, Settings};
use crate::topology::Topology;

/// Percentage of seeds whose episode goes on with a volume.
const SHARE: u64 = 15;
/// Separates the random draws of volumes from all others.
const STREAM: u64 = 0x766f_6c75_6d65;

/// Returns whether the episode of this seed goes on with a volume.
pub(crate) fn follow(seed: u64) -> bool {
    mix(seed ^ STREAM) % 100 < SHARE
}

/// Runs an episode with a volume.
pub(crate) async fn episode(seed: u64, settings: &Settings) -> Report {
    // A volume needs units with a fixed size and identity. Switching the cache has no effect that is special to
    // volumes.
    let mut settings = settings.with_one_unit();
    settings.classes.retain(|class| *class != Class::WriteCache);
    let mut rng = Rng::new(mix(seed ^ STREAM));
    let count = rng.index(2..5);
    let disks = drawn_disks(count, &mut rng);
    let topology = Topology::of_volume(count, &mut rng);
    Box::pin(episode_with(seed, &settings, rng, disks, topology)).await
}

/// Draws units of one block size. Each has a volatile or a write-through cache.
fn drawn_disks(count: usize, rng: &mut Rng) -> Vec<RamDisk> {
    let (size, blocks) = if rng.percent(50) { (512, 256) } else { (4096, 32) };
    let caches = [Cache::Volatile, Cache::Volatile, Cache::Volatile, Cache::WriteThrough];
    let mut drawn = || {
        // The volume uses whole chunks only: it ignores the last blocks.
        let disk = RamDisk::new(size, blocks + rng.within(0..4));
        disk.set_cache(rng.pick(&caches).copied().unwrap_or_default());
        disk
    };
    (0..count).map(|_| drawn()).collect()
}
