//! Reads over NBD which bytes QEMU has marked as changed (QEMU, `docs/interop/nbd.rst`,
//! `qemu:dirty-bitmap:`).

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use iscsi_block_device::{DeviceError, DeviceErrorKind, DeviceResult, RangeSet};
use iscsi_nbd::Command;
use iscsi_nbd::client::{Answer, Negotiated};

use super::NbdError;
use super::connection::{Connection, Failed, MAX_RANGE, unexpected};
use super::losses::Losses;
use super::uri::NbdUri;
use crate::boxed::{BoxFuture, boxed};

/// Largest number of ranges of a bitmap, about 64 MiB of memory. If there are more, the shortest gaps between
/// them count as marked: a copy moves these bytes needlessly, but omits none.
const MAX_RANGES: usize = 1 << 21;

/// Prefix of the metadata context names of dirty bitmaps.
const NAMESPACE: &str = "qemu:dirty-bitmap:";

/// A dirty bitmap of QEMU that is exported with a node: the bytes that were written to since the bitmap was
/// created.
///
/// Its text form is the URI of the export, white space, and the name of its metadata context:
/// `nbd+unix:///disk?socket=/run/guest.nbd qemu:dirty-bitmap:b0`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirtyBitmap {
    uri: NbdUri,
    context: String,
}

impl DirtyBitmap {
    /// Creates the name of a bitmap of an export. Nothing is read yet.
    pub fn new(uri: NbdUri, name: &str) -> Self {
        Self { uri, context: format!("{NAMESPACE}{name}") }
    }

    /// Returns the URI of the export.
    pub const fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// Sets the URI of the export.
    #[must_use]
    pub fn with_uri(self, uri: NbdUri) -> Self {
        Self { uri, ..self }
    }

    /// Returns the bitmap name in the name of a metadata context; `None` for a context of another kind.
    pub fn name_in(context: &str) -> Option<&str> {
        context.strip_prefix(NAMESPACE).filter(|name| !name.is_empty())
    }

    /// Reads which bytes are marked, in whole granules of the bitmap. Bytes with an undefined status count as
    /// marked.
    ///
    /// # Errors
    /// Returns an error if the export cannot be opened or has no such bitmap, or if the server does not report
    /// the bitmap.
    pub async fn ranges(&self) -> Result<RangeSet, NbdError> {
        self.marked().await
    }

    fn marked(&self) -> BoxFuture<'_, Result<RangeSet, NbdError>> {
        boxed(async move {
            let contexts = [&*self.context];
            let opening = Connection::open(&self.uri, &contexts, Arc::<Losses>::default());
            let (connection, negotiated) = Box::pin(opening).await?;
            self.marked_over(&connection, &negotiated).await
        })
    }

    /// Returns the name of the bitmap's metadata context.
    pub(super) fn context(&self) -> &str {
        &self.context
    }

    /// Reads the bitmap over a connection that has negotiated the bitmap's context.
    pub(super) async fn marked_over(
        &self,
        connection: &Connection,
        negotiated: &Negotiated,
    ) -> Result<RangeSet, NbdError> {
        let Negotiated { export, contexts, .. } = negotiated;
        let context = contexts.iter().find(|context| context.name == self.context);
        let Some(id) = context.map(|context| context.id) else {
            return Err(NbdError::NoBitmap(self.to_string()));
        };
        let failed = |cause| NbdError::Bitmap { bitmap: self.to_string(), cause };
        let (mut dirty, mut at) = (Marked::with_room_for(MAX_RANGES), 0);
        while at < export.size {
            at = mark(connection, id, at, export.size, &mut dirty).await.map_err(failed)?;
        }
        Ok(dirty.ranges)
    }
}

/// The marked ranges, at most `most` of them.
#[derive(Debug)]
struct Marked {
    ranges: RangeSet,
    most: usize,
}

impl Marked {
    const fn with_room_for(most: usize) -> Self {
        Self { ranges: RangeSet::new(), most }
    }

    fn add(&mut self, range: Range<u64>) {
        self.ranges.insert(range);
        if self.ranges.len() > self.most {
            // Reduces the ranges to half of the limit, so that the next range does not need another reduction.
            self.ranges.close_gaps(self.most / 2);
        }
    }
}

/// Adds the marked ranges of the server's reports from `at` on. Returns the first byte that they do not
/// cover.
async fn mark(
    connection: &Connection,
    context: u32,
    mut at: u64,
    size: u64,
    dirty: &mut Marked,
) -> DeviceResult<u64> {
    let command = Command::BlockStatus { one: false };
    let length = u32::try_from((size - at).min(MAX_RANGE))
        .map_err(|error| DeviceError::new(DeviceErrorKind::Other, error))?;
    let asked = connection.ask(command, at, length, Vec::new(), None).await;
    let answer = asked.map_err(|failed| match failed {
        // A retry is not safe: the next connection may lead to another QEMU, with other bitmaps of the same names.
        Failed::Lost => connection.loss().into(),
        Failed::Refused(error) => error,
    })?;
    let Answer::BlockStatus(contexts) = answer else { return Err(unexpected()) };
    let reported = contexts.into_iter().find(|status| status.context == context);
    for extent in reported.ok_or_else(unexpected)?.extents {
        let end = at + extent.length;
        if extent.status != 0 {
            dirty.add(at..end);
        }
        at = end;
    }
    Ok(at)
}

impl FromStr for DirtyBitmap {
    type Err = NbdError;

    fn from_str(text: &str) -> Result<Self, NbdError> {
        const FORM: NbdError = NbdError::BitmapForm;
        let (uri, context) = text.trim().split_once(char::is_whitespace).ok_or(FORM)?;
        let name = Self::name_in(context.trim_start()).ok_or(FORM)?;
        Ok(Self::new(uri.parse()?, name))
    }
}

impl fmt::Display for DirtyBitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.uri, self.context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_is_an_export_and_a_context() {
        let text = "nbd+unix:///disk?socket=/run/a qemu:dirty-bitmap:b 0";
        let bitmap: DirtyBitmap = text.parse().unwrap();
        assert_eq!(bitmap, DirtyBitmap::new(text[..30].parse().unwrap(), "b 0"));
        assert_eq!(bitmap.to_string(), text);
        assert_eq!(format!("  {text}\n").parse::<DirtyBitmap>().unwrap(), bitmap);
    }

    /// Every second block is marked; after every hundred blocks there is a longer gap. Only short gaps may
    /// count as marked.
    #[test]
    fn no_more_ranges_are_kept_than_there_is_room_for_and_none_is_left_out() {
        const MOST: usize = 1000;
        let mut marked = Marked::with_room_for(MOST);
        let mut added = Vec::new();
        let mut at = 0;
        for number in 0..10_000 {
            added.push(at..at + 512);
            marked.add(at..at + 512);
            at += if number % 100 == 99 { 1 << 30 } else { 1024 };
            assert!(marked.ranges.len() <= MOST);
        }
        assert!(added.iter().all(|range| marked.ranges.contains(range)));
        // The short gaps are closed, the long ones are not.
        assert!(marked.ranges.bytes() <= 10_000 * 1024, "{}", marked.ranges.bytes());
        assert_eq!(marked.ranges.overlap(&(0..512)), (0..512).into());
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "nbd://host",
            "nbd://host qemu:dirty-bitmap:",
            "nbd://host base:allocation",
            "iscsi://host/a/0 qemu:dirty-bitmap:b0",
            "qemu:dirty-bitmap:b0",
        ] {
            assert!(text.parse::<DirtyBitmap>().is_err(), "{text}");
        }
    }
}
