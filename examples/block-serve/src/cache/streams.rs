//! Detects sequential readers, and chooses the ranges to read ahead of them.

use std::collections::VecDeque;
use std::ops::Range;

/// Maximum number of readers that are tracked.
const MAX_STREAMS: usize = 16;
/// Least bytes to read ahead of a reader. The next constant is the most.
const MIN_AHEAD: u64 = 128 << 10;
const MAX_AHEAD: u64 = 8 << 20;
/// A read continues a known reader if it begins within this number of bytes of the end of the reader's furthest
/// read. A reader with several requests in flight sends them in any order.
const DISTANCE: u64 = 128 << 10;

/// The readers. The most recent reader is last.
#[derive(Debug)]
pub(super) struct Streams {
    streams: VecDeque<Stream>,
    /// Most bytes that are read ahead of one reader.
    max_ahead: u64,
}

#[derive(Debug)]
struct Stream {
    /// End of the reader's furthest request.
    next: u64,
    /// End of the range that was read ahead of the reader.
    ahead: u64,
    /// Bytes to read ahead of the reader; 0 until its second request.
    window: u64,
}

impl Streams {
    pub(super) fn new(max_ahead: u64) -> Self {
        Self { streams: VecDeque::new(), max_ahead: max_ahead.min(MAX_AHEAD) }
    }

    /// Records a read. Returns the range to read ahead.
    pub(super) fn advance(&mut self, range: &Range<u64>) -> Option<Range<u64>> {
        let goes_on = |stream: &Stream| {
            range.start.abs_diff(stream.next) <= if stream.window == 0 { 0 } else { DISTANCE }
        };
        let Some(at) = self.streams.iter().position(goes_on) else {
            if self.streams.len() == MAX_STREAMS {
                self.streams.pop_front();
            }
            self.streams.push_back(Stream { next: range.end, ahead: range.end, window: 0 });
            return None;
        };
        let mut stream = self.streams.remove(at)?;
        stream.next = stream.next.max(range.end);
        stream.ahead = stream.ahead.max(stream.next);
        let due = stream.next + stream.window / 2 >= stream.ahead;
        let ahead = due.then(|| {
            stream.window = (stream.window * 2).clamp(MIN_AHEAD, self.max_ahead.max(MIN_AHEAD));
            let start = std::mem::replace(&mut stream.ahead, stream.next + stream.window);
            start..stream.ahead.max(start)
        });
        self.streams.push_back(stream);
        ahead.filter(|range| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_ahead_grows_with_a_reader_and_has_no_gap() {
        let mut streams = Streams::new(1 << 20);
        let (mut reached, mut lengths) = (8192, Vec::new());
        for offset in (0..4 << 20).step_by(4096) {
            if let Some(ahead) = streams.advance(&(offset..offset + 4096)) {
                assert_eq!(ahead.start, reached);
                assert!(ahead.end - (offset + 4096) <= 1 << 20);
                reached = ahead.end;
                lengths.push(ahead.end - ahead.start);
            }
        }
        assert_eq!(lengths[0], MIN_AHEAD);
        assert!(reached >= (4 << 20) + (1 << 19), "{reached}");
        assert!(lengths.len() < 20, "{lengths:?}");
    }

    #[test]
    fn who_reads_here_and_there_has_nothing_read_ahead() {
        let mut streams = Streams::new(1 << 20);
        for offset in [0, 1 << 20, 1 << 19, 3 << 20, 1 << 30, 7 << 20] {
            assert_eq!(streams.advance(&(offset..offset + 4096)), None);
        }
    }

    #[test]
    fn several_readers_are_told_apart() {
        let mut streams = Streams::new(1 << 20);
        let mut aheads = [0, 0];
        for step in 0..100 {
            for (which, base) in [0, 1 << 30].into_iter().enumerate() {
                let offset = base + step * 4096;
                aheads[which] += u64::from(streams.advance(&(offset..offset + 4096)).is_some());
            }
        }
        assert!(aheads.iter().all(|count| *count > 1), "{aheads:?}");
    }
}
