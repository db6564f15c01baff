//! Limits the memory of the fuzz targets, and hands them their input as text or as bytes that a session receives.

use std::alloc::System;
use std::time::Instant;

use cap::Cap;
use iscsi_pdu::Cid;
use iscsi_session::Session;

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

/// Lets the first connection of a session receive bytes, until the session takes no more.
pub fn feed(session: &mut Session, mut bytes: &[u8], now: Instant) {
    while !bytes.is_empty() {
        let mut filled = 0;
        for slice in &mut session.receive_slices(Cid(0)) {
            let len = slice.len().min(bytes.len());
            slice[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            filled += len;
        }
        if filled == 0 {
            return;
        }
        session.handle_received(Cid(0), filled, now);
    }
}
