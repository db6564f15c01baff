//! Faults of a unit: commands that are refused, late or executed late, and losses of power.

use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::Access;

use crate::rng::Rng;
use crate::settings::Class;
use crate::world::{MAX_LATE, World};

/// Makes the next commands end with BUSY or TASK SET FULL.
pub(super) fn busy(world: &mut World, rng: &mut Rng) {
    let times = u32::try_from(rng.within(1..6)).unwrap_or(1);
    let fault =
        if rng.percent(50) { Fault::busy(.., times) } else { Fault::task_set_full(.., times) };
    add(world, fault, rng);
}

/// Delays the response to the next read or write.
pub(super) fn slow(world: &mut World, rng: &mut Rng) {
    let fault = Fault::delay(.., rng.any_scale(20_000)).times(1);
    let access = if rng.percent(50) { Access::Write } else { Access::Read };
    add(world, fault.on_access(access), rng);
}

/// Loses one of the next Data-In PDUs of a target. The target counts the PDU as sent.
pub(super) fn hole(world: &mut World, rng: &mut Rng) {
    let (target, skipped) = (any_target(world, rng), u32::try_from(rng.within(0..64)).unwrap_or(0));
    // The fault names a Data-In PDU by its number since the start of the target.
    let number = world.targets[target].sent(Opcode::DataIn) + skipped;
    add_to(world, target, Fault::sending(Opcode::DataIn, number, Effect::Swallow));
}

/// Makes a target execute the next write late, even if its connection is lost meanwhile.
pub(super) fn zombie(world: &mut World, rng: &mut Rng) {
    let fault = Fault::execute_late(.., rng.any_scale(MAX_LATE)).times(1);
    add(world, fault, rng);
}

/// Adds a fault to one of the targets.
pub(super) fn add(world: &mut World, fault: Fault, rng: &mut Rng) {
    let target = any_target(world, rng);
    add_to(world, target, fault);
}

fn any_target(world: &World, rng: &mut Rng) -> usize {
    rng.index(0..world.targets.len())
}

fn add_to(world: &mut World, target: usize, fault: Fault) {
    world.trace.record("fault of the target", &[target as u64]);
    world.targets[target].config_mut().faults.push(fault);
}

/// Loses the power of a unit, with its connections or without.
pub(super) fn crash(world: &mut World, rng: &mut Rng) {
    world.counts.fault(Class::Crash);
    let restarts = rng.percent(50);
    let unit = world.units.any(rng);
    world.trace.record(if restarts { "restart" } else { "power loss" }, &[unit as u64]);
    if restarts {
        world.restart(unit);
    } else {
        world.lose_power(unit);
    }
}
