//! What goes wrong, and when: drawn for each episode.

use std::sync::Arc;
use std::time::Duration;

use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::Access;
use tokio::time::{Instant, sleep};

use crate::rng::Rng;
use crate::settings::{Class, Settings};
use crate::world::{Reachability, Shared, World};

/// A stall that lasts until all is mended.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// How late bytes may arrive, milliseconds.
const MAX_LATE: u64 = 1 << 18;

/// The faults of one episode.
pub(crate) struct Faults {
    shared: Arc<Shared>,
    rng: Rng,
    /// Those that this episode has.
    classes: Vec<Class>,
    /// Between two of them, milliseconds at most.
    max_pause: u64,
}

impl Faults {
    /// Draws which classes an episode has, and how often they come.
    pub(crate) fn drawn(shared: Arc<Shared>, settings: &Settings, mut rng: Rng) -> Self {
        let classes = settings.classes.iter().copied().filter(|_| rng.percent(60)).collect();
        let max_pause = 1 << rng.within(9..16);
        Self { shared, rng, classes, max_pause }
    }

    /// Faults of the same kind, for another phase.
    pub(crate) fn again(&mut self) -> Self {
        let (shared, classes) = (Arc::clone(&self.shared), self.classes.clone());
        Self { shared, rng: self.rng.fork(), classes, max_pause: self.max_pause }
    }

    pub(crate) fn has(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }

    /// Makes faults until it is dropped.
    pub(crate) async fn run(mut self) {
        self.shared.lock().max_late = if self.has(Class::Late) { MAX_LATE } else { 0 };
        loop {
            sleep(self.rng.any_scale(self.max_pause)).await;
            let Some(class) = self.rng.pick(&self.classes).copied() else { return };
            let mut world = self.shared.lock();
            self.rng = one(&mut world, class, self.rng.clone());
            drop(world);
            self.shared.moved.notify_one();
        }
    }
}

/// Makes one fault.
fn one(world: &mut World, class: Class, mut rng: Rng) -> Rng {
    match class {
        Class::Cut => {
            if let Some(number) = any_wire(world, &mut rng) {
                world.cut(number);
            }
        }
        Class::Stall => stall(world, &mut rng),
        Class::Refuse => {
            let portal = rng.index(0..world.portals.len());
            let states = [Reachability::Open, Reachability::Refuses, Reachability::Dark];
            if let (Some(state), Some(portal)) =
                (rng.pick(&states).copied(), world.portals.get_mut(portal))
            {
                portal.reachability = state;
            }
        }
        Class::Busy => {
            let times = u32::try_from(rng.within(1..6)).unwrap_or(1);
            let fault = if rng.percent(50) {
                Fault::busy(.., times)
            } else {
                Fault::task_set_full(.., times)
            };
            add(world, fault, &mut rng);
        }
        Class::Slow => {
            let fault = Fault::delay(.., rng.any_scale(20_000)).times(1);
            let access = if rng.percent(50) { Access::Write } else { Access::Read };
            add(world, fault.on_access(access), &mut rng);
        }
        Class::Zombie => {
            let fault = Fault::execute_late(.., rng.any_scale(MAX_LATE)).times(1);
            add(world, fault, &mut rng);
        }
        Class::Crash => crash(world, &mut rng),
        Class::Dropped | Class::Late | Class::EachHandle | Class::AfterClose => {}
    }
    rng
}

fn any_wire(world: &World, rng: &mut Rng) -> Option<u64> {
    let open = world.wires.iter().filter(|(_, wire)| !wire.is_closed && !wire.is_reset);
    let open: Vec<u64> = open.map(|(number, _)| *number).collect();
    rng.pick(&open).copied()
}

fn stall(world: &mut World, rng: &mut Rng) {
    let Some(number) = any_wire(world, rng) else { return };
    let lasts = if rng.percent(10) { FOR_EVER } else { rng.any_scale(90_000) };
    let until = Instant::now() + lasts;
    let which = rng.within(0..3);
    if let Some(wire) = world.wire(number) {
        if which != 0 {
            wire.to_target.stall(until);
        }
        if which != 1 {
            wire.to_initiator.stall(until);
        }
    }
    world.trace.note("stall", &[number, which, lasts.as_secs()]);
}

fn add(world: &mut World, fault: Fault, rng: &mut Rng) {
    let target = rng.index(0..world.targets.len());
    world.trace.note("fault of the target", &[target as u64]);
    world.targets[target].config_mut().faults.push(fault);
}

/// Power is lost, with the connections or without.
fn crash(world: &mut World, rng: &mut Rng) {
    if rng.percent(50) {
        world.trace.note("restart", &[]);
        world.targets.iter_mut().for_each(iscsi_testkit::target::Target::restart);
    } else {
        world.trace.note("power loss", &[]);
        if let Some(disk) = world.targets[0].disk(0) {
            disk.lose_power();
        }
    }
    world.oracle.crashed();
}

/// Mends all that can be mended: from now on nothing goes wrong.
pub(crate) fn heal(world: &mut World) {
    world.trace.note("heal", &[]);
    world.portals.iter_mut().for_each(|portal| portal.reachability = Reachability::Open);
    let now = Instant::now();
    for wire in world.wires.values_mut() {
        wire.to_target.stall(now);
        wire.to_initiator.stall(now);
    }
    world.targets.iter_mut().for_each(|target| target.config_mut().faults.clear());
}
