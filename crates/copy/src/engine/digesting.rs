//! Blocks that the destination has already, and the file that says so.

use std::io;
use std::ops::Range;

use iscsi_block_device::RangeSet;

use super::part::{Content, Part};
use super::{Ended, Engine};
use crate::digests::delta::Verdict;
use crate::digests::digesting::{Digesting, Judged};
use crate::digests::file::DigestFile;
use crate::error::CopyError;
use crate::progress::Event;
use crate::survey::blocks::Block;

impl Engine {
    /// Where blocks end: their size, and the end of the source, as far as it is known.
    pub(super) fn block_grid(&self) -> Option<(u64, u64)> {
        let size = self.digesting.as_ref()?.known().block_size();
        let end = self.source.device_ref().map_or(u64::MAX, |device| device.capacity());
        Some((size, end))
    }

    /// Takes out of the file what is gone, before it is: a file ends where the copy ends, and may have
    /// become shorter since.
    pub(super) async fn prepare_digests(&mut self) -> Result<(), CopyError> {
        let Some(digesting) = &mut self.digesting else { return Ok(()) };
        if self.destination.is_sequential() {
            return Err(CopyError::Digests(io::ErrorKind::Unsupported.into()));
        }
        let Some(len) =
            self.destination.file_len().map_err(|error| CopyError::Destination(error.into()))?
        else {
            return Ok(());
        };
        let end = self.source.device_ref().map_or(len, |device| device.capacity().min(len));
        digesting.delta.take_back(&(end..u64::MAX));
        let Some(lines) = digesting.delta.take_unsaved() else { return Ok(()) };
        let appended = digesting.file.blocking(move |file| file.append(&lines)).await;
        appended.map_err(CopyError::Digests)?;
        digesting.delta.saved();
        Ok(())
    }

    /// Finds out which blocks are to be sent.
    pub(super) fn judge_blocks(&mut self, blocks: &[Block]) -> Judged {
        let mut judged = Judged::default();
        let Some(Digesting { delta, end, .. }) = &mut self.digesting else { return judged };
        for (range, digest) in blocks {
            *end = range.end.max(*end);
            let verdict = match digest {
                Some(digest) => delta.judge(range, *digest),
                None => delta.judge_part(range),
            };
            match verdict {
                Verdict::Unchanged => judged.unchanged.insert(range.clone()),
                Verdict::SendSaved => judged.held.insert(range.clone()),
                Verdict::Send => {}
            }
        }
        judged
    }

    /// Puts a part where its block belongs.
    pub(super) fn put_part(&mut self, part: Part, judged: &Judged) {
        if judged.unchanged.contains(&part.range) {
            self.leave(part.range);
            return;
        }
        match (&mut self.digesting, &part.content) {
            (Some(digesting), _) if judged.held.contains(&part.range) => digesting.held.push(part),
            (_, Content::Zeros) => self.put_zeros(part.range),
            (_, Content::Data { .. }) => _ = self.waiting.insert(part.range.start, part),
        }
    }

    /// Puts zeros that the source has told of where they belong.
    pub(super) fn put_told_zeros(&mut self, range: Range<u64>) {
        let grid = self.block_grid();
        let (Some(digesting), Some((_, end))) = (&mut self.digesting, grid) else {
            self.put_zeros(range);
            return;
        };
        if digesting.judged_zeros.contains(&range) {
            digesting.judged_zeros.remove(&range);
            self.put_zeros(range);
            return;
        }
        for (piece, verdict) in digesting.delta.judge_zeros(&range, end) {
            let mut judged = Judged::default();
            match verdict {
                Verdict::Unchanged => judged.unchanged.insert(piece.clone()),
                Verdict::SendSaved => judged.held.insert(piece.clone()),
                Verdict::Send => {}
            }
            self.put_part(Part::zeros(piece), &judged);
        }
    }

