//! Tests of block-serve, with clients that send NBD byte by byte.
//!
//! All tests are one binary: with several binaries, each would be linked, and compile its share of the crates,
//! again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

mod clients;
mod handover;
mod hostile_text;
mod interleavings;
mod outages;
mod program;
mod refusals;
mod sub_blocks;
mod support;
