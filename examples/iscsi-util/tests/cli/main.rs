//! The program from outside: what it does, what it says, how it exits.
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
mod measurements;
mod port_groups;
mod questions;
mod reservations;
mod support;
mod volumes;
mod writes;
