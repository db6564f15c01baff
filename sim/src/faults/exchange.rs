//! Changes of the unit at the LUN: another initiator resets it, or its size, its block size or the unit
//! itself changes.

use iscsi_testkit::scsi::Sense;

use crate::lun::ChangeNotice;
use crate::oracle::GRAIN;
use crate::rng::Rng;
use crate::settings::Class;
use crate::world::World;

/// Resets the unit or clears its task set, as another initiator.
pub(super) fn reset(world: &mut World, rng: &mut Rng) {
    let (clears, empties) = (rng.percent(40), rng.percent(20));
    world.trace.record("reset by another", &[u64::from(clears), u64::from(empties)]);
    world.losses.reason();
    world.counts.fault(Class::Reset);
    let unit = world.units.any(rng);
    for target in world.units.targets_of(unit) {
        let target = &mut world.targets[target];
        if clears {
            target.clear_by_another(0);
        } else {
            target.reset_by_another(0);
        }
    }
    if empties && !clears {
        world.lose_power(unit);
    }
}

/// Grows or shrinks the unit, or restores its size.
pub(super) fn capacity(world: &mut World, rng: &mut Rng) {
    let blocks = world.lun.blocks();
    let new = match rng.within(0..4) {
        0 => rng.within(blocks / 2..blocks),
        1 => blocks,
        _ => rng.within(blocks..blocks * 2),
    };
    if new != world.lun.disk().blocks() {
        world.counts.fault(Class::Capacity);
    }
    resize(world, new);
}

/// Resizes the unit. The data beyond the new end is lost.
fn resize(world: &mut World, blocks: u64) {
    let disk = world.lun.disk();
    if disk.blocks() == blocks {
        return;
    }
    disk.resize(blocks);
    let bytes = usize::try_from(disk.capacity()).unwrap_or(usize::MAX);
    world.trace.record("resize", &[blocks]);
    world.oracle.resized(bytes / GRAIN);
    world.lun.resized();
}

/// Replaces the unit by another one, or puts the original back.
pub(super) fn exchange(world: &mut World, rng: &mut Rng) {
    let block_size = world.lun.disk().block_size();
    put(world, rng, block_size, true);
}

/// Replaces the unit by one with another block size under the same name, or puts the original back.
pub(super) fn block_size(world: &mut World, rng: &mut Rng) {
    let block_size = if world.lun.disk().block_size() == 512 { 4096 } else { 512 };
    put(world, rng, block_size, false);
}

fn put(world: &mut World, rng: &mut Rng, block_size: u32, is_renamed: bool) {
    world.losses.reason();
    world.counts.fault(if is_renamed { Class::Exchange } else { Class::BlockSize });
    let attentions = [Sense::LUNS_CHANGED, Sense::INQUIRY_CHANGED];
    let notice = match rng.pick(&attentions) {
        Some(sense) if rng.percent(70) => ChangeNotice::Attention(*sense),
        _ => ChangeNotice::Restart,
    };
    if world.lun.is_exchanged() {
        world.trace.record("the unit of before", &[]);
        world.lun.restore(&mut world.targets, notice, world.oracle.now());
    } else {
        world.trace.record("another unit", &[block_size.into(), u64::from(is_renamed)]);
        world.lun.exchange(&mut world.targets, block_size, is_renamed, notice);
    }
}

/// Restores the unit with its original size.
pub(super) fn restore(world: &mut World) {
    if world.lun.is_exchanged() {
        world.losses.reason();
    }
    let notice = ChangeNotice::Attention(Sense::LUNS_CHANGED);
    world.lun.restore(&mut world.targets, notice, world.oracle.now());
    resize(world, world.lun.blocks());
}
