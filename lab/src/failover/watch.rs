//! What has reached the unit: its file begins as a hole, and takes memory with each page that is written.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::gaps::Gaps;
use crate::faults::Store;

/// How often it is looked at.
const STEP: Duration = Duration::from_millis(10);

/// The unit's file, while it is written.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    store: &'a Store,
    begun: Cell<Option<Instant>>,
    gaps: RefCell<Gaps>,
}

impl<'a> Watch<'a> {
    /// Of a file that nothing was written to.
    pub(super) fn of(store: &'a Store) -> Self {
        Self { store, begun: Cell::new(None), gaps: RefCell::default() }
    }

    /// Looks for ever.
    pub(super) async fn look(&self) {
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

    /// Waits until something has reached the unit.
    pub(super) async fn begun(&self) -> Instant {
        loop {
            if let Some(begun) = self.begun.get() {
                return begun;
            }
            sleep(STEP).await;
        }
    }

    /// Seconds since something reached the unit for the first time.
    pub(super) fn now(&self) -> f64 {
        self.begun.get().map_or(0.0, |begun| begun.elapsed().as_secs_f64())
    }

    /// The times without a byte more.
    pub(super) fn gaps(&self) -> Gaps {
        self.gaps.borrow().clone()
    }
}
