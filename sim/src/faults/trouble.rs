//! Troubles: faults with a beginning and an end, one at a time.

use std::time::Duration;

use iscsi_testkit::config::Presence;
use iscsi_testkit::target::Target;
use tokio::time::Instant;

use crate::busy::SlowStore;
use crate::rng::Rng;
use crate::settings::Class;
use crate::world::{Reachability, World};

/// Longest start of a target, milliseconds: less than the retry timeout of a disk.
const MAX_STARTUP: u64 = 200_000;
/// Longest busy period. The time limit of a command is 60 s.
const MAX_BUSY: Duration = Duration::from_secs(55);
/// Limits for the length of a partition, milliseconds. Some partitions last longer than the retry timeout of a disk.
const MAX_PARTITION: u64 = 600_000;
const LONG_PARTITION: u64 = 200_000;
/// Longest time for which the processes are stopped, milliseconds.
const MAX_STOP: u64 = 1 << 20;

/// Begins a trouble and returns how long it lasts.
type Begin = fn(&mut World, &mut Rng) -> Duration;

/// Begins a trouble, and returns how long it lasts.
pub(super) fn begin(world: &mut World, class: Class, rng: &mut Rng) -> Duration {
    world.losses.reason();
    world.has_trouble = true;
    let begins: [(Class, Begin); 5] = [
        (Class::Startup, start_anew),
        (Class::BusyTarget, silence),
        (Class::SlowStore, slow_down),
        (Class::Partition, cut_off),
        (Class::Stop, stop),
    ];
    let begin = begins.into_iter().find(|(known, _)| *known == class);
    begin.map_or(Duration::ZERO, |(_, begin)| begin(world, rng))
}

/// Ends the current trouble.
pub(super) fn end(world: &mut World) {
    if !std::mem::take(&mut world.has_trouble) {
        return;
    }
    world.losses.reason();
    for target in &mut world.targets {
        let config = target.config_mut();
        (config.login.refuse, config.presence) = (None, Presence::Served);
    }
    world.silences.clear();
    world.slow_store = None;
    world.wires.values_mut().for_each(|wire| wire.unread.heal());
    if let Some(portal) = world.cut_off.take() {
        world.portals[portal].reachability = Reachability::Open;
    }
}

/// Restarts all targets after a loss of power, or drops the connections of some targets. Then the targets
/// refuse logins, or have no units, for a while.
fn start_anew(world: &mut World, rng: &mut Rng) -> Duration {
    let lasts = rng.any_scale(MAX_STARTUP);
    let one = rng.index(0..world.targets.len());
    let which = if rng.percent(60) { 0..world.targets.len() } else { one..one + 1 };
    let has_lost_power = which.len() == world.targets.len() && rng.percent(50);
    let refusals = [(2, 1), (2, 2), (2, 3), (3, 0), (3, 1)];
    let refusal = rng.pick(&refusals).copied().filter(|_| rng.percent(60));
    let presences = [Presence::BecomingReady, Presence::Missing];
    let presence = rng.pick(&presences).copied().unwrap_or_default();
    if has_lost_power {
        (0..world.units.count()).for_each(|unit| world.keep_a_part(unit));
    }
    for target in &mut world.targets[which.clone()] {
        if has_lost_power {
            target.restart()
        } else {
            target.drop_connections()
        }
        let config = target.config_mut();
        match refusal {
            Some(_) => config.login.refuse = refusal,
            None => config.presence = presence,
        }
    }
    if has_lost_power {
        world.oracle.crashed();
    }
    world.counts.fault(Class::Startup);
    let (class, detail) = refusal.unwrap_or_default();
    let numbers =
        [which.start as u64, which.len() as u64, class.into(), detail.into(), lasts.as_secs()];
    world.trace.record("a target starts", &numbers);
    lasts
}

/// Makes one target busy, or sometimes all.
fn silence(world: &mut World, rng: &mut Rng) -> Duration {
    let lasts = if rng.percent(50) { rng.any_scale(40_000) } else { rng.millis(30_000..55_000) };
    let lasts = lasts.min(MAX_BUSY);
    let one = rng.index(0..world.targets.len());
    let which = if rng.percent(30) { 0..world.targets.len() } else { one..one + 1 };
    which.for_each(|target| world.silence(target, lasts));
    lasts
}

/// Makes flushes take time for each block that they write.
fn slow_down(world: &mut World, rng: &mut Rng) -> Duration {
    let ping = rng.percent(30).then(|| Duration::from_secs(30));
    let block = rng.any_scale(4_000);
    world.slow_store = Some(SlowStore { block, max: MAX_BUSY, ping });
    rng.any_scale(400_000)
}

/// Cuts a portal off, in one direction or both.
fn cut_off(world: &mut World, rng: &mut Rng) -> Duration {
    let any = rng.index(0..world.portals.len());
    let open = world.wires.values().filter(|wire| !wire.is_closed && !wire.is_reset);
    let used: Vec<_> = open.map(|wire| wire.portal).collect();
    let portal = rng.pick(&used).copied().filter(|_| rng.percent(80)).unwrap_or(any);
    let lasts = if rng.percent(50) {
        rng.any_scale(LONG_PARTITION)
    } else {
        rng.millis(LONG_PARTITION..MAX_PARTITION)
    };
    let which = rng.within(0..3);
    world.portals[portal].reachability = Reachability::Dark;
    world.cut_off = Some(portal);
    let until = Instant::now() + lasts;
    for wire in world.wires.values_mut().filter(|wire| wire.portal == portal) {
        if which != 0 {
            wire.to_target.stall_at_least(until);
        }
        if which != 1 {
            wire.to_initiator.stall_at_least(until);
        }
    }
    world.counts.fault(Class::Partition);
    world.trace.record("a portal is cut off", &[portal as u64, which, lasts.as_secs()]);
    lasts
}

/// Stops all processes. Sometimes the targets have dropped all connections when the processes go on.
fn stop(world: &mut World, rng: &mut Rng) -> Duration {
    let lasts = rng.any_scale(MAX_STOP);
    world.counts.fault(Class::Stop);
    world.trace.record("all processes stop", &[lasts.as_secs()]);
    if lasts > Duration::from_secs(30) && rng.percent(30) {
        world.targets.iter_mut().for_each(Target::drop_connections);
    }
    lasts
}
