//! Finds zeros in data.

use std::ops::Range;

/// Returns whether all bytes are zero. The compiler uses vector instructions for the comparison.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    const LANE: usize = 64;
    let mut lanes = data.chunks_exact(LANE);
    let is_zero = |lane: &[u8]| lane.iter().fold(0, |all, byte| all | byte) == 0;
    lanes.all(is_zero) && is_zero(lanes.remainder())
}

/// Cuts data at `offset` of a device into runs of zeros and runs of data, in ascending order. Each has its
/// range in the data, and whether it is zero. Runs of zeros begin and end at multiples of `granularity` (not
/// 0) on the device, or at the start or end of the data.
pub(crate) fn runs(data: &[u8], offset: u64, granularity: usize) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let grain = granularity as u64;
        let into = usize::try_from((offset + at as u64) % grain).unwrap_or(0);
        let end = (at + granularity - into).min(data.len());
        let is_zero = is_zero(&data[at..end]);
        match runs.last_mut() {
            Some((run, same)) if *same == is_zero => run.end = end,
            Some(_) | None => runs.push((at..end, is_zero)),
        }
        at = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_enough_wherever_it_stands() {
        for len in [1, 63, 64, 65, 200] {
            let mut data = vec![0; len];
            assert!(is_zero(&data));
            for at in 0..len {
                data[at] = 1;
                assert!(!is_zero(&data), "{at} of {len}");
                data[at] = 0;
            }
        }
        assert!(is_zero(&[]));
    }

    #[test]
    fn runs_are_as_long_as_they_can_be_and_stand_on_the_grid_of_the_device() {
        let mut data = vec![0; 40];
        data[17] = 1;
        assert_eq!(runs(&data, 100, 10), [(0..10, true), (10..20, false), (20..40, true)]);
        assert_eq!(runs(&data, 105, 10), [(0..15, true), (15..25, false), (25..40, true)]);
        assert_eq!(runs(&data[15..20], 0, 10), [(0..5, false)]);
        assert_eq!(runs(&[0; 25], 3, 10), [(0..25, true)]);
        assert!(runs(&[], 0, 10).is_empty());
    }
}
