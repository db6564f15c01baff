//! The test target by itself: what it answers, what it tolerates, and what its checker says.
//!
//! One binary for all of them: each of its own would be linked, and its share of the crates compiled, once more.
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
