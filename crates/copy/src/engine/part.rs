//! Cuts the data of a copy into parts.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::memory::Hold;
use crate::zeros;

/// Consecutive bytes that are written in one request.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) range: Range<u64>,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Data {
        bytes: Bytes,
        /// Memory of the read, released when the last part of the read is dropped.
        _hold: Arc<Hold>,
    },
    Zeros,
}

impl Part {
    pub(crate) const fn zeros(range: Range<u64>) -> Self {
        Self { range, content: Content::Zeros }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(crate) const fn is_data(&self) -> bool {
        matches!(self.content, Content::Data { .. })
    }
}

/// Rules for cutting data into parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Largest length of a part with data, bytes.
    pub(crate) io_size: usize,
    /// Granularity of the search for zeros, bytes; `None` to search for none.
    pub(crate) granularity: Option<usize>,
}

impl Cut {
    /// Cuts data that was read from `offset` on. Parts with data end at multiples of the request length.
    pub(crate) fn parts(self, offset: u64, data: &Bytes, hold: &Arc<Hold>) -> Vec<Part> {
        let runs = match self.granularity {
            Some(granularity) => zeros::runs(data, offset, granularity),
            None => vec![(0..data.len(), false)],
        };
        let mut parts = Vec::new();
        for (run, is_zero) in runs {
            if is_zero {
                parts.push(Part::zeros(offset + run.start as u64..offset + run.end as u64));
                continue;
            }
            let mut at = run.start;
            while at < run.end {
                let here = offset + at as u64;
                let into = usize::try_from(here % self.io_size as u64).unwrap_or(0);
                let end = run.end.min(at + self.io_size - into);
                let content = Content::Data { bytes: data.slice(at..end), _hold: Arc::clone(hold) };
                parts.push(Part { range: here..offset + end as u64, content });
                at = end;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::memory::Memory;

    #[test]
    fn parts_are_whole_requests_where_no_run_of_zeros_comes_between() {
        let hold = Memory::new(0).take(100).unwrap();
        let mut data = vec![1; 100];
        data[40..80].fill(0);
        let cut = |granularity| {
            let cut = Cut { io_size: 32, granularity };
            let parts = cut.parts(16, &data.clone().into(), &hold);
            let parts = parts.into_iter().map(|part| {
                let is_zero = matches!(part.content, Content::Zeros);
                (part.range, is_zero)
            });
            parts.collect::<Vec<_>>()
        };
        assert_eq!(
            cut(Some(16)),
            [(16..32, false), (32..64, false), (64..96, true), (96..116, false)]
        );
        let whole = [(16..32, false), (32..64, false), (64..96, false), (96..116, false)];
        assert_eq!(cut(None), whole);
    }
}
