//! The requests that wait in a class.

use std::collections::VecDeque;
use std::time::Instant;

use crate::class_id::ClassId;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Serial number of the request over all classes.
    pub(crate) serial: u64,
    /// The class in which the request began to wait.
    pub(crate) class: ClassId,
    pub(crate) bytes: u64,
    pub(crate) since: Instant,
}

/// The requests that wait in a class: first come, first served.
///
/// Invariant: their serial numbers rise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(VecDeque<Waiting>);

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.0.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        self.0.pop_front()
    }

    /// Removes the request with this serial number.
    pub(crate) fn remove(&mut self, serial: u64) -> Option<Waiting> {
        let at = self.0.binary_search_by_key(&serial, |waiting| waiting.serial).ok()?;
        self.0.remove(at)
    }

    /// Adds the requests of another queue, each at the place of its serial number.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
        self.0.make_contiguous().sort_unstable_by_key(|waiting| waiting.serial);
    }
}
