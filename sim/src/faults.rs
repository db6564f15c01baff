//! The faults of an episode, drawn at random with their times.

mod another;
mod exchange;
mod link;
mod medium;
mod topology;
mod trouble;
mod unit;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};

use crate::clock;
use crate::rng::Rng;
use crate::settings::{Class, Settings};
use crate::world::{MAX_LATE, Reachability, Shared, World};

/// Separates the random draws of troubles (faults with a beginning and an end) from all others.
const TROUBLES: u64 = 0x7472_6f75_626c_6573;
/// Separates the random draws for torn caches (a loss of power loses only a part of a cache) from all others.
const TORN: u64 = 0x746f_726e;
/// Percentage of episodes with torn caches: a loss of power loses only a part of each cache.
const TORN_SHARE: u64 = 60;
/// Percentage of episodes with troubles (faults with a beginning and an end). `ALONE` is the percentage of
/// these episodes that have no other fault.
const SHARE: u64 = 25;
const ALONE: u64 = 60;
/// Shortest time between two troubles in an episode without other faults: the longest pause before a
/// reconnect, and the duration of an attempt. After refused credentials the pause lasts as long as the
/// refusals did, so the duration of the trouble is added.
const CALM: Duration = Duration::from_secs(60);

/// Shortest time limit of a phase whose only fault is a trouble: the effects must have time to show.
const LONG_PHASE: Duration = Duration::from_secs(500);

/// The faults of one episode.
pub(crate) struct Faults {
    shared: Arc<Shared>,
    rng: Rng,
    /// Classes of this episode.
    classes: Vec<Class>,
    /// Longest pause between two faults, milliseconds.
    max_pause: u64,
    /// Random generator for troubles and torn caches, separate from `rng`: its draws do not change the other
    /// faults.
    beside: Rng,
    /// The class of the troubles, if they are of one class and the only faults besides torn caches.
    alone: Option<Class>,
}

impl Faults {
    /// Draws the classes of an episode and their frequency. In some episodes only links fail, because other
    /// faults would hide the effects of failed links.
    pub(crate) fn drawn(shared: Arc<Shared>, settings: &Settings, mut rng: Rng) -> Self {
        let mut beside = rng.beside(TROUBLES);
        let is_about_links = rng.percent(30);
        let mut has = |class: &Class| {
            (!is_about_links || class.is_about_links()) && rng.percent(class.chance())
        };
        let known = settings.classes.iter().copied().filter(|class| *class != Class::Torn);
        let (troubles, others): (Vec<_>, Vec<_>) = known.partition(|class| class.is_trouble());
        let mut classes: Vec<_> = others.into_iter().filter(|class| has(class)).collect();
        let max_pause = 1 << rng.within(9..16);
        let mut alone = None;
        if beside.percent(SHARE) {
            if beside.percent(ALONE) {
                alone = beside.pick(&troubles).copied();
                classes = alone.into_iter().collect();
            } else {
                classes.extend(troubles.into_iter().filter(|_| beside.percent(50)));
            }
        }
        if settings.has(Class::Torn) && beside.beside(TORN).percent(TORN_SHARE) {
            classes.push(Class::Torn);
        }
        Self { shared, rng, classes, max_pause, beside, alone }
    }

    /// Returns faults of the same classes, for another phase.
    pub(crate) fn again(&mut self) -> Self {
        let (shared, classes) = (Arc::clone(&self.shared), self.classes.clone());
        let (rng, beside) = (self.rng.fork(), self.beside.fork());
        Self { shared, rng, beside, classes, ..*self }
    }

    /// Returns the classes of this episode.
    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    pub(crate) fn has(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }

    /// Returns the longest pause of users between two requests, milliseconds. If a trouble is the only fault,
    /// the pause is long, so that the requests are not all made before the trouble begins.
    pub(crate) const fn pause_of_users(&self, milliseconds: u64) -> u64 {
        if self.alone.is_some() && milliseconds < 1 << 13 { 1 << 13 } else { milliseconds }
    }

