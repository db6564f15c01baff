//! Write data that the caller owns: a list of pages, shared by reference count, never copied.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

/// The data of a write: one page or many, of any sizes, in order.
///
/// Clones share the pages. The socket takes the bytes directly from the caller's memory, which cannot change
/// while a data digest depends on the bytes.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pages: Arc<[Page]>,
    len: usize,
}

#[derive(Debug)]
struct Page {
    /// Offset of the page in the payload.
    start: usize,
    bytes: Bytes,
}

impl Payload {
    /// Joins pages in order; empty pages are omitted.
    pub fn from_pages(pages: impl IntoIterator<Item = Bytes>) -> Self {
        let mut len = 0;
        let pages = pages
            .into_iter()
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| {
                let start = len;
                len += bytes.len();
                Page { start, bytes }
            })
            .collect();
        Self { pages, len }
    }

    /// Returns the length, bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the payload is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pages in order, none of them empty.
    pub fn pages(&self) -> impl Iterator<Item = &Bytes> {
        self.pages.iter().map(|page| &page.bytes)
    }

    /// Returns a view of `len` bytes from `offset`, cut at the end of the payload.
    pub(crate) fn slice(&self, offset: usize, len: usize) -> PayloadSlice {
        let offset = offset.min(self.len);
        let remaining = len.min(self.len - offset);
        if remaining == 0 {
            return PayloadSlice::default();
        }
        let page = self.pages.partition_point(|page| page.start + page.bytes.len() <= offset);
        let skip = self.pages.get(page).map_or(0, |page| offset - page.start);
        PayloadSlice { pages: Some(Arc::clone(&self.pages)), page, skip, remaining }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::from_pages([bytes])
    }
}

impl From<BytesMut> for Payload {
    fn from(bytes: BytesMut) -> Self {
        Self::from(bytes.freeze())
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(pages: Vec<Bytes>) -> Self {
        Self::from_pages(pages)
    }
}

impl<const N: usize> From<[Bytes; N]> for Payload {
    fn from(pages: [Bytes; N]) -> Self {
        Self::from_pages(pages)
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pages: I) -> Self {
        Self::from_pages(pages)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl From<Box<[u8]>> for Payload {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl From<&'static [u8]> for Payload {
    fn from(bytes: &'static [u8]) -> Self {
        Self::from(Bytes::from_static(bytes))
    }
}

/// A range of a [`Payload`] that waits to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct PayloadSlice {
    /// The pages; `None` for an empty range, which most PDUs have.
    pages: Option<Arc<[Page]>>,
    /// Index of the page that holds the next byte.
    page: usize,
    /// Number of bytes of the current page that are sent already.
    skip: usize,
    remaining: usize,
}

impl PayloadSlice {
    /// Returns the parts of pages that make up the range, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut remaining = self.remaining;
        let mut skip = self.skip;
        let pages = self.pages.as_deref().and_then(|pages| pages.get(self.page..));
        pages.unwrap_or_default().iter().map_while(move |page| {
            let piece = page.bytes.get(skip..).unwrap_or_default();
            skip = 0;
            let piece = piece.get(..remaining).unwrap_or(piece);
            remaining -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }
}

impl Buf for PayloadSlice {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces().next().unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, piece) in dst.iter_mut().zip(self.pieces()) {
            *slot = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, count: usize) {
        let mut count = count.min(self.remaining);
        self.remaining -= count;
        let Some(pages) = &self.pages else { return };
        while let Some(page) = pages.get(self.page) {
            let left = page.bytes.len() - self.skip;
            if count < left {
                self.skip += count;
                return;
            }
            count -= left;
            self.page += 1;
            self.skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload() -> Payload {
        Payload::from_pages(["abc", "", "de", "fghij"].map(|s| Bytes::from_static(s.as_bytes())))
    }

    #[test]
    fn every_range_reads_as_the_joined_pages() {
        let whole = b"abcdefghij";
        for start in 0..=whole.len() {
            for end in start..=whole.len() {
                let mut slice = payload().slice(start, end - start);
                assert_eq!(slice.pieces().collect::<Vec<_>>().concat(), &whole[start..end]);
                assert_eq!(slice.copy_to_bytes(slice.remaining()), &whole[start..end]);
                assert!(!slice.has_remaining());
            }
        }
    }

    /// Conversions do not copy: each page stays in the caller's memory.
    #[test]
    fn every_conversion_keeps_the_callers_memory() {
        fn pages_of(payload: impl Into<Payload>) -> Vec<(*const u8, Vec<u8>)> {
            payload.into().pages().map(|page| (page.as_ptr(), page.to_vec())).collect()
        }
        let growing = BytesMut::from(&b"abc"[..]);
        let boxed: Box<[u8]> = Box::from(*b"abc");
        let vector = b"abc".to_vec();
        for (place, pages) in [
            (growing.as_ptr(), pages_of(growing)),
            (boxed.as_ptr(), pages_of(boxed)),
            (vector.as_ptr(), pages_of(vector)),
        ] {
            assert_eq!(pages, [(place, b"abc".to_vec())]);
        }
        let pages = ["ab", "", "c"].map(|page| Bytes::copy_from_slice(page.as_bytes()));
        let expected = [(pages[0].as_ptr(), b"ab".to_vec()), (pages[2].as_ptr(), b"c".to_vec())];
        assert_eq!(pages_of(pages.clone()), expected);
        assert_eq!(pages_of(pages.iter().cloned().collect::<Payload>()), expected);
        assert_eq!(pages_of(pages.to_vec()), expected);
    }

    #[test]
    fn ranges_are_cut_to_the_payload() {
        assert_eq!(payload().slice(8, 100).remaining(), 2);
        assert_eq!(payload().slice(100, 1).remaining(), 0);
    }
}
