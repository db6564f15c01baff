//! What the fuzz targets share: a limit of the memory that an input may make a parser allocate, and the rules by
//! which bytes of the fuzzer become text.

use std::alloc::System;

use cap::Cap;

/// Most bytes that are allocated at the same time. An allocation beyond it ends the process, which libFuzzer reports.
const MEMORY: usize = 64 << 20;

/// The allocator of all fuzz targets. libFuzzer can limit allocations itself only together with a sanitizer.
#[global_allocator]
static LIMITED: Cap<System> = Cap::new(System, MEMORY);

/// Calls `check` with the input as text, if it is UTF-8.
pub fn with_text(data: &[u8], check: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        check(text);
    }
}
