//! Searches all states of a small world, breadth first. So the trace of the first violation is the shortest
//! one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Instant;

use crate::world::{Action, Seen, Settings, World};

/// A hasher that returns its input, because a fingerprint is a hash already.
#[derive(Clone, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Result of a search.
#[derive(Debug)]
pub struct Report {
    pub states: usize,
    pub steps: u64,
    pub depth: usize,
    pub terminal: u64,
    pub seen: Seen,
    /// The failed check, and the steps that lead to it.
    pub violation: Option<(String, Vec<Action>)>,
    pub is_complete: bool,
}

/// Visits all states, or at most `most` of them.
pub fn search(settings: &Arc<Settings>, start: Instant, most: usize) -> Report {
    let first = World::new(settings, start);
    let mut visited: HashMap<u64, (), BuildHasherDefault<Identity>> = HashMap::default();
    visited.insert(first.fingerprint(), ());
    let mut parents: Vec<(u32, Action)> = vec![(0, Action::Reset)];
    let mut frontier = vec![(0_u32, first)];
    let mut report = Report {
        states: 1,
        steps: 0,
        depth: 0,
        terminal: 0,
        seen: Seen::default(),
        violation: None,
        is_complete: false,
    };
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (place, world) in frontier.drain(..) {
            let actions = world.actions();
            if world.is_quiet() {
                report.terminal += 1;
                if let Err(why) = world.check_end() {
                    report.violation = Some((why, trace(&parents, place, None)));
                    return report;
                }
            }
            for action in actions {
                let mut after = world.clone();
                after.seen = Seen::default();
                report.steps += 1;
                if let Err(why) = after.take(action) {
                    report.violation = Some((why, trace(&parents, place, Some(action))));
                    return report;
                }
                report.seen.add(&after.seen);
                if visited.insert(after.fingerprint(), ()).is_none() {
                    let at = u32::try_from(parents.len()).unwrap_or(u32::MAX);
                    parents.push((place, action));
                    next.push((at, after));
                }
            }
            if visited.len() >= most {
                report.states = visited.len();
                return report;
            }
        }
        report.states = visited.len();
        if next.is_empty() {
            break;
        }
        report.depth += 1;
        frontier = next;
    }
    report.is_complete = true;
    report
}

fn trace(parents: &[(u32, Action)], mut place: u32, last: Option<Action>) -> Vec<Action> {
    let mut actions: Vec<_> = last.into_iter().collect();
    while place > 0 {
        let (parent, action) = parents[place as usize];
        actions.push(action);
        place = parent;
    }
    actions.reverse();
    actions
}
