//! Tests of the shares of classes, in virtual time.
#![allow(clippy::expect_used, reason = "helpers of tests")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod borrowing;
mod changes;
mod limits;
#[path = "../simulated/mod.rs"]
mod simulated;
