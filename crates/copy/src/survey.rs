//! Which parts of a source hold data.

use std::collections::VecDeque;
use std::ops::Range;

use iscsi_initiator::device::Extent;

use crate::range_set::RangeSet;

/// The first question is for so many bytes.
const FIRST_WINDOW: u64 = 1 << 30;
/// A longer question than this tells nothing more.
const MAX_WINDOW: u64 = 1 << 44;
/// The next question is longer if the answer had so few extents, and shorter if it had so many.
const FEW: usize = 16;
const MANY: usize = 1024;

/// Bytes of the source in a row that are data, or read as zeros.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Segment {
    pub(crate) range: Range<u64>,
    pub(crate) is_zero: bool,
}

/// What is known of the source.
#[derive(Debug)]
pub(crate) struct Survey {
    /// What is known and not begun, in order.
    segments: VecDeque<Segment>,
    /// A question is under way.
    is_asking: bool,
    window: u64,
    /// Where a stream has come to; `None` at its end, and for a device.
    stream: Option<u64>,
}

impl Survey {
    pub(crate) const fn new(is_stream: bool) -> Self {
        let stream = if is_stream { Some(0) } else { None };
        Self { segments: VecDeque::new(), is_asking: false, window: FIRST_WINDOW, stream }
    }

    /// Whether nothing more comes of it.
    pub(crate) fn is_over(&self) -> bool {
        self.segments.is_empty() && !self.is_asking && self.stream.is_none()
    }

    /// Where a stream is read next.
    pub(crate) const fn stream(&self) -> Option<u64> {
        self.stream
    }

    /// So many bytes of the stream will be read.
    pub(crate) const fn advance(&mut self, len: u64) {
        if let Some(at) = &mut self.stream {
            *at += len;
        }
    }

    /// The stream has come to its end.
    pub(crate) const fn end_stream(&mut self) {
        self.stream = None;
    }

    /// What is too short to be asked about counts as data, unless enough is known for now.
    pub(crate) fn put_short(&mut self, range: &Range<u64>) -> bool {
        let is_wanted = !self.is_asking && self.segments.len() < MANY;
        if is_wanted {
            self.segments.push_back(Segment { range: range.clone(), is_zero: false });
        }
        is_wanted
    }

    /// A question, if almost all that is known is begun: for the beginning of what is still to be done.
    pub(crate) fn ask(&mut self, to_do: &Range<u64>) -> Option<Range<u64>> {
        if self.is_asking || self.segments.len() >= FEW {
            return None;
        }
        self.is_asking = true;
        Some(to_do.start..to_do.end.min(to_do.start.saturating_add(self.window)))
    }

    /// Takes the answer.
    pub(crate) fn take(&mut self, segments: Vec<Segment>) {
        self.is_asking = false;
        match segments.len() {
            0..=FEW => self.window = (self.window * 4).min(MAX_WINDOW),
            MANY.. => self.window = (self.window / 4).max(FIRST_WINDOW),
            _ => {}
        }
        self.segments.extend(segments);
    }

    /// Zeros that were cut off, and could not be put anywhere.
    pub(crate) fn put_back(&mut self, zeros: &RangeSet) {
        let segments = zeros.iter().rev().map(|range| Segment { range, is_zero: true });
        segments.for_each(|segment| self.segments.push_front(segment));
    }

    /// Data of the first segment: no more than `len` bytes, to a multiple of `grid`.
    pub(crate) fn data(&self, len: usize, grid: usize) -> Option<Range<u64>> {
        let first = self.segments.front().filter(|segment| !segment.is_zero)?;
        let start = first.range.start;
        let aligned = start - start % grid as u64 + len as u64;
        Some(start..first.range.end.min(aligned))
    }

    /// Cuts these data off the first segment.
    pub(crate) fn begin(&mut self, data: &Range<u64>) {
        let Some(first) = self.segments.front_mut() else { return };
        first.range.start = data.end;
        if first.range.is_empty() {
            self.segments.pop_front();
        }
    }

    /// Zeros of the first segment, cut off it: no more than `len` bytes.
    pub(crate) fn cut_zeros(&mut self, len: u64) -> Option<Range<u64>> {
        let first = self.segments.front_mut().filter(|segment| segment.is_zero)?;
        let range = first.range.start..first.range.end.min(first.range.start.saturating_add(len));
        first.range.start = range.end;
        if first.range.is_empty() {
            self.segments.pop_front();
        }
        Some(range)
    }
}

/// What the extents of a range say, without a gap and no further than the range; what they do not
/// say is data, for one request at least.
pub(crate) fn segments(extents: &[Extent], range: Range<u64>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut at = range.start;
    for extent in extents {
        let end = extent.end().min(range.end);
        if extent.offset != at || end <= at {
            break;
        }
        let is_zero = extent.state.reads_zeros();
        match segments.last_mut() {
            Some(last) if last.is_zero == is_zero => last.range.end = end,
            Some(_) | None => segments.push(Segment { range: at..end, is_zero }),
        }
        at = end;
    }
    if segments.is_empty() {
        segments.push(Segment { range, is_zero: false });
    }
    segments
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::device::ExtentState;

    use super::*;

    fn segment(range: Range<u64>, is_zero: bool) -> Segment {
        Segment { range, is_zero }
    }

    #[test]
    fn extents_that_cannot_be_are_not_believed() {
        let zero = |at, len| Extent::new(at, len, ExtentState::Deallocated);
        let data = |at, len| Extent::new(at, len, ExtentState::Data);
        let told = [data(10, 5), zero(15, 5), zero(20, 100)];
        let expected = [segment(10..15, false), segment(15..50, true)];
        assert_eq!(segments(&told, 10..50), expected);
        assert_eq!(segments(&[zero(11, 5)], 10..50), [segment(10..50, false)]);
        assert_eq!(segments(&[], 10..50), [segment(10..50, false)]);
        let gap = [zero(10, 5), zero(16, 5)];
        assert_eq!(segments(&gap, 10..50), [segment(10..15, true)], "the rest is asked again");
    }

    #[test]
    fn reads_end_on_the_grid_of_the_requests() {
        let mut survey = Survey::new(false);
        survey.segments.push_back(segment(5..100, false));
        let cut = std::iter::from_fn(|| {
            let data = survey.data(32, 16)?;
            survey.begin(&data);
            Some(data)
        });
        let cut: Vec<_> = cut.collect();
        assert_eq!(cut, [5..32, 32..64, 64..96, 96..100]);
        assert!(survey.is_over());
    }
}