    /// Returns the time limit of a phase.
    pub(crate) fn phase(&self, limit: Duration) -> Duration {
        if self.alone.is_some() { limit.max(LONG_PHASE) } else { limit }
    }

    /// Makes faults until the future is dropped.
    pub(crate) async fn run(mut self) {
        {
            let mut world = self.shared.lock();
            world.max_late = if self.has(Class::Late) { MAX_LATE } else { 0 };
            world.wrong_since = Some(Instant::now());
            world.alone = self.alone;
            self.tear(&mut world);
        }
        let troubles = self.again_beside().troubles();
        tokio::join!(Box::pin(troubles), Box::pin(self.events()));
    }

    /// If the episode has the class [`Class::Torn`], makes drives write parts of their caches back without a
    /// request, and makes commands that are ended early execute in part.
    fn tear(&self, world: &mut World) {
        let mut rng = self.beside.beside(TORN);
        let tears = self.has(Class::Torn);
        for target in &mut world.targets {
            target.config_mut().torn_commands = tears.then(|| rng.next());
        }
        world.torn = tears.then(|| rng.fork());
    }

    fn again_beside(&mut self) -> Self {
        let (shared, classes) = (Arc::clone(&self.shared), self.classes.clone());
        let (rng, beside) = (self.rng.clone(), self.beside.fork());
        Self { shared, rng, beside, classes, ..*self }
    }

    /// Begins and ends troubles, one after the other.
    async fn troubles(mut self) {
        self.classes.retain(|class| class.is_trouble());
        let mut calm = Duration::ZERO;
        loop {
            sleep(calm + self.beside.any_scale(self.max_pause)).await;
            let Some(class) = self.beside.pick(&self.classes).copied() else { return };
            let lasts = trouble::begin(&mut self.shared.lock(), class, &mut self.beside);
            self.shared.moved.notify_one();
            if class == Class::Stop {
                suspend(&self.shared, lasts).await;
            } else {
                sleep(lasts).await;
            }
            trouble::end(&mut self.shared.lock());
            self.shared.moved.notify_one();
            if self.alone.is_some() {
                calm = CALM + lasts;
            }
        }
    }

    /// Makes faults that take effect immediately, one after the other.
    async fn events(mut self) {
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

/// Stops all processes for a time, as SIGSTOP does. Data still arrives in their sockets. Afterwards all overdue
/// timers fire immediately.
async fn suspend(shared: &Shared, lasts: Duration) {
    go_on_alone(shared, lasts);
    clock::add_stop(lasts);
    advance(lasts).await;
}

fn go_on_alone(shared: &Shared, lasts: Duration) {
    let mut world = shared.lock();
    let begun = Instant::now();
    loop {
        let next = world.turn().unwrap_or(begun + lasts);
        let elapsed = next.duration_since(begun);
        if elapsed >= lasts {
            break;
        }
        clock::set_ahead(elapsed);
    }
    clock::set_ahead(Duration::ZERO);
}

/// Makes one fault. `refuses` says whether portals of this episode refuse connections.
fn one(world: &mut World, class: Class, refuses: bool, mut rng: Rng) -> Rng {
    match class {
        Class::Cut => link::cut(world, &mut rng, refuses),
        Class::Stall => link::stall(world, &mut rng),
        Class::Refuse => link::refuse(world, &mut rng),
        Class::Busy => unit::busy(world, &mut rng),
        Class::Hole => unit::hole(world, &mut rng),
        Class::Slow => unit::slow(world, &mut rng),
        Class::Zombie => unit::zombie(world, &mut rng),
        Class::Crash => {
            unit::crash(world, &mut rng);
            another::fail(world, &mut rng, refuses);
        }
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
        Class::Torn => {}
        Class::Startup | Class::BusyTarget | Class::SlowStore | Class::Partition | Class::Stop => {}
    }
    rng
}

/// Ends all faults that can be ended.
pub(crate) fn heal(world: &mut World) {
    world.trace.record("heal", &[]);
    topology::heal(world);
    trouble::end(world);
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
