//! Tests of the test target itself: its responses, its tolerance, and its checker.
//!
//! All tests are one binary. If each file were a binary, each would be linked separately, and would compile
//! its share of the crates again.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test may panic")]

mod block_faults;
mod cache;
mod checker;
mod connections;
mod faults;
mod login;
mod null;
mod other_nexus;
mod port_groups;
mod ports;
mod requests;
mod reservations;
mod rig;
mod robust;
mod script;
mod serve;
mod torn;
mod transfer;
