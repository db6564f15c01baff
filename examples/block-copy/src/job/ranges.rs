//! Loads the ranges of a source to copy, from a file, a command or a dirty bitmap.

pub(crate) mod list;

use std::fs;
use std::io::{self, ErrorKind};

use iscsi_copy::{DirtyBitmap, RangeSet};
use iscsi_examples_common::program::ProgramError;
use tokio::task::spawn_blocking;

use self::list::{RangeList, parse};
use crate::args::RangesFrom;
use crate::end::End;
use crate::ends::Ends;
use crate::error::Error;

/// Bytes of a sector of QEMU. QEMU rounds the length of an exported disk up to whole sectors.
const SECTOR: u64 = 512;

/// Returns the ranges to copy. `None` means all bytes.
pub(crate) async fn load(
    from: Option<&RangesFrom>,
    ends: &Ends,
) -> Result<Option<RangeSet>, Error> {
    let Some(from) = from else { return Ok(None) };
    let has = ends.to_source().length().filter(|_| !ends.source.is_stream());
    let has = has.ok_or_else(|| {
        ProgramError::usage(
            "a stream has no places; leave --ranges out, or copy from a file or a unit",
        )
    })?;
    let (name, ranges) = match from {
        RangesFrom::File(path) => {
            let (name, path) = (path.to_string_lossy().into(), path.clone());
            let text = spawn_blocking(move || fs::read(path)).await.map_err(io::Error::from);
            let ranges = match text.flatten() {
                Ok(text) => read(String::from_utf8_lossy(&text).into(), has).await,
                Err(cause) => Err(cause),
            };
            (name, ranges)
        }
        RangesFrom::Bitmap(bitmap) => {
            let End::Export(export) = &ends.source else {
                return Err(ProgramError::usage(
                    "an NBD export has dirty bitmaps; copy from nbd://HOST/EXPORT, or name a file with --ranges",
                ).into());
            };
            let told = export.marked().cloned().unwrap_or_default();
            let bitmap = DirtyBitmap::new(export.uri().clone(), bitmap);
            (bitmap.to_string().into(), within(&bitmap, told, has))
        }
    };
    ranges.map(Some).map_err(|cause| Error::Ranges { name, cause: cause.into() })
}

/// Parses the ranges of a source of `has` bytes, and requests the dirty bitmaps that the text names.
///
/// # Errors
/// [`InvalidData`](ErrorKind::InvalidData) with what is wrong with the text; the error of an NBD server.
pub(crate) async fn read(text: String, has: u64) -> io::Result<RangeSet> {
    let told = spawn_blocking(move || parse(&text, has)).await?;
    let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
    let RangeList { mut ranges, bitmaps } = told.map_err(invalid)?;
    for bitmap in bitmaps {
        marked(&bitmap, has).await?.iter().for_each(|range| ranges.insert(range));
    }
    Ok(ranges)
}

/// Returns the ranges that a dirty bitmap marks, for a source of `has` bytes.
async fn marked(bitmap: &DirtyBitmap, has: u64) -> io::Result<RangeSet> {
    within(bitmap, bitmap.ranges().await.map_err(io::Error::other)?, has)
}

/// Cuts the ranges of a bitmap off at the end of the source, `has` bytes. A range that ends beyond the source's
/// last sector is an error.
fn within(bitmap: &DirtyBitmap, mut ranges: RangeSet, has: u64) -> io::Result<RangeSet> {
    let end = ranges.iter().next_back().map_or(0, |range| range.end);
    if end > has.next_multiple_of(SECTOR) {
        let why = format!("{bitmap}: it marks byte {}, and the source has {has} bytes", end - 1);
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    ranges.remove(&(has..end.max(has)));
    Ok(ranges)
}
