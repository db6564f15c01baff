//! What came of a copy.

use iscsi_block_device::RangeSet;

use crate::digests::file::DigestFile;
use crate::progress::Progress;
use crate::verify::checksums::Checksums;

/// The result of a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// How far it came: all of it.
    pub progress: Progress,
    /// The bytes that the medium of the source did not give, if they may be
    /// [left out](crate::CopyOptions::with_skipped_unreadable).
    pub unreadable: RangeSet,
    /// The checksums of what was read, if the options asked for them.
    pub checksums: Option<Checksums>,
    /// The file of digests with what it says by now, if there is one.
    pub(crate) digests: Option<DigestFile>,
}
