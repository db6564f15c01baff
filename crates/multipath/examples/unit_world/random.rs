//! Runs random episodes of a larger world, each from its seed.

use std::sync::Arc;
use std::time::Instant;

use crate::world::{Action, Budget, Seen, Settings, Wish, World};

/// A generator of random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn up_to(&mut self, most: u32) -> u32 {
        self.below(u64::from(most) + 1) as u32
    }
}

/// Result of an episode.
#[derive(Debug)]
pub struct Episode {
    pub seen: Seen,
    pub violation: Option<(String, Vec<Action>)>,
}

/// Creates the settings of an episode. On average half of the event limits (`Budget`) are 0, so that one kind
/// of event does not hide another.
fn settings(rng: &mut Rng) -> Settings {
    let disks = 1 + rng.below(2) as usize;
    let paths_of_each = 1 + rng.below(if disks == 1 { 4 } else { 2 }) as usize;
    let blocks = 1 + rng.below(8) as usize;
    let mut some = |most: u32| if rng.below(2) == 0 { 0 } else { rng.up_to(most) };
    let is_known = some(3) > 0;
    let is_unordered = some(3) > 1;
    let budget = Budget {
        losses: some(6),
        resets: some(4),
        timers: u32::MAX,
        cancels: some(4),
        troubles: some(12),
        // Exchanges of the unit need a known unit, because the machine cannot distinguish an unknown unit from
        // another one. Also, if statuses arrive in any order, the response of another unit may arrive before
        // the report of the exchange.
        exchanges: if is_known && !is_unordered { some(2) } else { 0 },
        access: some(8),
        closes: some(2),
        destages: some(8),
    };
    let wishes = 4 + rng.below(12);
    let wish = |_| {
        let start = rng.below(blocks as u64) as usize;
        let end = start + 1 + rng.below((blocks - start).min(3) as u64) as usize;
        match rng.below(8) {
            0..=4 => Wish::Write(start..end),
            5 => Wish::Read(start..end),
            _ => Wish::Flush,
        }
    };
    let wishes = (0..wishes).map(wish).collect();
    Settings {
        disks,
        paths_of_each,
        blocks,
        is_known,
        prefers: false,
        has_unsent: true,
        attends_login: rng.below(2) == 0,
        has_time: true,
        is_unordered,
        is_ordered: false,
        budget,
        wishes,
        credit: 1 + rng.below(8) as u32,
    }
}

/// Returns the weight of an action in the random choice.
fn weight(action: &Action) -> u64 {
    match action {
        Action::Submit { .. } => 12,
        Action::Execute { .. } => 24,
        Action::Deliver { .. } => 40,
        Action::Abort { .. } | Action::Withdraw { .. } => 20,
        Action::Login { .. } | Action::Opened { .. } => 8,
        Action::Fire => 6,
        Action::Pass { .. } | Action::Again | Action::Heal => 10,
        Action::Exchange | Action::Ports => 4,
        Action::Cancel { .. } | Action::Reset | Action::Lose { .. } => 2,
        Action::Trouble { .. }
        | Action::Port { .. }
        | Action::Close { .. }
        | Action::Destage { .. }
        | Action::DeferredError => 1,
    }
}

/// Creates the world of an episode.
pub fn world(seed: u64, start: Instant) -> World {
    World::new(&Arc::new(settings(&mut Rng::new(seed))), start)
}

/// Runs one episode: rounds of requests with faults. After the last round all faults end, and every request
/// has to end.
pub fn episode(seed: u64, start: Instant) -> Episode {
    let mut rng = Rng::new(seed);
    let settings = Arc::new(settings(&mut rng));
    let mut world = World::new(&settings, start);
    let mut rounds = 1 + rng.below(4);
    let mut trace = Vec::new();
    let mut heals = false;
    loop {
        let mut actions = world.actions();
        actions.push(Action::Pass { exponent: pass(&mut rng) });
        let total: u64 = actions.iter().map(weight).sum();
        let mut place = rng.below(total);
        let chosen = actions.iter().find(|action| {
            let weight = weight(action);
            let is_it = place < weight;
            place = place.saturating_sub(weight);
            is_it
        });
        let action = *chosen.unwrap_or(&Action::Pass { exponent: 0 });
        trace.push(action);
        if let Err(why) = world.take(action) {
            return Episode { seen: world.seen, violation: Some((why, trace)) };
        }
        if world.all_submitted() && rounds > 0 {
            rounds -= 1;
            trace.push(Action::Again);
            world.take(Action::Again).ok();
        }
        if rounds == 0 && !heals && world.all_submitted() {
            heals = true;
            trace.push(Action::Heal);
            if let Err(why) = world.take(Action::Heal) {
                return Episode { seen: world.seen, violation: Some((why, trace)) };
            }
        }
        let is_over = heals && world.in_flight() == 0 && world.is_quiet();
        if is_over {
            let violation = world.check_end().err().map(|why| (why, trace));
            return Episode { seen: world.seen, violation };
        }
        if trace.len() > 20_000 {
            let violation = Some((format!("it does not end: {}", world.describe()), trace));
            return Episode { seen: world.seen, violation };
        }
    }
}

/// Returns an exponent that selects the time that passes: usually a short time, sometimes minutes, and rarely
/// the clock jumps by days.
fn pass(rng: &mut Rng) -> u8 {
    match rng.below(64) {
        0 => 27,
        1..=3 => 16,
        4..=8 => 12,
        _ => rng.below(8) as u8,
    }
}
