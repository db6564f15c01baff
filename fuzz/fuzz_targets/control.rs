//! Feeds any lines to a control socket, and to both ends of the protocol by which processes share classes. A command
//! that is refused must change nothing.
#![no_main]

use block_copy::fuzzing::{self, Commands};
use iscsi_fuzz::with_text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| with_text(data, |text| {
    let commands = Commands::default();
    for line in text.lines() {
        let before = commands.execute("status");
        let answer = commands.execute(line);
        if !answer["error"].is_null() {
            assert_eq!(before, commands.execute("status"), "a refused command changes something");
        }
        for printed in fuzzing::messages(line) {
            let again = fuzzing::messages(printed.trim_end());
            assert!(again.contains(&printed), "a message is read as another: {printed}");
        }
    }
}));
