//! What a copy keeps of its digests while it runs.

use iscsi_block_device::RangeSet;

use super::Digests;
use super::delta::Delta;
use super::file::DigestFile;
use crate::engine::part::Part;

/// The digests of a copy.
#[derive(Debug)]
pub(crate) struct Digesting {
    pub(crate) delta: Delta,
    pub(crate) file: DigestFile,
    /// How far blocks were judged.
    pub(crate) end: u64,
    /// Zeros that were judged, and waited until the destination had told where it has some.
    pub(crate) judged_zeros: RangeSet,
    /// What may be sent when the lines that are not saved yet are saved.
    pub(crate) held: Vec<Part>,
    /// What may be sent when the lines that are being saved are.
    pub(crate) saving: Option<Vec<Part>>,
    /// A flush has covered something new since lines were saved.
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

    /// The file, with what it says by now.
    pub(crate) fn into_file(self) -> DigestFile {
        let Self { delta, file, .. } = self;
        file.knowing(delta.into_known())
    }

    /// Whether nothing waits for the file, and no lines are being saved.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.saving.is_none() && !self.delta.has_taken_back()
    }

    pub(crate) const fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// The length of a request, which lies in one block.
    pub(crate) fn max_io(&self, io_size: usize) -> usize {
        usize::try_from(self.known().block_size()).map_or(io_size, |size| io_size.min(size))
    }

    /// How many parts wait.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len() + self.saving.as_ref().map_or(0, Vec::len)
    }
}

/// What was found of the blocks of a read.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// The destination has them.
    pub(crate) unchanged: RangeSet,
    /// They may be sent when the file does not say any more what was there.
    pub(crate) held: RangeSet,
}
