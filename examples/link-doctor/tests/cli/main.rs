//! Tests of the program as a process: its measurements, its messages and its exit statuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test may panic"
)]

mod bad_input;
mod hostile_text;
mod interrupt;
mod json;
mod report;
mod support;
