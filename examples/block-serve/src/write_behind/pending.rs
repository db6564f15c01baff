//! Tracks the changes in the write-behind window: changes that have begun and have not reached the device yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_initiator::device::{Extent, ExtentState};
use tokio::sync::Semaphore;

/// The new data of a range.
#[derive(Debug)]
pub(super) enum Content {
    /// These pages, in sequence.
    Data(Vec<Bytes>),
    Zeros,
    /// Zeros, whose storage stays allocated.
    AllocatedZeros,
    /// The result of a discard: the device decides whether the bytes change.
    Unknown,
}

impl Content {
    /// Returns the number of bytes of data in memory.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Data(pages) => pages.iter().map(|page| page.len() as u64).sum(),
            Self::Zeros | Self::AllocatedZeros | Self::Unknown => 0,
        }
    }
}

/// A change of the device in flight.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) range: Range<u64>,
    pub(super) content: Content,
    /// Number of the change. Later changes have higher numbers.
    number: u64,
    /// A semaphore that is closed when the change ends: this wakes the tasks that wait in `ended`.
    end: Semaphore,
}

impl Entry {
    fn new(range: Range<u64>, content: Content, number: u64) -> Self {
        Self { range, content, number, end: Semaphore::new(0) }
    }

    pub(super) fn end(&self) {
        self.end.close();
    }

    /// Waits for the end of the change.
    pub(super) async fn ended(&self) {
        // The semaphore has no permits, so this returns when it is closed.
        drop(self.end.acquire().await);
    }

