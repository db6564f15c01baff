//! Tests of volumes over devices that fail, and over units of test targets.
//!
//! All suites are one binary: with several, each would be linked and would compile its share of the crates
//! separately.
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
