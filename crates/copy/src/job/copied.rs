//! The result of a copy.

use iscsi_block_device::RangeSet;

use crate::digests::file::DigestFile;
use crate::progress::Progress;
use crate::verify::checksums::Checksums;

/// The result of a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// The progress of the copy, which is complete.
    pub progress: Progress,
    /// The bytes that the medium of the source could not read and that were
    /// [omitted](crate::CopyOptions::with_skipped_unreadable), if the options permit that.
    pub unreadable: RangeSet,
    /// The checksums of the data that was read, if the options require them.
    pub checksums: Option<Checksums>,
    /// The file with the digests of all flushed blocks, if the copy has one.
    pub(crate) digests: Option<DigestFile>,
}
