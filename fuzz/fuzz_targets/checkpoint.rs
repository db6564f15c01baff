//! Feeds any text as a checkpoint file. What was read must be written so that it is read the same, and no part
//! of a file may pass for all of it.
#![no_main]

use iscsi_copy::Checkpoint;
use iscsi_fuzz::with_text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[low, high], text)) = data.split_first_chunk::<2>() else { return };
    with_text(text, |text| {
        let Ok(checkpoint) = text.parse::<Checkpoint>() else { return };
        let written = checkpoint.to_string();
        assert_eq!(written.parse(), Ok(checkpoint), "{written}");
        // The last line is whole without its line feed.
        let end = usize::from(u16::from_le_bytes([low, high])) % (written.len() - 1);
        let part = written.get(..end).unwrap_or_default();
        assert!(part.parse::<Checkpoint>().is_err(), "a part is taken for all of it: {part}");
    });
});