    /// Zeros have waited for the answer of the destination; they were judged before.
    pub(super) fn put_zeros_back(&mut self, zeros: &RangeSet) {
        if let Some(digesting) = &mut self.digesting {
            digesting.judged_zeros.extend(zeros.iter());
        }
        self.survey.put_back(zeros);
    }

    /// The destination has these bytes.
    fn leave(&mut self, range: Range<u64>) {
        let len = range.end - range.start;
        let progress = &mut self.teller.progress;
        (progress.skipped, progress.done) = (progress.skipped + len, progress.done + len);
        progress.flushed += len;
        self.ledger.is_there(range);
    }

    /// A flush has covered these bytes, or they need none.
    pub(super) fn settle(&mut self, now: &RangeSet) {
        if let Some(digesting) = &mut self.digesting {
            digesting.delta.settle(now, self.ledger.flushed());
        }
    }

    /// What was settled is to be saved.
    pub(super) fn keep_soon(&mut self) {
        if let Some(digesting) = &mut self.digesting {
            digesting.is_due = true;
        }
    }

    /// A stream has come to its end: what a file has beyond that will be cut off.
    pub(super) fn end_blocks(&mut self) {
        if let Some(digesting) = &mut self.digesting
            && self.destination.is_regular_file()
        {
            digesting.delta.take_back(&(digesting.end..u64::MAX));
        }
    }

    /// Saves what parts wait for, and what a flush has covered.
    pub(super) fn start_keep(&mut self) {
        let Some(digesting) = &mut self.digesting else { return };
        if digesting.is_saving() || digesting.is_idle() && !digesting.is_due {
            return;
        }
        digesting.is_due = false;
        let held = std::mem::take(&mut digesting.held);
        let Some(lines) = digesting.delta.take_unsaved() else {
            // What they wait for was saved meanwhile.
            held.into_iter().for_each(|part| self.put_part(part, &Judged::default()));
            return;
        };
        digesting.saving = Some(held);
        let file = digesting.file.clone();
        self.tasks.spawn(async move {
            let (lines, result) = save(file, lines).await;
            Ok(Ended::Kept(lines, result))
        });
    }

    /// Where nothing waits for it, the next flush tries again; the file says less than it could.
    pub(super) fn take_kept(
        &mut self,
        lines: String,
        result: io::Result<()>,
    ) -> Result<(), CopyError> {
        let Some(digesting) = &mut self.digesting else { return Ok(()) };
        let parts = digesting.saving.take().unwrap_or_default();
        match result {
            Ok(()) => {
                digesting.delta.saved();
                parts.into_iter().for_each(|part| self.put_part(part, &Judged::default()));
                Ok(())
            }
            Err(cause) => {
                if digesting.delta.not_saved(&lines) {
                    return Err(CopyError::Digests(cause));
                }
                self.teller.tell(Event::NotSaved(cause.to_string()));
                Ok(())
            }
        }
    }

    /// Saves the rest at the end of a copy, that there is no more, if it came to its end, and how the destination is
    /// left, where no more sessions than these may have something under way.
    pub(super) async fn close_digests(&mut self, is_complete: bool, sessions: &[String]) {
        let Some(digesting) = &mut self.digesting else { return };
        let rest = digesting.delta.take_unsaved();
        let sessions = sessions.to_vec();
        let end = digesting.file.blocking(move |file| file.end_lines(is_complete, &sessions)).await;
        let end = end.inspect_err(|cause| self.teller.tell(Event::NotSaved(cause.to_string())));
        let end = end.ok().filter(|lines| !lines.is_empty());
        for lines in rest.into_iter().chain(end) {
            let file = digesting.file.clone();
            if let (_, Err(cause)) = save(file, lines).await {
                self.teller.tell(Event::NotSaved(cause.to_string()));
            }
        }
    }
}

async fn save(file: DigestFile, lines: String) -> (String, io::Result<()>) {
    let saving = file.blocking(move |file| {
        let result = file.append(&lines);
        Ok((lines, result))
    });
    saving.await.unwrap_or_else(|error| (String::new(), Err(error)))
}
