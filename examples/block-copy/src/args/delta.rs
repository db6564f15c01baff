//! Options for data that the destination has already, as recorded by an earlier copy.

use std::path::PathBuf;

use clap::Args;
use iscsi_copy::DirtyBitmap;
use iscsi_examples_common::help::heading;

/// The data that need not be sent again.
#[derive(Clone, Debug, Default, Args)]
pub struct DeltaArgs {
    /// Keep digests in FILE, and send only what differs from them.
    ///
    /// FILE has the BLAKE3 digest of each MiB that is at the destination and flushed. The next copy with FILE reads the
    /// source, but not the destination. FILE knows nothing of what others write to the destination; --verify=digests
    /// finds that. The destination must not be a stream.
    #[arg(long, value_name = "FILE", help_heading = heading::RESUME_AND_VERIFY)]
    pub digests: Option<PathBuf>,
    /// Copy only the ranges that FILE lists.
    ///
    /// As tools for snapshots write them: lines of START LENGTH in bytes, decimal or with 0x, where # begins a comment;
    /// or a JSON array of objects with "start" (or "offset") and "length". Each entry counts, unless it says "dirty": false.
    ///
    /// Or as CSI's GetMetadataDelta answers, as JSON; or a bitmap of 64 KiB blocks in base64, of XAPI's list_changed_blocks.
    ///
    /// A line URI qemu:dirty-bitmap:NAME stands for the ranges that QEMU has marked in that bitmap of an NBD export.
    /// qemu:dirty-bitmap:NAME in place of FILE names a bitmap of the source.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["offset", "length"], help_heading = heading::ENDS)]
    pub ranges: Option<RangesFrom>,
}

/// A file or a dirty bitmap that lists the ranges to copy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RangesFrom {
    /// A file that lists the ranges.
    File(PathBuf),
    /// The dirty bitmap with this name. The source is the export that has it.
    Bitmap(String),
}

impl RangesFrom {
    /// Returns the name of the source's dirty bitmap, if the ranges come from one.
    pub(crate) fn bitmap(&self) -> Option<&str> {
        match self {
            Self::Bitmap(name) => Some(name),
            Self::File(_) => None,
        }
    }
}

impl From<&str> for RangesFrom {
    fn from(text: &str) -> Self {
        match DirtyBitmap::name_in(text) {
            Some(name) => Self::Bitmap(name.to_owned()),
            None => Self::File(text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_is_known_by_its_namespace() {
        assert_eq!(RangesFrom::from("qemu:dirty-bitmap:b0"), RangesFrom::Bitmap("b0".to_owned()));
        for file in ["ranges", "qemu:dirty-bitmap:", "./qemu:dirty-bitmap:b0"] {
            assert_eq!(RangesFrom::from(file), RangesFrom::File(file.into()), "{file}");
        }
    }
}
