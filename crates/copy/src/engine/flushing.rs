//! When a flush begins, and what follows from it.

use iscsi_block_device::DeviceResult;

use super::{Ended, Engine};
use crate::error::{CopyError, is_loss};
use crate::progress::Event;

impl Engine {
    /// Begins a flush where it is time, or where nothing else is left.
    pub(super) fn start_flush(&mut self) {
        if self.flushes.is_under_way() {
            return;
        }
        let unflushed = self.ledger.unflushed();
        let is_stream = self.source.device_ref().is_none();
        let is_full = is_stream && !self.kept.is_empty() && self.memory.is_half_full();
        let is_last = self.is_copied() && !self.flushes.is_last();
        if !is_last && !is_full && !self.flushes.is_due(unflushed) {
            return;
        }
        self.flushes.begin(is_last, unflushed);
        self.ledger.begin_flush();
        let destination = self.destination.clone();
        let len = is_last.then(|| self.final_len());
        self.tasks.spawn(async move { Ok(Ended::Flushed(destination.flush(len).await)) });
    }

    /// How long a file is in the end: as long as what it is copied from, whether all of that can be read
    /// or not.
    pub(super) fn final_len(&self) -> u64 {
        let len = self.source.device_ref().map(|device| device.capacity());
        len.unwrap_or(self.teller.progress.done)
    }

    pub(super) fn take_flushed(&mut self, result: DeviceResult<()>) -> Result<(), CopyError> {
        match result {
            Ok(()) => {
                self.flushes.end();
                self.is_save_due = true;
                let flushed = self.ledger.end_flush();
                self.kept.retain(|_, part| !flushed.contains(&part.range));
                self.settle(&flushed);
                self.keep_soon();
                self.teller.progress.flushed += flushed.bytes();
                if self.options.checkpoint.is_some() {
                    self.unsaved += flushed.bytes();
                }
                self.teller.tell(Event::Flushed(self.teller.progress));
                Ok(())
            }
            Err(cause) => {
                if !is_loss(&cause) {
                    self.flushes.fail();
                    return Err(CopyError::Flush(cause));
                }
                let is_worth_while = self.flushes.lose();
                let lost = self.ledger.lose();
                self.teller.progress.done -= lost.bytes();
                self.teller.progress.lost += lost.bytes();
                if !is_worth_while || self.destination.is_sequential() {
                    self.flushes.fail();
                    return Err(CopyError::Flush(cause));
                }
                self.teller.tell(Event::Lost { bytes: lost.bytes() });
                self.write_kept_again();
                Ok(())
            }
        }
    }

    /// What a stream has given, and may be lost, is written again.
    fn write_kept_again(&mut self) {
        for (offset, part) in std::mem::take(&mut self.kept) {
            self.ledger.take(&part.range);
            self.waiting.insert(offset, part);
        }
    }
}
