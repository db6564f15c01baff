//! Faults of the paths to the unit.

use iscsi_testkit::scsi::AccessState;
use iscsi_testkit::target::Target;

use crate::rng::Rng;
use crate::settings::Class;
use crate::world::World;

/// Changes the state of the ports of a portal group, so that they serve the unit or do not.
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
    world.trace.record("access state", &[target as u64, state as u64]);
    world.counts.fault(Class::Standby);
    set_state(&mut world.targets[target], states[state]);
}

/// Sets the state of the port's group where the array reports groups, or else of the port.
fn set_state(target: &mut Target, state: AccessState) {
    match target.config_mut().port.clone() {
        Some(port) => port.groups.set_state(port.port, state),
        None => target.set_access(state),
    }
}

/// Makes all ports serve the unit.
pub(super) fn heal(world: &mut World) {
    let serve = |target: &mut Target| set_state(target, AccessState::ActiveOptimized);
    world.targets.iter_mut().for_each(serve);
}
