//! Tests of the initiator over TCP against the test target.
//!
//! All tests are in one binary: separate binaries would each be linked, and compile their share of the crates
//! again. Tests that need their own process are in the parent folder.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

mod asymmetric;
mod attentions;
mod bad_input;
mod blocking;
mod boundaries;
mod callers;
mod cancel;
mod changes;
mod connections;
mod disk_model;
mod ends;
mod events;
mod exclusive;
mod extents;
mod flush;
mod hostile_text;
mod identity;
mod loopback;
mod opening;
mod polling;
mod redirections;
mod reopening;
mod reservations;
mod runtime;
mod sessions;
mod silence;
mod stats;
mod stream_errors;
mod support;
mod transports;
mod tuning;
mod units;
mod unread;
mod zeros;
