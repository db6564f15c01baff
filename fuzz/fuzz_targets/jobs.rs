//! Feeds any text as a job file. No two jobs may have the same name or the same text as destination.
#![no_main]

use std::collections::BTreeSet;

use block_copy::fuzzing;
use iscsi_fuzz::with_text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| with_text(data, |text| {
    let (mut names, mut destinations) = (BTreeSet::new(), BTreeSet::new());
    for (name, destination) in fuzzing::jobs(text).unwrap_or_default() {
        assert!(names.insert(name), "two jobs of one name");
        let is_new = destination == "/dev/null" || destinations.insert(destination);
        assert!(is_new, "two jobs with one destination");
    }
}));
