//! block-serve with clients that speak NBD byte by byte.
//!
//! One binary for all of them: each of its own would be linked, and its share of the crates compiled, once more.
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
mod program;
mod refusals;
mod sub_blocks;
mod support;
