use std::sync::Arc;
use std::time::Instant;

use crate::world::Seen;
use crate::{random, search, small};

/// Maximum number of states of all small worlds together. It is well above the real number.
const MAX_STATES: usize = 500_000;

/// No check of the model fails in any order of events in a small world, and each kind of event occurs in
/// some world.
#[test]
fn no_state_of_a_small_world_breaks_a_promise() {
    let mut seen = Seen::default();
    for (name, settings) in small::quick() {
        let report = search::search(&Arc::new(settings), Instant::now(), MAX_STATES);
        if let Some((why, trace)) = report.violation {
            panic!("{name}: {why}, after {trace:#?}");
        }
        assert!(report.is_complete, "{name} has more states than are searched");
        assert!(report.terminal > 0, "{name} never comes to an end");
        seen.add(&report.seen);
    }
    assert!(seen.late_executions > 0, "no copy is executed after its session was lost");
    assert!(seen.losses_reported > 0, "no flush reports a loss");
    assert!(seen.hedges_won > 0, "no second copy wins");
    assert!(seen.witnesses > 0, "no witness is asked");
    assert!(seen.flushes > 0, "no flush is answered");
}

/// No check of the model fails in any random episode of a larger world, with all events of targets and
/// paths.
#[test]
fn no_random_episode_breaks_a_promise() {
    let start = Instant::now();
    let mut seen = Seen::default();
    for seed in 0..2000 {
        let episode = random::episode(seed, start);
        if let Some((why, trace)) = episode.violation {
            panic!(
                "seed {seed}: {why}, after {} steps; see `unit_world replay {seed}`",
                trace.len()
            );
        }
        seen.add(&episode.seen);
    }
    assert!(seen.in_doubt_waits > 0 && seen.late_executions > 0 && seen.hedges_won > 0, "{seen:?}");
    assert!(seen.losses_reported > 0 && seen.witnesses > 0, "{seen:?}");
}
