//! Tests of properties that hold for any tree under any load.
#![allow(clippy::expect_used, reason = "helpers of tests")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::cast_precision_loss, reason = "shares are rounded numbers")]

mod simulated;

use std::time::Duration;

use iscsi_shaper::{Class, ClassId, Rate, RateLimit};
use proptest::prelude::*;

use crate::simulated::{Client, Simulation};

/// Rate of the root, in bits per second.
const ROOT: u64 = 10_000_000;

/// A class to add, and the client that sends in it. Rate and ceil are percentages of what is possible for the
/// class, so that any values make a valid tree.
#[derive(Clone, Debug)]
struct Planned {
    parent: usize,
    /// Rate, as a percentage of the rate that its parent can still guarantee.
    rate: u64,
    /// Ceil, as a percentage of the range from its rate to the rate of the root.
    ceil: u64,
    priority: u8,
    weight: Option<u64>,
    len: u64,
    depth: usize,
}

fn any_class() -> impl Strategy<Value = Planned> {
    let weight = proptest::option::of(1_u64..100);
    (any::<usize>(), 0_u64..=100, 0_u64..=100, 0_u8..=7, weight, 2000_u64..200_000, 0_usize..5)
        .prop_map(|(parent, rate, ceil, priority, weight, len, depth)| Planned {
            parent,
            rate,
            ceil,
            priority,
            weight,
            len,
            depth,
        })
}

/// A class of the tree that was built.
struct Built {
    id: ClassId,
    parent: Option<usize>,
    rate: u64,
    ceil: u64,
    /// Rate that the class can still guarantee to further children, in bits per second.
    left: u64,
    has_children: bool,
}

fn limited(bits: u64) -> RateLimit {
    Rate::from_bits_per_second(bits).map_or(RateLimit::Zero, RateLimit::Limited)
}

fn build(planned: &[Planned]) -> (Simulation, Vec<Built>) {
    let mut simulation = Simulation::new(Class::new(limited(ROOT)));
    let (id, now) = (simulation.tree.root(), simulation.now);
    let root = Built { id, parent: None, rate: ROOT, ceil: ROOT, left: ROOT, has_children: false };
    let mut built = vec![root];
    for plan in planned {
        let parent = plan.parent % built.len();
        let rate = built[parent].left * plan.rate / 100;
        let rate = if rate < 1000 { 0 } else { rate };
        let ceil = (rate + (ROOT - rate) * plan.ceil / 100).max(10_000);
        let class = Class::new(limited(rate)).with_ceil(limited(ceil));
        let class = class.with_priority(plan.priority).with_weight(plan.weight);
        let Ok(id) = simulation.tree.add(built[parent].id, class, now) else { continue };
        built[parent].left -= rate;
        built[parent].has_children = true;
        let parent = Some(parent);
        built.push(Built { id, parent, rate, ceil, left: rate, has_children: false });
        simulation.clients.push(Client { class: id, len: plan.len, depth: plan.depth });
    }
    // Classes with children send nothing themselves.
    for (client, class) in simulation.clients.iter_mut().zip(&built[1..]) {
        client.depth = if class.has_children { 0 } else { client.depth };
    }
    (simulation, built)
}

/// Returns whether a class is below another one, or is that class.
fn is_below(built: &[Built], mut class: usize, above: usize) -> bool {
    loop {
        if class == above {
            return true;
        }
        let Some(parent) = built[class].parent else { return false };
        class = parent;
    }
}

