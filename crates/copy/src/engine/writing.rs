//! Writes, and zeros that are made.

use iscsi_block_device::DeviceResult;
use tokio::time::Instant;

use super::depths::{Depth, Load};
use super::ledger::Task;
use super::part::{Content, Part};
use super::{Ended, Engine};
use crate::error::CopyError;

impl Engine {
    /// Begins as many writes as may be under way.
    pub(super) fn start_writes(&mut self, now: Instant) {
        let mut room = self.room();
        while room > 0
            && self.rates.writes.is_open(now)
            && let Some(part) = self.next_to_write()
        {
            room = room.saturating_sub(part.len());
            let task = self.ledger.begin(part.range.clone());
            self.blank.write(&part.range);
            self.next_write = part.range.end;
            self.writing += 1;
            self.writing_bytes += part.len();
            let (destination, zeros) = (self.destination.clone(), self.zeros.clone());
            let makes_zeros = self.makes_zeros();
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

    /// How many bytes more may be at stake: what is not flushed, nor in a checkpoint, is lost with the
    /// cache of the destination or with this process. A destination in order has one flush, at its end.
    fn room(&self) -> u64 {
        if self.destination.is_sequential() {
            return u64::MAX;
        }
        let at_stake = self.ledger.exposed() + self.writing_bytes + self.unsaved;
        self.flushes.max_exposed().saturating_sub(at_stake)
    }

    fn next_to_write(&mut self) -> Option<Part> {
        let in_order = self.destination.is_sequential();
        let depth = if in_order { Depth::ONE } else { self.writes };
        let under_way = Load { count: self.writing, bytes: self.writing_bytes };
        let next = self.waiting.first_entry()?;
        let more = Load { count: 1, bytes: next.get().len() };
        let in_turn = !in_order || *next.key() == self.next_write;
        let is_due = depth.takes(more, under_way, self.cut.io_size);
        (is_due && in_turn).then(|| next.remove())
    }

    pub(super) fn take_written(
        &mut self,
        task: Task,
        part: Part,
        result: DeviceResult<()>,
    ) -> Result<(), CopyError> {
        let len = part.len();
        self.writing -= 1;
        self.writing_bytes -= len;
        if let Err(cause) = result {
            self.ledger.failed(task);
            return Err(CopyError::Destination(cause));
        }
        let makes_zeros = self.makes_zeros();
        let progress = &mut self.teller.progress;
        match part.content {
            Content::Data { .. } => progress.written += len,
            Content::Zeros => {
                progress.zeroed += len;
                progress.zeros_written += if makes_zeros { 0 } else { len };
            }
        }
        let is_sound = self.ledger.written(task);
        self.flushes.written();
        if is_sound {
            self.teller.progress.done += len;
        } else {
            self.teller.progress.lost += len;
        }
        if self.source.device_ref().is_some() || !self.destination.may_lose() {
            return Ok(());
        }
        // What a stream has given cannot be had again.
        if is_sound {
            self.kept.insert(part.range.start, part);
        } else {
            self.ledger.take(&part.range);
            self.waiting.insert(part.range.start, part);
        }
        Ok(())
    }
}
