//! Checkpoints, after each flush.

use std::io;

use super::{Ended, Engine};
use crate::digests::digesting::Digesting;
use crate::progress::Event;

impl Engine {
    /// Writes a checkpoint if a flush has covered more than the last one says. It may be late: what it
    /// does not say yet is only done again.
    pub(super) fn start_save(&mut self) {
        let Some(store) = self.options.checkpoint.clone() else { return };
        if self.is_saving || !self.is_save_due {
            return;
        }
        (self.is_saving, self.is_save_due) = (true, false);
        self.saving_bytes = self.unsaved;
        let (flushed, total) = (self.ledger.flushed().clone(), self.total_so_far());
        let unreadable = self.unreadable.clone();
        self.tasks
            .spawn(async move { Ok(Ended::Saved(store.keep(flushed, unreadable, total).await)) });
    }

    /// A checkpoint that could not be written is no reason to give up the copy; the next flush tries again.
    pub(super) fn take_saved(&mut self, result: io::Result<()>) {
        self.is_saving = false;
        // Where it fails, no more is at stake than without a checkpoint.
        self.unsaved -= self.saving_bytes;
        if let Err(error) = result {
            self.teller.tell(Event::NotSaved(error.to_string()));
        }
    }

    /// A file of what is flushed is being written.
    pub(super) fn is_saving(&self) -> bool {
        self.is_saving || self.digesting.as_ref().is_some_and(Digesting::is_saving)
    }

    /// Nothing of a checkpoint is still to be written.
    pub(super) const fn is_saved(&self) -> bool {
        !self.is_saving && (!self.is_save_due || self.options.checkpoint.is_none())
    }

    /// The length of all, or what is known of it.
    pub(super) fn total_so_far(&self) -> u64 {
        let flushed = self.ledger.flushed().iter().next_back().map_or(0, |range| range.end);
        self.source.device_ref().map_or(flushed, |device| device.capacity())
    }
}
