//! Faults of a second unit of a volume while another unit has lost its cache. The second unit responds late or
//! is unreachable, so a flush of the volume has one result and waits for the others.

use std::time::Duration;

use crate::clock;
use crate::rng::Rng;
use crate::settings::Class;
use crate::world::{Reachability, World};

/// Longest delay of the responses of a late unit, milliseconds.
const MAX_LATE: u64 = 8000;

/// Makes another unit fail too, at times.
pub(super) fn fail(world: &mut World, rng: &mut Rng, refuses: bool) {
    if world.units.count() == 1 || rng.percent(30) {
        return;
    }
    let unit = world.units.any(rng);
    if refuses && rng.percent(40) {
        go_away(world, unit);
    } else {
        be_late(world, unit, rng.any_scale(MAX_LATE));
    }
}

fn wires_of(world: &World, unit: usize) -> Vec<u64> {
    let is_of_unit = |portal: usize| world.units.of_target(world.portals[portal].target) == unit;
    let wires = world.wires.iter().filter(|(_, wire)| !wire.is_closed && is_of_unit(wire.portal));
    wires.map(|(number, _)| *number).collect()
}

/// Delays all responses of the unit for a while.
fn be_late(world: &mut World, unit: usize, lasts: Duration) {
    world.trace.record("a unit is late", &[unit as u64]);
    world.losses.reason();
    world.counts.fault(Class::Stall);
    for number in wires_of(world, unit) {
        if let Some(wire) = world.wire(number) {
            wire.to_initiator.stall_at_least(clock::now() + lasts);
        }
    }
}

/// Drops all connections of the unit, and refuses new ones.
fn go_away(world: &mut World, unit: usize) {
    world.trace.record("a unit is away", &[unit as u64]);
    for number in wires_of(world, unit) {
        world.cut(number);
        world.counts.fault(Class::Cut);
    }
    let World { portals, units, .. } = world;
    for portal in portals.iter_mut().filter(|portal| units.of_target(portal.target) == unit) {
        portal.reachability = Reachability::Refuses;
    }
}
