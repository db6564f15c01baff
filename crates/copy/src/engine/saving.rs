//! Checkpoints, after each flush.

use std::io;
use std::sync::Arc;

use super::account::Account;
use crate::progress::checkpoint::CheckpointStore;
use crate::progress::{Event, Teller};

/// The checkpoint of a copy, and what it does not say yet.
#[derive(Debug)]
pub(super) struct Saving {
    pub(super) store: Option<Arc<dyn CheckpointStore>>,
    /// A checkpoint is being written.
    is_saving: bool,
    /// There is something new for one.
    is_due: bool,
    /// Bytes that a flush has covered and no checkpoint says yet.
    unsaved: u64,
    /// Those of them in the checkpoint that is being written.
    saving_bytes: u64,
    /// Sessions of runs that are gone, which may still have something in flight at the destination.
    pub(super) unended: Vec<String>,
}

impl Saving {
    pub(super) const fn new(store: Option<Arc<dyn CheckpointStore>>) -> Self {
        let (is_saving, is_due, unsaved, saving_bytes) = (false, false, 0, 0);
        Self { store, is_saving, is_due, unsaved, saving_bytes, unended: Vec::new() }
    }

    /// There is something new for a checkpoint.
    pub(super) const fn ask(&mut self) {
        self.is_due = true;
    }

    /// A flush has covered so many bytes more.
    pub(super) const fn flushed(&mut self, bytes: u64) {
        self.is_due = true;
        if self.store.is_some() {
            self.unsaved += bytes;
        }
    }

    /// Bytes that a flush has covered and no checkpoint says yet.
    pub(super) const fn unsaved(&self) -> u64 {
        self.unsaved
    }

    /// Begins a checkpoint if a flush has covered more than the last one says. It may be late: what it
    /// does not say yet is only done again.
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

    /// A checkpoint that could not be written is no reason to give up the copy; the next flush tries again.
    pub(super) fn end(&mut self, result: io::Result<()>, teller: &Teller) {
        self.is_saving = false;
        // Where it fails, no more is at stake than without a checkpoint.
        self.unsaved -= self.saving_bytes;
        if let Err(error) = result {
            teller.tell(Event::NotSaved(error.to_string()));
        }
    }

    /// A checkpoint is being written.
    pub(super) const fn is_saving(&self) -> bool {
        self.is_saving
    }

    /// Nothing of a checkpoint is still to be written.
    pub(super) const fn is_saved(&self) -> bool {
        !self.is_saving && (!self.is_due || self.store.is_none())
    }
}
