//! Saves a checkpoint after each flush.

use std::io;
use std::sync::Arc;

use super::account::Account;
use crate::progress::checkpoint::CheckpointStore;
use crate::progress::{Event, Reporter};

/// The store of a copy's checkpoints, and what the last checkpoint does not contain yet.
#[derive(Debug)]
pub(super) struct Saving {
    pub(super) store: Option<Arc<dyn CheckpointStore>>,
    /// Whether a checkpoint is being written.
    is_saving: bool,
    /// Whether there is something new to save.
    is_due: bool,
    /// Bytes that a flush has covered and no checkpoint contains yet.
    unsaved: u64,
    /// The part of `unsaved` that the checkpoint being written contains.
    saving_bytes: u64,
    /// Sessions of earlier runs that may still have requests in flight at the destination.
    pub(super) unended: Vec<String>,
}

impl Saving {
    pub(super) const fn new(store: Option<Arc<dyn CheckpointStore>>) -> Self {
        let (is_saving, is_due, unsaved, saving_bytes) = (false, false, 0, 0);
        Self { store, is_saving, is_due, unsaved, saving_bytes, unended: Vec::new() }
    }

    /// Marks a checkpoint as due, because there is something new to save.
    pub(super) const fn ask(&mut self) {
        self.is_due = true;
    }

    /// Records that a flush has covered `bytes` more bytes.
    pub(super) const fn flushed(&mut self, bytes: u64) {
        self.is_due = true;
        if self.store.is_some() {
            self.unsaved += bytes;
        }
    }

    /// Returns the bytes that a flush has covered and no checkpoint contains yet.
    pub(super) const fn unsaved(&self) -> u64 {
        self.unsaved
    }

    /// Begins to save a checkpoint, if there is something new since the last one: flushed bytes, or unreadable
    /// ranges. A late checkpoint does no harm: the ranges that it lacks are copied again.
    pub(super) fn begin(
        &mut self,
        account: &Account,
        source_len: Option<u64>,
    ) -> Option<impl Future<Output = io::Result<()>> + Send + 'static> {
        let store = self.store.clone()?;
        if self.is_saving || !self.is_due {
            return None;
        }
        (self.is_saving, self.is_due) = (true, false);
        self.saving_bytes = self.unsaved;
        let (flushed, total) = (account.ledger.flushed().clone(), account.total(source_len));
        let unreadable = account.unreadable.clone();
        Some(async move { store.keep(flushed, unreadable, total).await })
    }

    /// Takes the result of a save. A failed save does not end the copy; the next flush tries again.
    pub(super) fn end(&mut self, result: io::Result<()>, reporter: &Reporter) {
        self.is_saving = false;
        // After a failure these bytes do not limit further writes: the copy continues as if it had no checkpoint.
        self.unsaved -= self.saving_bytes;
        if let Err(error) = result {
            reporter.report(Event::NotSaved(error.to_string()));
        }
    }

    pub(super) const fn is_saving(&self) -> bool {
        self.is_saving
    }

    /// Returns whether no checkpoint remains to be written.
    pub(super) const fn is_saved(&self) -> bool {
        !self.is_saving && (!self.is_due || self.store.is_none())
    }
}
