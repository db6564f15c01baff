//! Stores checksums of the data that was read from the source: eight bytes for each request.
//!
//! The checksum of each part is computed between its read and its write, so that the source is read only
//! once: it may be a pipe, far away, or changing. The checksum is CRC-64/NVME: it is made for storage, and
//! ten times faster than a cryptographic hash. It is no weaker here, because only accidental errors are to be
//! detected: a malicious target could return the right data now and wrong data later.

use std::collections::BTreeMap;
use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum};
use iscsi_block_device::RangeSet;

use crate::engine::part::{Content, Part};

/// Returns the CRC-64/NVME of some bytes.
pub(crate) fn sum(data: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, data)
}

/// The checksums of the data that a copy has read, and the ranges of zeros.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Checksums {
    /// Parts with data: first byte, byte after the last one, and checksum.
    parts: BTreeMap<u64, (u64, u64)>,
    zeros: RangeSet,
}

impl Checksums {
    /// Sets the checksum of a part; removes older checksums of parts that overlap it.
    pub(crate) fn put(&mut self, part: &Part, sum: u64) {
        self.forget(&part.range);
        match part.content {
            Content::Data { .. } => {
                self.parts.insert(part.range.start, (part.range.end, sum));
            }
            Content::Zeros => self.zeros.insert(part.range.clone()),
        }
    }

    /// Replaces the checksums of `ranges` with those of a later pass. A part that was only partly read again
    /// loses its checksum.
    pub(crate) fn supersede(&mut self, ranges: &RangeSet, later: Self) {
        ranges.iter().for_each(|range| self.forget(&range));
        self.parts.extend(later.parts);
        self.zeros.extend(later.zeros.iter());
    }

    /// Returns the ranges with a checksum, or with zeros.
    pub(crate) fn ranges(&self) -> RangeSet {
        let mut ranges = self.zeros.clone();
        ranges.extend(self.parts().map(|(range, _)| range));
        ranges
    }

    fn forget(&mut self, range: &Range<u64>) {
        self.zeros.remove(range);
        let before = self.parts.range(..range.end).rev();
        let old = before.take_while(|(_, (end, _))| *end > range.start);
        let old: Vec<u64> = old.map(|(start, _)| *start).collect();
        old.iter().for_each(|start| _ = self.parts.remove(start));
    }

    /// Returns the parts with data in ascending order, each with its checksum.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        self.parts.iter().map(|(start, (end, sum))| (*start..*end, *sum))
    }

    /// Returns the ranges of zeros.
    pub(crate) const fn zeros(&self) -> &RangeSet {
        &self.zeros
    }

    /// Returns the number of bytes with a checksum, or with zeros.
    pub fn bytes(&self) -> u64 {
        self.parts().map(|(range, _)| range.end - range.start).sum::<u64>() + self.zeros.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::memory::Memory;

    fn data(range: Range<u64>) -> Part {
        let hold = Memory::new(0).take(1).unwrap();
        let bytes = range.clone().map(|_| 1).collect::<Vec<u8>>().into();
        Part { range, content: Content::Data { bytes, _hold: hold } }
    }

    #[test]
    fn the_checksum_is_crc_64_nvme() {
        assert_eq!(sum(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn of_a_part_that_is_read_again_in_part_nothing_is_known() {
        let mut sums = Checksums::default();
        sums.put(&data(0..10), 1);
        sums.put(&data(10..20), 2);
        sums.put(&Part::zeros(20..40), 0);
        let mut later = Checksums::default();
        later.put(&data(12..14), 3);
        later.put(&Part::zeros(14..16), 0);
        later.put(&data(25..30), 4);
        sums.supersede(&RangeSet::from_iter([12..16, 25..30]), later);
        let parts: Vec<_> = sums.parts().collect();
        assert_eq!(parts, [(0..10, 1), (12..14, 3), (25..30, 4)]);
        assert_eq!(sums.ranges(), RangeSet::from_iter([0..10, 12..16, 20..40]));
    }

    #[test]
    fn what_is_read_again_takes_the_place_of_what_was() {
        let mut sums = Checksums::default();
        sums.put(&data(0..10), 1);
        sums.put(&data(10..20), 2);
        sums.put(&Part::zeros(20..40), 0);
        assert_eq!(sums.bytes(), 40);
        sums.put(&data(5..15), 3);
        let parts: Vec<_> = sums.parts().collect();
        assert_eq!(parts, [(5..15, 3)], "the others are not known in part");
        sums.put(&data(30..40), 4);
        assert_eq!(sums.zeros(), &RangeSet::from(20..30));
        sums.put(&Part::zeros(0..100), 0);
        assert_eq!((sums.parts().count(), sums.bytes()), (0, 100));
    }
}
