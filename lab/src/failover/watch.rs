//! Watches how the unit's file grows. At first it is one hole, and each written page allocates memory.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::gaps::Gaps;
use crate::faults::Store;

/// Interval of the checks.
const STEP: Duration = Duration::from_millis(10);

/// The unit's file while it is written.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    store: &'a Store,
    begun: Cell<Option<Instant>>,
    gaps: RefCell<Gaps>,
}

impl<'a> Watch<'a> {
    /// Begins to watch a file that was not written yet.
    pub(super) fn of(store: &'a Store) -> Self {
        Self { store, begun: Cell::new(None), gaps: RefCell::default() }
    }

    /// Checks the file forever.
    pub(super) async fn poll_forever(&self) {
        let mut before = self.store.allocated();
        loop {
            sleep(STEP).await;
            let landed = self.store.allocated();
            if landed > before {
                before = landed;
                if self.begun.get().is_none() {
                    self.begun.set(Some(Instant::now()));
                }
                self.gaps.borrow_mut().progress(self.now());
            }
        }
    }

    /// Waits until the first data has reached the unit, and returns that time.
    pub(super) async fn begun(&self) -> Instant {
        loop {
            if let Some(begun) = self.begun.get() {
                return begun;
            }
            sleep(STEP).await;
        }
    }

    /// Returns the seconds since data first reached the unit.
    pub(super) fn now(&self) -> f64 {
        self.begun.get().map_or(0.0, |begun| begun.elapsed().as_secs_f64())
    }

    /// Returns the times without further data on the unit.
    pub(super) fn gaps(&self) -> Gaps {
        self.gaps.borrow().clone()
    }
}
