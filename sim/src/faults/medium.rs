//! Faults of a unit's medium, its cache and its order of execution.

use std::ops::Range;

use iscsi_testkit::disk::Cache;
use iscsi_testkit::fault::Fault;

use super::unit::add;
use crate::rng::Rng;
use crate::settings::Class;
use crate::world::World;

/// Makes reads, writes or flushes of some blocks fail several times.
pub(super) fn fail(world: &mut World, rng: &mut Rng) {
    let blocks = some_blocks(world, rng);
    let fault = match rng.within(0..4) {
        0 => Fault::medium_error(blocks),
        1 => Fault::write_error(blocks),
        _ => Fault::flush_error(.., rng.percent(50)),
    };
    let times = u32::try_from(rng.within(1..4)).unwrap_or(1);
    add(world, fault.times(times), rng);
}

/// Loses acknowledged writes on their way from the cache to the medium.
pub(super) fn fail_write_back(world: &mut World, rng: &mut Rng) {
    let blocks = some_blocks(world, rng);
    let unit = world.units.any(rng);
    if world.units.disk(unit).fail_write_back(blocks.clone()) == 0 {
        return;
    }
    world.trace.record("deferred error", &[unit as u64, blocks.start, blocks.end]);
    for grains in world.units.grains(unit, blocks) {
        world.oracle.lost(grains);
    }
    world.losses.deferred();
    world.counts.fault(Class::Deferred);
    world.units.next_cache_loss();
}

/// Switches the write cache on or off.
pub(super) fn switch_cache(world: &mut World, rng: &mut Rng) {
    let caches = [Cache::Volatile, Cache::WriteThrough, Cache::NonVolatile];
    let Some(cache) = rng.pick(&caches).copied() else { return };
    if world.oracle.has_lost_since_switched_on() {
        return;
    }
    world.losses.reason();
    world.counts.fault(Class::WriteCache);
    world.lun.disk().switch_cache(cache);
    world.oracle.set_volatile(cache == Cache::Volatile);
    world.trace.record(&format!("cache: {cache:?}"), &[]);
}

/// Makes a target execute commands in another order than they arrive, or switches back to the order of arrival.
pub(super) fn reorder(world: &mut World, rng: &mut Rng) {
    let count = if rng.percent(70) { rng.index(2..32) } else { 0 };
    let max = 1 << rng.within(3..12);
    let delays: Vec<_> = (0..count).map(|_| rng.any_scale(max)).collect();
    world.trace.record("another order", &[count as u64, max]);
    if count > 0 {
        world.counts.fault(Class::Reorder);
    }
    for target in &mut world.targets {
        target.config_mut().execution_delays.clone_from(&delays);
    }
}

fn some_blocks(world: &World, rng: &mut Rng) -> Range<u64> {
    let all = world.lun.disk().blocks();
    let first = rng.within(0..all);
    let len = 1 << rng.within(0..7);
    first..(first + len).min(all)
}
