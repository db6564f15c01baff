//! Tests of SCSI formats: vectors from SAM-5, SPC-4 and SBC-3, responses of real targets, and property tests
//! with any bytes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod any_bytes;
mod asymmetric_access;
mod captures;
mod command;
mod disk;
mod identity;
mod reservation;
mod sense;

/// Reads bytes from hexadecimal digits; blanks are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text}");
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}
