//! A flush in progress.

use iscsi_multipath::Flush;

use crate::state::unit_state::UnitState;

/// A flush that has its turn. If it is dropped before it is known to have ended well, its writes count as unflushed again.
#[derive(Debug)]
pub(crate) struct Flushing<'a> {
    unit: &'a UnitState,
    flush: Option<Flush>,
    _turn: tokio::sync::MutexGuard<'a, ()>,
    /// Among the flushes of all disks with the unit, until the unit has answered.
    turn_of_unit: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl<'a> Flushing<'a> {
    /// Begins a flush of the writes that have ended, after the flushes that are in progress.
    pub(crate) async fn begin(unit: &'a UnitState) -> Self {
        let turn = unit.known().flush_turn().await;
        let turn_of_unit = match unit.flushes() {
            Some(flushes) => Some(flushes.turn().await),
            None => None,
        };
        let flush = unit.lock().durability.begin_flush(unit.path());
        Self { unit, flush: Some(flush), _turn: turn, turn_of_unit }
    }

    /// The unit has flushed, which is all that the flushes of other disks wait for.
    pub(crate) fn answered(&mut self) {
        self.turn_of_unit = None;
    }

    /// Whether another session has to vouch for what was written.
    pub(crate) fn needs_witness(&self) -> bool {
        let needs = |flush| self.unit.lock().durability.needs_witness(flush);
        self.flush.as_ref().is_some_and(needs)
    }

    /// Whether another session knows of every reset since the oldest write began.
    pub(crate) fn is_known_to(&self, other: &UnitState) -> bool {
        let covers = |flush| self.unit.lock().durability.covers(flush, other.path());
        self.flush.as_ref().is_some_and(covers)
    }

    /// The unit has flushed, and all has arrived that it has reported to this session before, and to the witness since.
    pub(crate) fn ended(mut self, witness: Option<&UnitState>) {
        if let Some(flush) = self.flush.take() {
            self.unit.lock().durability.end_flush(flush, witness.map(UnitState::path));
        }
    }

    /// The unit could not write to the medium, which counts as a loss already.
    pub(crate) fn failed(mut self) {
        if let Some(flush) = self.flush.take() {
            self.unit.lock().durability.fail_flush(flush);
        }
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        if let Some(flush) = self.flush.take() {
            self.unit.lock().durability.abandon_flush(flush);
        }
    }
}
