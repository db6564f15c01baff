//! Feeds any text as a list of ranges, of lines or of JSON. Each range must lie within the source.
#![no_main]

use block_copy::fuzzing;
use iscsi_fuzz::with_text;
use libfuzzer_sys::fuzz_target;

/// Length of the source, in bytes.
const LEN: u64 = 1 << 40;

fuzz_target!(|data: &[u8]| with_text(data, |text| {
    for range in fuzzing::ranges(text, LEN).unwrap_or_default().iter() {
        assert!(range.start < range.end && range.end <= LEN, "{range:?}");
    }
}));
