//! Shared by the tests of the example programs: a target on loopback, the program as a process, and checks of its
//! output.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "used by tests only, which may panic"
)]

mod output;
pub mod page;
mod process;
mod rig;

pub use output::{assert_message, assert_single_message, object, stderr, stdout};
pub use process::{TIME_LIMIT, command, ends, signal, until, within_time_limit};
pub use rig::{Rig, TARGET, unique_serial};
