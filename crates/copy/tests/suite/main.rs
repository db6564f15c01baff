//! Copies between devices in memory, files, exports and units.
//!
//! One binary for all of them: each of its own would be linked, and its share of the crates compiled, once more.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

mod copy;
mod devices;
mod digests;
mod dirty_bitmap;
mod files;
mod forecast;
mod late_writes;
mod nbd;
mod nbd_outages;
mod passes;
mod pipes;
mod questions;
mod queues;
mod random;
mod ranges;
mod rates;
mod resume;
mod support;
mod units;
mod unreadable;
mod verify;