fn burst(rate: u64) -> f64 {
    rate as f64 / 8.0 * Class::TIME_SLICE.as_secs_f64() + 1.0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_ceil_is_exceeded_and_every_rate_is_kept(
        planned in proptest::collection::vec(any_class(), 1..12),
        pause in any::<Option<usize>>(),
    ) {
        let (mut simulation, built) = build(&planned);
        let time = Duration::from_secs(10);
        simulation.run(time);
        let longest = planned.iter().map(|class| class.len).max().unwrap_or(0) as f64;
        let sum_of_lens: f64 = planned.iter().map(|class| class.len as f64).sum();
        for (at, class) in built.iter().enumerate() {
            // In any period, a class and all classes below it send at most what the ceil brings, a burst and a
            // request. Guaranteed bytes that were delayed by requests of other classes are sent later, in
            // addition.
            let late = if at == 0 { 0.0 } else { sum_of_lens };
            let excess = simulation.excess(class.ceil as f64, |of| is_below(&built, of + 1, at));
            prop_assert!(excess <= burst(class.ceil) + longest + late, "{at}: {excess}");
        }
        let rates = simulation.rates_since(Duration::ZERO);
        for (client, class) in built[1..].iter().enumerate() {
            if simulation.clients[client].depth == 0 {
                continue;
            }
            // The client gets at least the lowest of its rate and of all ceils on its path.
            let ceils = (0..built.len()).filter(|above| is_below(&built, client + 1, *above));
            let allowed = ceils.map(|above| built[above].ceil).min().unwrap_or(0).min(class.rate);
            let sent = rates[client] * 1e6 / 8.0 * time.as_secs_f64();
            let due = allowed as f64 / 8.0 * time.as_secs_f64();
            prop_assert!(sent + sum_of_lens + longest >= due, "{client}: {sent} of {due}");
        }
        // The bound of the root also holds later, when one client has paused and the other clients had its share.
        if let Some(pause) = pause {
            simulation.pause(pause % simulation.clients.len());
            simulation.run(time);
            let excess = simulation.excess(ROOT as f64, |_| true);
            prop_assert!(excess <= burst(ROOT) + longest, "{excess}");
        }
    }

    /// The root has no tokens left while a class without a ceil has a request waiting.
    #[test]
    fn nothing_that_there_is_is_left_while_somebody_may_have_it(
        planned in proptest::collection::vec(any_class(), 0..12),
        len in 2000_u64..200_000,
    ) {
        let (mut simulation, _) = build(&planned);
        let root = simulation.tree.root();
        let greedy = Class::new(RateLimit::Zero).with_ceil(RateLimit::Unlimited).with_priority(7);
        let class = simulation.tree.add(root, greedy, simulation.now).unwrap();
        simulation.clients.push(Client { class, len, depth: 1 });
        let time = Duration::from_secs(10);
        simulation.run(time);
        let sent: u64 = simulation.sent.iter().map(|sent| sent.bytes).sum();
        prop_assert!(sent as f64 >= ROOT as f64 / 8.0 * time.as_secs_f64(), "{sent}");
    }

    /// While classes are added, changed and removed, and requests cancelled and corrected, every request is
    /// granted or cancelled exactly once.
    #[test]
    fn every_request_is_granted_or_cancelled_once(
        planned in proptest::collection::vec(any_class(), 1..8),
        steps in proptest::collection::vec((0_u8..6, any::<usize>(), any_class()), 1..100),
    ) {
        let (mut simulation, built) = build(&planned);
        let mut ids: Vec<_> = built.iter().map(|class| class.id).collect();
        let (tree, mut now) = (&mut simulation.tree, simulation.now);
        let (mut waiting, mut requested, mut ended) = (Vec::new(), 0_u32, 0_u32);
        for (kind, which, plan) in steps {
            let id = ids[which % ids.len()];
            let class = Class::new(limited(plan.rate * 10_000)).with_ceil(limited(plan.ceil * 100_000));
            match kind {
                0 => ids.extend(tree.add(id, class, now)),
                1 => drop(tree.change(id, class, now)),
                2 => drop(tree.remove(id, now)),
                3 if !waiting.is_empty() => {
                    let ticket = waiting.swap_remove(which % waiting.len());
                    prop_assert!(tree.cancel(ticket, now));
                    prop_assert!(!tree.cancel(ticket, now));
                    ended += 1;
                }
                _ => {
                    waiting.push(tree.request(id, plan.len, now));
                    requested += 1;
                }
            }
            while let Some(grant) = tree.poll_grant(now) {
                let at = waiting.iter().position(|ticket| *ticket == grant.ticket);
                prop_assert!(at.is_some(), "granted once");
                waiting.swap_remove(at.unwrap());
                ended += 1;
                if which % 3 == 0 {
                    tree.correct(&grant, plan.rate, now);
                }
            }
            now += Duration::from_millis(plan.ceil);
        }
        while let Some(next) = tree.poll_timeout() {
            now = now.max(next);
            let grant = tree.poll_grant(now);
            prop_assert!(grant.is_some(), "what is said to be ready is");
            waiting.retain(|ticket| Some(*ticket) != grant.map(|grant| grant.ticket));
            ended += 1;
        }
        prop_assert_eq!((waiting.len(), ended), (0, requested));
    }
}
