//! What changes of the ways to the unit.

use iscsi_testkit::scsi::AccessState;
use iscsi_testkit::target::Target;

use crate::rng::Rng;
use crate::world::World;

/// The ports of a portal group serve the unit, or do not.
pub(super) fn standby(world: &mut World, rng: &mut Rng) {
    let target = rng.index(0..world.targets.len());
    let states = [
        AccessState::ActiveOptimized,
        AccessState::ActiveNonOptimized,
        AccessState::Standby,
        AccessState::Unavailable,
        AccessState::Transitioning,
    ];
    let state = rng.index(0..states.len());
    world.trace.note("access state", &[target as u64, state as u64]);
    world.targets[target].set_access(states[state]);
}

/// All ports serve the unit.
pub(super) fn heal(world: &mut World) {
    let serve = |target: &mut Target| target.set_access(AccessState::ActiveOptimized);
    world.targets.iter_mut().for_each(serve);
}
