//! The state of a copy's digests while it runs.

use std::io;

use iscsi_block_device::RangeSet;

use super::Digests;
use super::delta::{Delta, Verdict};
use super::file::DigestFile;
use crate::ends::destination::Destination;
use crate::engine::part::Part;
use crate::error::CopyError;
use crate::progress::{Event, Reporter};
use crate::survey::blocks::Block;

/// The digests of a running copy, and the parts that wait for a save of their file.
#[derive(Debug)]
pub(crate) struct Digesting {
    pub(crate) delta: Delta,
    pub(crate) file: DigestFile,
    /// End of the last block for which it was decided whether to send it.
    pub(crate) end: u64,
    /// Zeros that have waited for the destination's report of its zeros. Whether to send them is already
    /// decided.
    pub(crate) judged_zeros: RangeSet,
    /// Parts that may be sent when the unsaved lines are saved.
    pub(crate) held: Vec<Part>,
    /// Parts that may be sent when the lines being saved are saved; `None` while no save is running.
    pub(crate) saving: Option<Vec<Part>>,
    /// Whether a flush has covered new blocks since lines were last saved.
    pub(crate) is_due: bool,
}

impl Digesting {
    pub(crate) fn new(file: DigestFile) -> Self {
        Self {
            delta: Delta::new(file.known().clone()),
            file,
            end: 0,
            judged_zeros: RangeSet::new(),
            held: Vec::new(),
            saving: None,
            is_due: false,
        }
    }

    pub(crate) const fn known(&self) -> &Digests {
        self.delta.known()
    }

    /// Returns the file, with the digests known so far.
    pub(crate) fn into_file(self) -> DigestFile {
        let Self { delta, file, .. } = self;
        file.knowing(delta.into_known())
    }

    /// Returns whether no part waits for the file, no save is running, and all lines that invalidate records
    /// are saved.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.saving.is_none() && !self.delta.has_taken_back()
    }

    pub(crate) const fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Returns the largest length of a request: `io_size`, or less, because a request must lie in one block of
    /// the digests.
    pub(crate) fn max_io(&self, io_size: usize) -> usize {
        usize::try_from(self.known().block_size()).map_or(io_size, |size| io_size.min(size))
    }

    /// Invalidates the records beyond the end of the copy, before the file is truncated there. The destination
    /// file ends where the copy ends, and the source may have become shorter since the last copy.
    pub(crate) async fn prepare(
        &mut self,
        destination: &Destination,
        source_len: Option<u64>,
    ) -> Result<(), CopyError> {
        if destination.is_sequential() {
            return Err(CopyError::Digests(io::ErrorKind::Unsupported.into()));
        }
        let len = destination.file_len();
        let len = len.map_err(|error| CopyError::Destination(error.into()))?;
        let Some(len) = len else { return Ok(()) };
        let end = source_len.map_or(len, |source| source.min(len));
        self.delta.take_back(&(end..u64::MAX));
        let Some(lines) = self.delta.take_unsaved() else { return Ok(()) };
        let appended = self.file.blocking(move |file| file.append(&lines)).await;
        appended.map_err(CopyError::Digests)?;
        self.delta.saved();
        Ok(())
    }

    /// Decides which blocks need not be sent, and which must wait for a save.
    pub(crate) fn judge(&mut self, blocks: &[Block]) -> Judged {
        let mut judged = Judged::default();
        for (range, digest) in blocks {
            self.end = range.end.max(self.end);
            let verdict = match digest {
                Some(digest) => self.delta.judge(range, *digest),
                None => self.delta.judge_part(range),
            };
            match verdict {
                Verdict::Unchanged => judged.unchanged.insert(range.clone()),
                Verdict::SendSaved => judged.held.insert(range.clone()),
                Verdict::Send => {}
            }
        }
        judged
    }

    /// Invalidates the records after the end of a stream, because the destination file will be truncated
    /// there.
    pub(crate) fn end_stream(&mut self, destination: &Destination) {
        if destination.is_regular_file() {
            self.delta.take_back(&(self.end..u64::MAX));
        }
    }

    /// Saves the rest at the end of a copy: unsaved lines, the end line if the copy `is_complete`, and the
    /// state in which the copy leaves the destination. Only `sessions` may still have requests in flight then.
    pub(crate) async fn close(
        &mut self,
        is_complete: bool,
        sessions: &[String],
        reporter: &Reporter,
    ) {
        let rest = self.delta.take_unsaved();
        let sessions = sessions.to_vec();
        let end = self.file.blocking(move |file| file.end_lines(is_complete, &sessions)).await;
        let end = end.inspect_err(|cause| reporter.report(Event::NotSaved(cause.to_string())));
        let end = end.ok().filter(|lines| !lines.is_empty());
        for lines in rest.into_iter().chain(end) {
            if let (_, Err(cause)) = self.file.clone().save(lines).await {
                reporter.report(Event::NotSaved(cause.to_string()));
            }
        }
    }

    /// Returns the number of parts that wait for a save.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len() + self.saving.as_ref().map_or(0, Vec::len)
    }
}

/// The decision about the blocks of a read. Blocks in neither set may be sent immediately.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Blocks that the destination has already.
    pub(crate) unchanged: RangeSet,
    /// Blocks that must wait until their old digests are removed from the file.
    pub(crate) held: RangeSet,
}
