//! Counts the requests and faults of an episode. An episode without requests would never find a violation.

use std::collections::BTreeMap;

use crate::settings::Class;

/// Numbers of requests that succeeded, and of the faults that happened.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads that the oracle has checked.
    pub reads: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Faults that took effect, by their classes.
    pub faults: BTreeMap<Class, u64>,
    /// Events in repeated copies, by their description.
    pub repeated_copies: BTreeMap<&'static str, u64>,
    /// Events of served units, by their description.
    pub served: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts a fault that took effect.
    pub(crate) fn fault(&mut self, class: Class) {
        self.faults(class, 1);
    }

    pub(crate) fn faults(&mut self, class: Class, count: u64) {
        *self.faults.entry(class).or_default() += count;
    }

    /// Counts an event of a repeated copy.
    pub(crate) fn repeated_copy(&mut self, what: &'static str) {
        *self.repeated_copies.entry(what).or_default() += 1;
    }

    /// Counts an event of a served unit.
    pub(crate) fn served(&mut self, what: &'static str) {
        *self.served.entry(what).or_default() += 1;
    }

    /// Adds the counts of another part of the episode.
    pub fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.reads += other.reads;
        self.flushes += other.flushes;
        other.faults.iter().for_each(|(class, count)| self.faults(*class, *count));
        for (what, count) in &other.repeated_copies {
            *self.repeated_copies.entry(what).or_default() += count;
        }
        for (what, count) in &other.served {
            *self.served.entry(what).or_default() += count;
        }
    }
}
