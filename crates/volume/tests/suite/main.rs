//! Volumes over devices that fail, and over units of test targets.
//!
//! One binary for all of them: each of its own would be linked, and its share of the crates compiled, once more.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

mod device;
mod model;
mod support;
#[cfg(feature = "iscsi")]
mod units;
