//! Tests of copies between devices in memory, files, exports and units.
//!
//! All modules are in one binary: with one binary per module, each would compile and link its share of the
//! crates again.
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
mod nbd_tls;
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
