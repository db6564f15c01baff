//! Events that end commands of a unit at all ports that serve it (SAM-5 §7.5, §7.7, SPC-4 §5.13.11.5).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::reservations::{Registrant, Registration};

/// An event that ends commands of a unit.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// A nexus resets the unit.
    Reset(Registrant),
    /// A nexus clears the task set.
    Clear(Registrant),
    /// A nexus removes a registration, and the commands of the registration's nexuses end.
    Preempt(Registrant, Registration),
}

/// The events that ended commands of a unit, oldest first. Clones are handles of the same list, so that the
/// [`Target`](crate::target::Target)s that are ports of the unit share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Length of `list`. It is read before each PDU, and a separate counter makes this possible without the
    /// lock.
    count: AtomicUsize,
    list: Mutex<Vec<End>>,
}

/// The position of one port in the list of events.
#[derive(Debug)]
pub(crate) struct Seen {
    ends: Ends,
    count: usize,
}

impl Ends {
    pub(crate) fn add(&self, end: End) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(end);
        self.0.count.store(list.len(), Ordering::Release);
    }

    /// Returns the position at the end of the list, because earlier events do not concern a target that joins
    /// now.
    pub(crate) fn all_seen(&self) -> Seen {
        Seen { ends: self.clone(), count: self.0.count.load(Ordering::Acquire) }
    }
}

impl Seen {
    /// Returns whether the position is in this list of events.
    pub(crate) fn is_of(&self, ends: &Ends) -> bool {
        Arc::ptr_eq(&self.ends.0, &ends.0)
    }

    /// Returns the next event that this port has not seen yet.
    pub(crate) fn next(&mut self) -> Option<End> {
        let shared = &self.ends.0;
        if shared.count.load(Ordering::Acquire) == self.count {
            return None;
        }
        let list = shared.list.lock().unwrap_or_else(PoisonError::into_inner);
        let end = list.get(self.count).cloned()?;
        self.count += 1;
        Some(end)
    }
}
