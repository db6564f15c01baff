//! Begins and ends writes of data and zeros, and the flushes that cover them.

use iscsi_block_device::DeviceResult;
use tokio::time::Instant;

use super::ledger::Task;
use super::part::{Content, Part};
use super::{Ended, Engine};
use crate::error::{CopyError, is_loss};
use crate::progress::Event;

impl Engine {
    /// Begins as many writes as may be in flight.
    pub(super) fn start_writes(&mut self, now: Instant) {
        let mut room = self.room();
        let (in_order, io_size) = (self.ends.destination.is_sequential(), self.parts.cut.io_size);
        while room > 0
            && self.rates.writes.is_open(now)
            && let Some(part) = self.writes.next(&mut self.parts.waiting, in_order, io_size)
        {
            room = room.saturating_sub(part.len());
            let task = self.account.ledger.begin(part.range.clone());
            self.parts.blank.write(&part.range);
            self.writes.begin(&part);
            let (destination, zeros) = (self.ends.destination.clone(), self.writes.zeros.clone());
            let makes_zeros = self.ends.makes_zeros();
            if part.is_data() || !makes_zeros {
                self.rates.writes.pay(part.len(), now);
            }
            self.tasks.spawn(async move {
                let (start, len) = (part.range.start, part.len());
                let written = match &part.content {
                    Content::Data { bytes, .. } => destination.write(start, bytes.clone()).await,
                    Content::Zeros if makes_zeros => destination.write_zeroes(start, len).await,
                    Content::Zeros => {
                        let len = usize::try_from(len).unwrap_or(zeros.len());
                        destination.write(start, zeros.slice(..len)).await
                    }
                };
                Ok(Ended::Written(task, part, written))
            });
        }
    }

    /// Returns how many more bytes may be at risk. Bytes that are not flushed would be lost with the
    /// destination's cache, and bytes that are not in a checkpoint with this process. A stream has no limit,
    /// since its only flush is at the end.
    fn room(&self) -> u64 {
        if self.ends.destination.is_sequential() {
            return u64::MAX;
        }
        let exposed = self.account.ledger.exposed() + self.writes.in_flight.bytes;
        self.flushes.max_exposed().saturating_sub(exposed + self.saving.unsaved())
    }

    pub(super) fn take_written(
        &mut self,
        task: Task,
        part: Part,
        result: DeviceResult<()>,
    ) -> Result<(), CopyError> {
        self.writes.end(&part);
        if let Err(cause) = result {
            self.account.ledger.failed(task);
            return Err(CopyError::Destination(cause));
        }
        let is_sound = self.account.written(task, &part, self.ends.makes_zeros());
        self.flushes.written();
        if !self.ends.is_stream() || !self.ends.destination.may_lose() {
            return Ok(());
        }
        // The data of a stream cannot be read again, so it is kept until a flush has covered it.
        if is_sound {
            self.parts.keep(part);
        } else {
            self.parts.wait_again(part, &mut self.account.ledger);
        }
        Ok(())
    }

    /// Begins a flush if one is due, or if nothing else is left to do.
    pub(super) fn start_flush(&mut self) {
        if self.flushes.is_under_way() {
            return;
        }
        let unflushed = self.account.ledger.unflushed();
        let is_full = self.ends.is_stream() && self.parts.has_kept() && self.reads.is_half_full();
        let is_last = self.is_copied() && !self.flushes.is_last();
        if !is_last && !is_full && !self.flushes.is_due(unflushed) {
            return;
        }
        self.flushes.begin(is_last, unflushed);
        self.account.ledger.begin_flush();
        let destination = self.ends.destination.clone();
        let len = is_last.then(|| self.final_len());
        self.tasks.spawn(async move { Ok(Ended::Flushed(destination.flush(len).await)) });
    }

    /// Returns the final length of a destination file: that of the source, even if some of it cannot be read.
    pub(super) fn final_len(&self) -> u64 {
        self.ends.source_len().unwrap_or(self.account.reporter.progress.done)
    }

    pub(super) fn take_flushed(&mut self, result: DeviceResult<()>) -> Result<(), CopyError> {
        match result {
            Ok(()) => {
                self.flushes.end();
                let flushed = self.account.ledger.end_flush();
                self.parts.flushed(&flushed, &self.account.ledger);
                self.account.reporter.progress.flushed += flushed.bytes();
                self.saving.flushed(flushed.bytes());
                let reporter = &self.account.reporter;
                reporter.report(Event::Flushed(reporter.progress));
                Ok(())
            }
            Err(cause) => {
                if !is_loss(&cause) {
                    self.flushes.fail();
                    return Err(CopyError::Flush(cause));
                }
                let is_worth_while = self.flushes.record_loss();
                let bytes = self.account.record_loss();
                if !is_worth_while || self.ends.destination.is_sequential() {
                    self.flushes.fail();
                    return Err(CopyError::Flush(cause));
                }
                self.account.reporter.report(Event::Lost { bytes });
                self.parts.requeue_lost(&mut self.account.ledger);
                Ok(())
            }
        }
    }
}
