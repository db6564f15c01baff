//! A source that is written to while it is copied, with a record of its changed ranges.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, mem};

use bytes::Bytes;
use iscsi_copy::IoFuture;
use iscsi_copy::{Changes, RangeSet};
use tokio::time::sleep;

use super::content::{fill, index};
use crate::rng::Rng;

/// Longest duration of a query for changes, milliseconds. The reported changes are taken when the query begins.
const MAX_ANSWERING: u64 = 5000;
/// Percentage of queries whose result is lost.
const FAILURES: u64 = 4;
/// Largest write to the source, bytes.
const MAX_WRITE: usize = 16 << 10;

/// Bytes of a source that change at random whenever they are read. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct InUse(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// Ranges that were written and not reported yet.
    dirty: RangeSet,
    /// Percentage of reads after which a write follows.
    busy: u64,
    is_frozen: bool,
    rng: Rng,
}

impl InUse {
    pub(crate) fn new(bytes: &Bytes, mut rng: Rng) -> Self {
        let busy = rng.within(0..100);
        let (bytes, dirty) = (bytes.to_vec(), RangeSet::new());
        Self(Arc::new(Mutex::new(State { bytes, dirty, busy, is_frozen: false, rng })))
    }

    /// Writes to a random range, with the probability `busy`.
    pub(crate) fn live(&self) {
        let mut state = self.state();
        let State { bytes, dirty, busy, is_frozen, rng } = &mut *state;
        if *is_frozen || !rng.percent(*busy) {
            return;
        }
        let start = rng.index(0..bytes.len());
        let end = bytes.len().min(start + rng.index(1..MAX_WRITE));
        match rng.within(0..3) {
            0 => bytes[start..end].fill(0),
            _ => fill(&mut bytes[start..end], rng),
        }
        dirty.insert(start as u64..end as u64);
    }

    /// Allows writes again after a freeze.
    pub(crate) fn resume(&self) {
        self.state().is_frozen = false;
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.state().is_frozen
    }

    /// Returns the current data of a range.
    pub(crate) fn read(&self, range: &Range<u64>) -> Bytes {
        let state = self.state();
        Bytes::copy_from_slice(state.bytes.get(index(range)).unwrap_or_default())
    }

    /// Returns the ranges that were written and not reported yet.
    pub(crate) fn dirty(&self) -> RangeSet {
        self.state().dirty.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the changes of the source.
#[derive(Debug)]
pub(crate) struct ChangeReporter {
    in_use: InUse,
    /// Whether the results of some queries are lost.
    fails: bool,
    /// Whether the source can be frozen.
    freezes: bool,
    rng: Rng,
}

impl ChangeReporter {
    pub(crate) fn drawn(in_use: &InUse, is_last: bool, mut rng: Rng) -> Self {
        Self { in_use: in_use.clone(), fails: !is_last, freezes: rng.percent(80), rng }
    }
}

impl Changes for ChangeReporter {
    fn changed(&mut self) -> IoFuture<'_, RangeSet> {
        let (fails, lasts) = (self.rng.percent(FAILURES), self.rng.any_scale(MAX_ANSWERING));
        let fails = fails && self.fails;
        let told = mem::take(&mut self.in_use.state().dirty);
        Box::pin(async move {
            self.in_use.live();
            sleep(lasts).await;
            if fails { Err(io::Error::other("he does not tell")) } else { Ok(told) }
        })
    }

    fn freeze(&mut self) -> Option<IoFuture<'_, ()>> {
        let lasts = self.rng.any_scale(MAX_ANSWERING);
        self.freezes.then(|| -> IoFuture<'_, ()> {
            Box::pin(async move {
                self.in_use.live();
                sleep(lasts).await;
                self.in_use.state().is_frozen = true;
                Ok(())
            })
        })
    }
}