    fn key(&self) -> Key {
        (self.range.start, self.number)
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

/// The first byte of a change, and its number. Sorted by the first byte.
type Key = (u64, u64);

/// All changes that have not reached the device. There may be many thousands. They are sorted by the offset of
/// their first byte, so that the changes that overlap a range are found quickly.
#[derive(Debug, Default)]
pub(super) struct Pending {
    entries: BTreeMap<Key, Arc<Entry>>,
    /// Number of the next change.
    next: u64,
    /// Length of the longest change since `entries` was last empty. No change that begins further than this
    /// before a byte can overlap the byte.
    longest: u64,
}

impl Pending {
    /// Adds a change. Returns it, and the changes that must end before it may begin.
    pub(super) fn push(
        &mut self,
        range: Range<u64>,
        content: Content,
    ) -> (Arc<Entry>, Vec<Arc<Entry>>) {
        let before = self.overlapping(&range);
        if self.entries.is_empty() {
            self.longest = 0;
        }
        self.longest = self.longest.max(range.end.saturating_sub(range.start));
        let entry = Arc::new(Entry::new(range, content, self.next));
        self.next += 1;
        self.entries.insert(entry.key(), Arc::clone(&entry));
        (entry, before)
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        self.entries.remove(&entry.key());
    }

    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.values().cloned().collect()
    }

    /// Returns the changes that overlap this range, the oldest first.
    pub(super) fn overlapping(&self, range: &Range<u64>) -> Vec<Arc<Entry>> {
        let first = range.start.saturating_sub(self.longest);
        let near = self.entries.range((first, 0)..(range.end.max(first), 0));
        let overlapping = near.map(|(_, entry)| entry).filter(|entry| entry.overlaps(range));
        let mut found: Vec<_> = overlapping.cloned().collect();
        found.sort_unstable_by_key(|entry| entry.number);
        found
    }
}

/// Returns whether the data of every byte of a range follow from the changes alone.
pub(super) fn cover(entries: &[Arc<Entry>], range: &Range<u64>) -> bool {
    let known = entries.iter().filter(|entry| !matches!(entry.content, Content::Unknown));
    let mut ranges: Vec<_> = known.map(|entry| entry.range.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    let reaches =
        |end: u64, next: &Range<u64>| if next.start <= end { end.max(next.end) } else { end };
    ranges.iter().fold(range.start, reaches) >= range.end
}

/// Applies the changes to the bytes from `offset` on, the oldest first.
pub(super) fn overlay(entries: &[Arc<Entry>], offset: u64, buffer: &mut [u8]) {
    for entry in entries {
        match &entry.content {
            Content::Data(pages) => {
                let mut at = entry.range.start;
                for page in pages {
                    put(at, page, offset, buffer);
                    at += page.len() as u64;
                }
            }
            Content::Zeros | Content::AllocatedZeros => {
                let [start, end] =
                    [entry.range.start, entry.range.end].map(|at| place(at, offset, buffer));
                buffer[start..end].fill(0);
            }
            Content::Unknown => {}
        }
    }
}

/// Copies a part of `bytes`, which begin at the device's offset `at`, to the same place in a buffer that begins
/// at `offset`.
fn put(at: u64, bytes: &[u8], offset: u64, buffer: &mut [u8]) {
    let start = place(at, offset, buffer);
    let end = place(at + bytes.len() as u64, offset, buffer);
    if start < end {
        let skipped =
            usize::try_from((offset + start as u64).saturating_sub(at)).unwrap_or(usize::MAX);
        buffer[start..end].copy_from_slice(&bytes[skipped..skipped + (end - start)]);
    }
}

/// Returns the index of a byte of the device in a buffer that begins at `offset`, limited to the bounds of the
/// buffer.
fn place(at: u64, offset: u64, buffer: &[u8]) -> usize {
    usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len())
}

/// Reports all ranges with changes in flight as data, because their state may be unknown.
pub(super) fn as_data(entries: &[Arc<Entry>], extents: Vec<Extent>) -> Vec<Extent> {
    let mut result: Vec<Extent> = Vec::with_capacity(extents.len());
    let mut add = |extent: Extent| match result.last_mut() {
        _ if extent.len == 0 => {}
        Some(last) if last.state == extent.state => last.len += extent.len,
        _ => result.push(extent),
    };
    let mut changing: Vec<_> = entries.iter().map(|entry| entry.range.clone()).collect();
    changing.sort_by_key(|range| range.start);
    // Each change may split an extent into three. The caller limits the number of extents.
    for extent in extents {
        let mut at = extent.offset;
        for range in &changing {
            if range.start >= extent.end() {
                break;
            }
            let (start, end) =
                (range.start.clamp(at, extent.end()), range.end.clamp(at, extent.end()));
            add(Extent::new(at, start - at, extent.state));
            add(Extent::new(start, end - start, ExtentState::Data));
            at = end;
        }
        add(Extent::new(at, extent.end() - at, extent.state));
    }
    result.truncate(Extent::MAX_REPORTED);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(range: Range<u64>, content: Content) -> Arc<Entry> {
        Arc::new(Entry::new(range, content, 0))
    }

    fn data(at: u64, pages: &[&'static [u8]]) -> Arc<Entry> {
        let pages: Vec<Bytes> = pages.iter().map(|page| Bytes::from_static(page)).collect();
        let content = Content::Data(pages);
        entry(at..at + content.len(), content)
    }

    #[test]
    fn the_newest_change_is_on_top() {
        let entries = [
            data(2, &[b"ab", b"cdef"]),
            entry(5..7, Content::Zeros),
            data(6, &[b"x"]),
            entry(0..9, Content::Unknown),
        ];
        let mut buffer = *b"........";
        overlay(&entries, 1, &mut buffer);
        assert_eq!(&buffer, b".abc\0xf.");
        let mut within = *b"..";
        overlay(&entries[..1], 4, &mut within);
        assert_eq!(&within, b"cd");
    }

    #[test]
    fn a_read_is_covered_when_no_byte_of_it_is_missing() {
        let entries =
            [entry(6..9, Content::Zeros), data(2, &[b"abcd"]), entry(9..20, Content::Unknown)];
        for (range, is_covered) in
            [(2..9, true), (3..8, true), (1..9, false), (2..10, false), (10..12, false)]
        {
            assert_eq!(cover(&entries, &range), is_covered, "{range:?}");
        }
        assert!(!cover(&[data(0, &[b"ab"]), data(3, &[b"de"])], &(0..5)));
    }

    #[test]
    fn all_that_overlaps_is_found_the_oldest_first() {
        let mut pending = Pending::default();
        let mut add = |range| pending.push(range, Content::Zeros).0;
        let entries = [add(40..50), add(0..45), add(44..45), add(100..200), add(44..60)];
        let numbers = |pending: &Pending, range: Range<u64>| {
            let found = pending.overlapping(&range);
            found.iter().map(|entry| entry.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&pending, 44..46), [0, 1, 2, 4]);
        assert!(numbers(&pending, 60..100).is_empty());
        assert_eq!(numbers(&pending, 59..101), [3, 4]);
        assert_eq!(numbers(&pending, 0..u64::MAX), [0, 1, 2, 3, 4]);
        assert_eq!(numbers(&pending, 7..7), [1]);
        for entry in &entries[..4] {
            pending.remove(entry);
        }
        assert_eq!(numbers(&pending, 44..46), [4]);
        assert_eq!(pending.all().len(), 1);
        let (_, before) = pending.push(59..61, Content::Unknown);
        assert_eq!(before.iter().map(|entry| entry.number).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn what_is_changing_is_no_hole() {
        let hole = |offset, len| Extent::new(offset, len, ExtentState::Deallocated);
        let filled = |offset, len| Extent::new(offset, len, ExtentState::Data);
        let entries = [entry(30..35, Content::Zeros), data(8, &[b"abcd"]), data(10, &[b"abcd"])];
        let extents = as_data(&entries, vec![hole(0, 20), filled(20, 12), hole(32, 8)]);
        let expected = [hole(0, 8), filled(8, 6), hole(14, 6), filled(20, 15), hole(35, 5)];
        assert_eq!(extents, expected);
        assert_eq!(as_data(&[], expected.to_vec()), expected);
    }
}
