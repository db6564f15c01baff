//! Faults between initiator and target: lost connections, stalled links, portals that refuse.

use std::time::Duration;

use tokio::time::Instant;

use crate::rng::Rng;
use crate::settings::Class;
use crate::world::{Reachability, World};

/// Duration of a stall that lasts until all faults are ended.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// Loses a connection. If `refuses`, at times no portal is available after that.
pub(super) fn cut(world: &mut World, rng: &mut Rng, refuses: bool) {
    if let Some(number) = any_wire(world, rng) {
        world.cut(number);
        world.counts.fault(Class::Cut);
    }
    if refuses && rng.percent(30) {
        world.portals.iter_mut().for_each(|portal| portal.reachability = Reachability::Refuses);
    }
}

/// Makes one portal or all of them accept connections, refuse them, or not respond.
pub(super) fn refuse(world: &mut World, rng: &mut Rng) {
    let portals = world.portals.len();
    let one = rng.index(0..portals);
    let which = if rng.percent(40) { 0..portals } else { one..one + 1 };
    let states = [Reachability::Open, Reachability::Refuses, Reachability::Dark];
    let Some(state) = rng.pick(&states).copied() else { return };
    world.portals[which].iter_mut().for_each(|portal| portal.reachability = state);
}

fn any_wire(world: &World, rng: &mut Rng) -> Option<u64> {
    let open = world.wires.iter().filter(|(_, wire)| !wire.is_closed && !wire.is_reset);
    let open: Vec<u64> = open.map(|(number, _)| *number).collect();
    rng.pick(&open).copied()
}

/// Stalls a link for a while, in one direction or both.
pub(super) fn stall(world: &mut World, rng: &mut Rng) {
    let Some(number) = any_wire(world, rng) else { return };
    let lasts = if rng.percent(10) { FOR_EVER } else { rng.any_scale(90_000) };
    let until = Instant::now() + lasts;
    let which = rng.within(0..3);
    world.losses.reason();
    world.counts.fault(Class::Stall);
    if let Some(wire) = world.wire(number) {
        if which != 0 {
            wire.to_target.stall(until);
        }
        if which != 1 {
            wire.to_initiator.stall(until);
        }
    }
    world.trace.record("stall", &[number, which, lasts.as_secs()]);
}
