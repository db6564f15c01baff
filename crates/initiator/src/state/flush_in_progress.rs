//! Tracks a flush in progress, as the unit's [`Flushes`] decide.

use std::sync::Arc;

use iscsi_multipath::flushing::{End, FlushId, Flushes, Step, Terms};
use iscsi_multipath::{PathId, Unit};
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::state::unit_flushes::UnitFlushes;
use crate::state::unit_state::UnitState;

/// A flush over one session. If it is dropped before its end, its writes count as unflushed again.
#[derive(Debug)]
pub(crate) struct Flushing {
    unit: Arc<UnitState>,
    flushes: Arc<UnitFlushes>,
    id: FlushId,
}

/// A caller that waits for a flush, until this value is dropped.
#[derive(Debug)]
pub(crate) struct FlushCaller {
    flushes: Arc<UnitFlushes>,
    id: FlushId,
}

impl Flushing {
    /// Starts a flush, when its turn has come, of everything written until then.
    pub(crate) fn start(
        unit: &Arc<UnitState>,
        flushes: &Arc<UnitFlushes>,
        terms: Terms,
    ) -> (Self, FlushCaller) {
        let owner = UnitFlushes::owner_of(unit.known());
        let id = flushes.owner().start(owner, unit.path(), terms, &mut unit.lock());
        let [own, flushes] = [(); 2].map(|()| Arc::clone(flushes));
        (Self { unit: Arc::clone(unit), flushes: own, id }, FlushCaller { flushes, id })
    }

    /// Returns a future that completes when the turn may have passed to another flush. The future must be
    /// polled before the turn is checked.
    pub(crate) fn turned(&self) -> Notified<'_> {
        self.flushes.turned()
    }

    pub(crate) fn poll(&self) -> Step {
        let now = Instant::now().into_std();
        let step = self.with(|flushes, unit| flushes.poll(self.id, unit, now));
        if matches!(step, Step::Done(_)) {
            self.flushes.pass_turn();
        }
        step
    }

    /// Returns the time at which the next poll is due even if nothing happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.flushes.owner().poll_timeout(self.id).map(Instant::from_std)
    }

    pub(crate) fn on_end(&self, question: u32, end: End<'_>) {
        self.with(|flushes, unit| flushes.on_end(self.id, question, end, unit));
        self.flushes.pass_turn();
    }

    pub(crate) fn on_witness(&self, witness: Option<PathId>) {
        self.with(|flushes, unit| flushes.on_witness(self.id, witness, unit));
    }

    fn with<T>(&self, call: impl FnOnce(&mut Flushes, &mut Unit) -> T) -> T {
        call(&mut self.flushes.owner(), &mut self.unit.lock())
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        self.with(|flushes, unit| flushes.abandon(self.id, unit));
        self.flushes.pass_turn();
    }
}

impl Drop for FlushCaller {
    fn drop(&mut self) {
        self.flushes.owner().cancel(self.id);
        self.flushes.pass_turn();
    }
}
