//! What goes wrong, and when: drawn for each episode.

mod exchange;
mod link;
mod medium;
mod topology;
mod unit;

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use crate::rng::Rng;
use crate::settings::{Class, Settings};
use crate::world::{MAX_LATE, Reachability, Shared, World};

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
    /// Draws which classes an episode has, and how often they come. In some only links fail: what follows
    /// from that drowns in all the rest.
    pub(crate) fn drawn(shared: Arc<Shared>, settings: &Settings, mut rng: Rng) -> Self {
        let is_about_links = rng.percent(30);
        let mut has = |class: &Class| {
            (!is_about_links || class.is_about_links()) && rng.percent(class.chance())
        };
        let classes = settings.classes.iter().copied().filter(|class| has(class)).collect();
        let max_pause = 1 << rng.within(9..16);
        Self { shared, rng, classes, max_pause }
    }

    /// Faults of the same kind, for another phase.
    pub(crate) fn again(&mut self) -> Self {
        let (shared, classes) = (Arc::clone(&self.shared), self.classes.clone());
        Self { shared, rng: self.rng.fork(), classes, max_pause: self.max_pause }
    }

    /// Those that this episode has.
    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    pub(crate) fn has(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }

    /// Makes faults until it is dropped.
    pub(crate) async fn run(mut self) {
        {
            let mut world = self.shared.lock();
            world.max_late = if self.has(Class::Late) { MAX_LATE } else { 0 };
            world.wrong_since = Some(Instant::now());
        }
        let mut events = self.classes.clone();
        events.retain(|class| class.is_event());
        loop {
            sleep(self.rng.any_scale(self.max_pause)).await;
            let Some(class) = self.rng.pick(&events).copied() else { return };
            let mut world = self.shared.lock();
            self.rng = one(&mut world, class, self.has(Class::Refuse), self.rng.clone());
            drop(world);
            self.shared.moved.notify_one();
        }
    }
}

/// Makes one fault, in an episode whose portals refuse connections, or in one where they do not.
fn one(world: &mut World, class: Class, refuses: bool, mut rng: Rng) -> Rng {
    match class {
        Class::Cut => link::cut(world, &mut rng, refuses),
        Class::Stall => link::stall(world, &mut rng),
        Class::Refuse => link::refuse(world, &mut rng),
        Class::Busy => unit::busy(world, &mut rng),
        Class::Hole => unit::hole(world, &mut rng),
        Class::Slow => unit::slow(world, &mut rng),
        Class::Zombie => unit::zombie(world, &mut rng),
        Class::Crash => unit::crash(world, &mut rng),
        Class::Reset => exchange::reset(world, &mut rng),
        Class::Deferred => medium::fail_write_back(world, &mut rng),
        Class::WriteCache => medium::switch_cache(world, &mut rng),
        Class::Capacity => exchange::capacity(world, &mut rng),
        Class::BlockSize => exchange::block_size(world, &mut rng),
        Class::Exchange => exchange::exchange(world, &mut rng),
        Class::Reorder => medium::reorder(world, &mut rng),
        Class::Medium => medium::fail(world, &mut rng),
        Class::Standby => topology::standby(world, &mut rng),
        Class::Death | Class::Dropped | Class::Late | Class::EachHandle | Class::AfterClose => {}
    }
    rng
}

/// Mends all that can be mended: from now on nothing goes wrong.
pub(crate) fn heal(world: &mut World) {
    world.trace.note("heal", &[]);
    topology::heal(world);
    world.portals.iter_mut().for_each(|portal| portal.reachability = Reachability::Open);
    let now = Instant::now();
    for wire in world.wires.values_mut() {
        wire.to_target.stall(now);
        wire.to_initiator.stall(now);
    }
    for target in &mut world.targets {
        let config = target.config_mut();
        config.faults.clear();
        config.execution_delays.clear();
    }
    exchange::restore(world);
}
